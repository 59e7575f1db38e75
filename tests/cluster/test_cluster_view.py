"""From records to what the faces show."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import pytest
from cluster_tools import WALL, Clock, a_config, a_gpu, a_process, a_snapshot, an_entry

from gpumon.cluster.record import Moment, Record
from gpumon.cluster.sources.base import Reading
from gpumon.cluster.status import ClusterStatus, HostStatus
from gpumon.cluster.view import build
from gpumon.config import HostEntry, WebConfig
from gpumon.model import Gpu, HealthEvent, HostSnapshot, MigInstance

ONE, TWO = an_entry("one", 1), an_entry("two", 2)
CONFIG = a_config(ONE, TWO, web=WebConfig(title="Lab"))


class Host:
    """A record that is fed with readings."""

    def __init__(self, entry: HostEntry = ONE, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.record = Record(entry=entry)

    def now(self) -> Moment:
        return Moment(monotonic=self.clock.monotonic(), wall=self.clock.wall())

    def answers(self, *gpus: Gpu, **fields: object) -> Host:
        snapshot = a_snapshot(*gpus, **{"time": self.clock.wall(), **fields})
        return self.answers_with(snapshot)

    def answers_with(self, snapshot: HostSnapshot) -> Host:
        self.record = self.record.answered_with(
            Reading.of(snapshot),
            asked=self.clock.seconds,
            now=self.now(),
            limits=CONFIG.limits,
            poll_interval=CONFIG.poll_interval,
        )
        return self

    def fails(self) -> Host:
        self.record = self.record.failed_with(
            "refused", "refused: nobody", asked=self.clock.seconds, now=self.now()
        )
        return self

    def status(self, *others: Host) -> ClusterStatus:
        records = [self.record, *(other.record for other in others)]
        return build(records, config=CONFIG, now=self.now(), revision="r-1")

    def row(self) -> HostStatus:
        return self.status().hosts[0]


def test_a_host_shows_what_its_reading_says():
    host = Host().answers(a_gpu(0, processes=[a_process()], power_draw_watts=300.5), a_gpu(1))
    row = host.row()
    assert (row.name, row.address, row.state) == ("one", "127.0.0.1:1", "fresh")
    assert (row.driver_version, row.gpu_count, row.reason, row.errors) == ("570.1", 2, None, [])
    busy, free = row.gpus
    assert (busy.state, busy.model, busy.power_draw_watts) == ("busy", "H100 80G", 300.5)
    assert busy.holders[0].user == "bob"
    assert (free.state, free.utilization_percent, free.holders) == ("free", 0, [])


def test_the_whole_carries_title_revision_and_time():
    status = Host().answers(a_gpu()).status()
    assert (status.title, status.revision, status.time) == ("Lab", "r-1", WALL)
    assert status.poll_interval_seconds == 5.0
    assert status.simulated is False


def test_one_invented_host_makes_the_whole_invented():
    real, invented = Host().answers(a_gpu()), Host(TWO).answers(a_gpu(5), simulated=True)
    status = real.status(invented)
    assert status.simulated is True
    assert [host.simulated for host in status.hosts] == [False, True]


def test_an_invented_host_that_never_answers_is_invented_too():
    entry = HostEntry(name="x", source="simulated", address="simulated")
    assert Host(entry).fails().row().simulated is True


def test_unknown_values_stay_unknown_and_zero_stays_zero():
    card = a_gpu(utilization_percent=None, temperature_celsius=0, power_draw_watts=None)
    gpu = Host().answers(card).row().gpus[0]
    assert (gpu.utilization_percent, gpu.temperature_celsius, gpu.power_draw_watts) == (
        None,
        0,
        None,
    )


def test_a_silent_host_keeps_its_gpus_as_unknown_with_last_values_and_holders():
    host = Host().answers(a_gpu(processes=[a_process()], utilization_percent=85))
    host.clock.move(60)
    row = host.fails().row()
    assert (row.state, row.reason_kind, row.reason) == ("stale", "refused", "refused: nobody")
    gpu = row.gpus[0]
    assert (gpu.state, gpu.reason, gpu.utilization_percent) == ("unknown", "refused: nobody", 85)
    assert gpu.holders[0].user == "bob"


def test_a_drained_host_has_drained_gpus():
    entry = msgspec.structs.replace(ONE, drained=True)
    assert Host(entry).answers(a_gpu()).row().gpus[0].state == "drained"


def test_what_is_wrong_on_a_fresh_host_is_its_reason():
    row = Host().answers(errors=["no driver here"], error_kind="no driver", gpu_count=None).row()
    assert (row.state, row.reason_kind, row.reason) == ("fresh", "no driver", "no driver here")
    row = Host().answers(errors=["e"], sampler_error="late").row()
    assert (row.reason_kind, row.reason, row.errors) == ("no sample", "late", ["late", "e"])


def test_a_host_without_gpus_says_so_and_one_that_can_not_count_them_does_not():
    assert Host().answers(gpu_count=0).row().reason_kind == "no GPU"
    assert Host().answers(gpu_count=None).row().reason is None


@pytest.mark.parametrize(("off_by", "words"), [(31.0, "31s ahead of"), (-7200.0, "2h00 behind")])
def test_a_clock_that_is_off_is_noted_and_touches_nothing_else(off_by, words):
    row = Host().answers(a_gpu(), time=WALL + off_by).row()
    assert words in row.notes[0]
    assert (row.errors, row.reason) == ([], None)
    assert (row.state, row.age_seconds) == ("fresh", 0.0)


@pytest.mark.parametrize("off_by", [29.0, -29.0, None])
def test_a_clock_that_is_hardly_off_or_not_known_is_not_noted(off_by):
    time = None if off_by is None else WALL + off_by
    assert Host().answers(a_gpu(), time=time).row().errors == []


def test_the_age_of_the_sample_is_no_skew():
    assert Host().answers(a_gpu(), time=WALL - 100, sample_age_seconds=100.0).row().errors == []


def test_one_machine_under_two_names_is_flagged_on_both_and_counted_once():
    one, two = Host().answers(a_gpu(0), a_gpu(1)), Host(TWO).answers(a_gpu(0), a_gpu(1))
    status = one.status(two)
    first, second = status.hosts
    assert "lists the same GPUs as two:" in first.notes[0]
    assert "lists the same GPUs as one" in second.notes[0]
    assert (len(first.gpus), len(second.gpus)) == (2, 2)
    assert status.totals.gpus.total == 2


def test_a_thousand_entries_that_lead_to_one_machine_cost_no_more_than_a_thousand_machines():
    def seconds(gpus: Callable[[int], list[Gpu]]) -> float:
        records = [
            Host(an_entry(f"h{number}", number)).answers(*gpus(number)).record
            for number in range(1200)
        ]
        began = time.process_time()
        status = build(records, config=CONFIG, now=Host().now(), revision="r-1")
        assert len(status.hosts) == 1200
        return time.process_time() - began

    one = [a_gpu(index) for index in range(8)]
    machine = seconds(lambda _: one)
    machines = seconds(lambda n: [a_gpu(index, uuid=f"{n}-{index}") for index in range(8)])
    assert machine < 3 * machines + 0.1


def test_the_twins_are_named_up_to_four_and_then_counted():
    hosts = [Host(an_entry(f"h{n}", n)).answers(a_gpu(0)) for n in range(7)]
    notes = [host.notes[0] for host in hosts[0].status(*hosts[1:]).hosts]
    assert "the same GPUs as h1, h2, h3, h4 and 2 more:" in notes[0]
    assert "the same GPUs as h0, h1, h2, h3 and 2 more:" in notes[6]


def missed(index: int, uuid: str) -> Gpu:
    """A GPU of which the agent says that the driver no longer lists it."""
    words = "missing since 09:12: the driver counts 1 GPU"
    return Gpu(index=index, uuid=uuid, lost=True, error=words, missing_since=WALL - 60)


def test_a_gpu_that_its_agent_misses_is_a_fault_and_has_one_row():
    host = Host().answers(a_gpu(0, uuid="A"), a_gpu(1, uuid="B"))
    row = host.answers(a_gpu(0, uuid="A"), missed(1, "B"), gpu_count=1).row()
    assert [(gpu.uuid, gpu.state) for gpu in row.gpus] == [("A", "free"), ("B", "fault")]
    assert row.gpus[1].reason == "missing since 09:12: the driver counts 1 GPU"
    assert len(host.answers(a_gpu(0, uuid="A")).row().gpus) == 1  # the agent was told to forget it


def test_a_card_that_was_moved_to_another_host_is_missed_by_nobody():
    one = Host().answers(a_gpu(0, uuid="A"), missed(1, "B"))
    status = one.status(Host(TWO).answers(a_gpu(0, uuid="B")))
    assert [[gpu.uuid for gpu in host.gpus] for host in status.hosts] == [["A"], ["B"]]
    assert [host.errors for host in status.hosts] == [[], []]
    assert status.totals.gpus.total == 2


def test_a_warning_of_a_gpu_is_passed_on_and_changes_no_state():
    event = HealthEvent(
        kind="row_remap",
        level="warning",
        text="bad memory rows wait for a reset",
        first_at=WALL,
        last_at=WALL,
        count=1,
        source="driver",
    )
    (gpu,) = Host().answers(a_gpu(0, health=[event])).row().gpus
    assert (gpu.state, gpu.warnings) == ("free", ["bad memory rows wait for a reset"])


def test_two_machines_that_call_themselves_the_same_are_two():
    one, two = (
        Host().answers(a_gpu(0, uuid="A"), hostname="gpu01"),
        Host(TWO).answers(a_gpu(0, uuid="B"), hostname="gpu01"),
    )
    status = one.status(two)
    assert [host.name for host in status.hosts] == ["one", "two"]
    assert [host.errors for host in status.hosts] == [[], []]
    assert status.totals.gpus.total == 2


def test_gpus_that_nobody_could_identify_are_not_taken_for_the_same():
    one, two = Host().answers(a_gpu(0, uuid=None)), Host(TWO).answers(a_gpu(0, uuid=None))
    status = one.status(two)
    assert status.totals.gpus.total == 2
    assert status.hosts[0].errors == []


# MIG


def part(index: int, **fields: object) -> MigInstance:
    empty = MigInstance(
        index=index,
        uuid=f"MIG-{index}",
        name="1g.10gb",
        memory_total_mib=9856,
        memory_used_mib=12,
        memory_reserved_mib=1,
        processes=[],
    )
    return msgspec.structs.replace(empty, **fields)


def test_a_gpu_in_mig_mode_shows_its_instances_and_who_is_on_them():
    bob, again = a_process(1, started_at=50.0), a_process(2, started_at=40.0)
    card = a_gpu(
        mig_mode=True,
        utilization_percent=None,
        mig=[part(0, processes=[bob]), part(1), part(2, processes=[again])],
    )
    gpu = Host().answers(card).row().gpus[0]
    assert [instance.state for instance in gpu.mig] == ["busy", "free", "busy"]
    assert (gpu.state, gpu.utilization_percent) == ("busy", None)
    (holder,) = gpu.holders
    assert (holder.user, holder.pids, holder.gpu_memory_used_mib) == ("bob", [1, 2], 60_000)
    assert holder.started_at == 40.0


def test_one_broken_instance_costs_its_own_row_only():
    card = a_gpu(mig_mode=True, mig=[part(0, error="gone", memory_used_mib=None), part(1)])
    gpu = Host().answers(card).row().gpus[0]
    assert [instance.state for instance in gpu.mig] == ["unknown", "free"]


def test_instances_of_a_lost_gpu_are_lost_with_it():
    card = a_gpu(mig_mode=True, lost=True, error="lost", mig=[part(0)])
    gpu = Host().answers(card).row().gpus[0]
    assert (gpu.state, gpu.mig[0].state, gpu.mig[0].reason) == ("fault", "fault", "lost")


# GPUs that went missing


def test_a_gpu_that_is_no_longer_listed_keeps_a_row_as_a_fault_without_old_values():
    host = Host().answers(a_gpu(0), a_gpu(1, utilization_percent=70, processes=[a_process()]))
    host.clock.move(5)
    row = host.answers(a_gpu(0)).row()
    gone = row.gpus[1]
    assert (gone.index, gone.uuid, gone.state) == (1, "GPU-0001", "fault")
    assert gone.since == WALL + 5
    assert "no longer lists this GPU" in str(gone.reason)
    assert (gone.utilization_percent, gone.holders, gone.model) == (None, [], "H100 80G")


def test_gpus_of_a_host_whose_driver_went_away_are_unknown_not_missing():
    host = Host().answers(a_gpu(0, processes=[a_process()]))
    host.clock.move(5)
    row = host.answers(gpu_count=None, errors=["driver upgraded"], error_kind="no driver").row()
    gpu = row.gpus[0]
    assert (gpu.state, gpu.reason, gpu.holders[0].user) == ("unknown", "driver upgraded", "bob")


def test_a_card_that_moved_to_another_host_is_not_missing():
    one, two = Host().answers(a_gpu(0), a_gpu(1)), Host(TWO)
    one.clock.move(5)
    one.answers(a_gpu(0))
    assert len(one.row().gpus) == 2
    two.answers(a_gpu(1))
    status = one.status(two)
    assert [len(host.gpus) for host in status.hosts] == [1, 1]
    assert status.totals.gpus.total == 2


def test_a_missing_gpu_of_a_silent_host_is_unknown():
    host = Host().answers(a_gpu(0), a_gpu(1)).answers(a_gpu(0), time=WALL + 1)
    host.clock.move(60)
    assert [gpu.state for gpu in host.fails().row().gpus] == ["unknown", "unknown"]


def test_a_machine_under_many_names_names_a_few_of_them():
    hosts = [Host(an_entry(f"h{n}", n)).answers(a_gpu(0)) for n in range(1, 12)]
    note = hosts[0].status(*hosts[1:]).hosts[0].notes[0]
    assert note.startswith("lists the same GPUs as h2, h3, h4, h5 and 6 more: one machine")
