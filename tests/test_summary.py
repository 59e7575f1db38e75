"""The short form says what the whole reading says, and unknown stays unknown in it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.model import (
    Gpu,
    HealthEvent,
    HostInfo,
    HostSnapshot,
    MigInstance,
    Process,
    encode,
    splice,
)
from gpumon.summary import (
    SLOWDOWNS,
    GpuSummary,
    Holder,
    HostSummary,
    MigSummary,
    decode_summary,
    holders,
    summarize,
)


def test_processes_of_one_owner_become_one_holder():
    found = holders(
        [
            Process(pid=9, user="bob", gpu_memory_used_mib=100, started_at=50.0, program="small"),
            Process(pid=3, user="bob", gpu_memory_used_mib=900, started_at=70.0, program="train"),
        ]
    )
    assert found == [
        Holder(user="bob", pids=[3, 9], gpu_memory_used_mib=1000, started_at=50.0, program="train")
    ]


def test_an_owner_who_was_found_out_by_a_rule_for_some_processes_is_marked():
    own = Process(pid=9, user="bob")
    by_rule = Process(pid=3, user="bob", user_by="rule: home mount")
    assert [holder.user_by for holder in holders([own])] == [None]
    assert [holder.user_by for holder in holders([own, by_rule])] == ["rule: home mount"]


def test_memory_that_is_known_in_part_is_the_known_part_and_unknown_memory_is_not_zero():
    known, unknown = (
        Process(pid=1, user="a", gpu_memory_used_mib=0),
        Process(pid=2, user="a", gpu_memory_used_mib=None),
    )
    assert holders([known, unknown])[0].gpu_memory_used_mib == 0
    assert holders([unknown])[0].gpu_memory_used_mib is None
    assert holders([unknown])[0].started_at is None


def test_those_with_most_memory_come_first_and_unknown_owners_last():
    found = holders(
        [
            Process(pid=1, user=None, gpu_memory_used_mib=9000),
            Process(pid=2, user="amy", gpu_memory_used_mib=10),
            Process(pid=3, user="bob", gpu_memory_used_mib=500),
            Process(pid=4, user=None),
        ]
    )
    assert [(holder.user, holder.pids) for holder in found] == [
        ("bob", [3]),
        ("amy", [2]),
        (None, [1, 4]),
    ]


@pytest.mark.parametrize(
    ("kinds", "graphics_only"),
    [
        ([["graphics"]], True),
        ([["graphics"], ["graphics"]], True),
        ([["graphics"], ["compute"]], False),
        ([["compute", "graphics"]], False),
        ([["mps"]], False),
        ([[]], False),
    ],
)
def test_an_owner_is_graphics_only_when_all_processes_are(kinds, graphics_only):
    processes = [Process(pid=i, user="a", kinds=kind) for i, kind in enumerate(kinds)]
    assert holders(processes)[0].graphics_only is graphics_only


def test_a_process_list_that_could_not_be_read_is_not_an_empty_one():
    unread = summarize(HostSnapshot(gpus=[Gpu(index=0, processes=None)])).gpus[0]
    empty = summarize(HostSnapshot(gpus=[Gpu(index=0, processes=[])])).gpus[0]
    assert (unread.processes_known, unread.holders) == (False, [])
    assert (empty.processes_known, empty.holders) == (True, [])


def test_instances_that_could_not_be_listed_are_not_no_instances():
    unread = summarize(HostSnapshot(gpus=[Gpu(index=0, unknown={"mig": "Unknown Error"})])).gpus[0]
    assert unread.mig_known is False
    assert summarize(HostSnapshot(gpus=[Gpu(index=0)])).gpus[0].mig_known is True


def test_only_clock_reasons_of_the_hardware_are_slowdowns():
    card = Gpu(index=0, clock_event_reasons=["sw_power_cap", "hw_thermal_slowdown", "gpu_idle"])
    assert summarize(HostSnapshot(gpus=[card])).gpus[0].slowdown == ["hw_thermal_slowdown"]
    assert summarize(HostSnapshot(gpus=[Gpu(index=0)])).gpus[0].slowdown == []


def health(level: str, text: str, ended_at: float | None = None) -> HealthEvent:
    return HealthEvent(
        kind="xid",
        level=level,
        text=text,
        first_at=1.0,
        last_at=2.0,
        count=1,
        ended_at=ended_at,
        source="driver",
    )


def test_all_faults_and_warnings_that_go_on_are_told():
    card = Gpu(
        index=0,
        health=[
            health("warning", "remap"),
            health("fault", "halted"),
            health("fault", "older"),
            health("warning", "many errors"),
            health("application", "page fault"),
        ],
    )
    short = summarize(HostSnapshot(gpus=[card])).gpus[0]
    assert (short.fault, short.warnings) == ("halted; older", ["remap", "many errors"])
    many = Gpu(index=0, health=[health("fault", f"f{number}") for number in range(9)])
    assert summarize(HostSnapshot(gpus=[many])).gpus[0].fault == "f0; f1; f2; f3; 5 more"


def test_what_is_over_and_what_programs_did_is_neither_fault_nor_warning():
    card = Gpu(
        index=0,
        health=[
            health("fault", "halted", ended_at=3.0),
            health("warning", "remap", ended_at=3.0),
            health("application", "page fault"),
        ],
    )
    short = summarize(HostSnapshot(gpus=[card])).gpus[0]
    assert (short.fault, short.warnings) == (None, [])


def test_an_empty_snapshot_has_an_empty_summary():
    assert summarize(HostSnapshot()) == HostSummary()


@pytest.mark.parametrize(
    ("whole", "short", "made"),
    [
        (
            Gpu,
            GpuSummary,
            {
                "slowdown",
                "fault",
                "warnings",
                "processes_known",
                "holders",
                "mig",
                "mig_known",
            },
        ),
        (MigInstance, MigSummary, {"processes_known", "holders"}),
        (HostSnapshot, HostSummary, {"gpus", "cpu_percent"}),
    ],
)
def test_a_name_in_the_summary_means_what_it_means_in_the_model(whole, short, made):
    model = {f.name: f.type for f in msgspec.structs.fields(whole)}
    model |= {f.name: f.type for f in msgspec.structs.fields(HostInfo)}
    for field in msgspec.structs.fields(short):
        if field.name not in made:
            assert model[field.name] == field.type, field.name


values = st.one_of(st.none(), st.integers(0, 2**40))
_processes = st.one_of(
    st.none(),
    st.lists(
        st.builds(
            Process,
            pid=st.integers(1, 4_000_000),
            user=st.sampled_from(["amy", "bob", None]),
            kinds=st.lists(st.sampled_from(["compute", "graphics", "mps"]), max_size=2),
            gpu_memory_used_mib=values,
            started_at=st.one_of(st.none(), st.floats(0, 2e9)),
        ),
        max_size=4,
    ),
)
_gpus = st.builds(
    Gpu,
    index=st.integers(0, 15),
    utilization_percent=values,
    memory_used_mib=values,
    memory_total_mib=values,
    clock_event_reasons=st.one_of(st.none(), st.lists(st.sampled_from(SLOWDOWNS), max_size=2)),
    processes=_processes,
    mig=st.lists(st.builds(MigInstance, index=st.integers(0, 6), processes=_processes), max_size=2),
)


@given(_gpus)
def test_every_process_is_with_one_holder_and_the_summary_survives_the_wire(card):
    summary = summarize(HostSnapshot(gpus=[card]))
    assert decode_summary(encode(summary)) == summary
    for listed, short in [
        (card, summary.gpus[0]),
        *zip(card.mig, summary.gpus[0].mig, strict=True),
    ]:
        pids = sorted(pid for holder in short.holders for pid in holder.pids)
        assert pids == sorted(process.pid for process in listed.processes or [])
        known = [p.gpu_memory_used_mib for p in listed.processes or []]
        total = [h.gpu_memory_used_mib for h in short.holders]
        assert sum(m for m in total if m is not None) == sum(m for m in known if m is not None)


def test_summaries_and_snapshots_take_the_age_in_front_alike():
    summary = summarize(HostSnapshot(hostname="a"))
    assert decode_summary(splice(encode(summary), 3.2, "late")).sampler_error == "late"
