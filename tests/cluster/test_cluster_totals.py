"""Sums over the cluster: they add up, count nothing twice and never count unknown as free."""

from __future__ import annotations

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gpumon.cluster.status import GpuStatus, HostStatus, MigStatus, UserTotals
from gpumon.cluster.totals import (
    cluster_totals,
    counted_gpus,
    model_totals,
    shares_of,
    user_totals,
)
from gpumon.states import GPU_STATES, HOST_STATES
from gpumon.summary import Holder


def holder(user: str | None, *pids: int, **fields: object) -> Holder:
    return msgspec.structs.replace(Holder(user=user, pids=list(pids)), **fields)


def gpu(index: int, state: str = "free", **fields: object) -> GpuStatus:
    card = GpuStatus(
        index=index,
        uuid=None,
        name="NVIDIA H100 80GB HBM3",
        model="H100 80G",
        state=state,
        reason=None,
        since=None,
        since_at_least=False,
        utilization_percent=None,
        memory_used_mib=None,
        memory_total_mib=81559,
        unified_memory=False,
        temperature_celsius=None,
        power_draw_watts=None,
        enforced_power_limit_watts=None,
        mig_mode=None,
        mig=[],
        holders=[],
    )
    return msgspec.structs.replace(card, **fields)


def part(index: int, state: str = "free", **fields: object) -> MigStatus:
    instance = MigStatus(
        index=index,
        uuid=None,
        name="1g.10gb",
        state=state,
        reason=None,
        since=None,
        since_at_least=False,
        memory_used_mib=None,
        memory_total_mib=9856,
        holders=[],
    )
    return msgspec.structs.replace(instance, **fields)


def host(name: str, *gpus: GpuStatus, state: str = "fresh") -> HostStatus:
    return HostStatus(
        name=name,
        address=name,
        labels={},
        state=state,
        reason=None,
        reason_kind=None,
        age_seconds=None,
        answered_at=None,
        next_poll_seconds=None,
        simulated=False,
        agent_version=None,
        driver_version=None,
        cuda_version=None,
        gpu_count=len(gpus),
        cpu_percent=None,
        memory_total_mib=None,
        memory_available_mib=None,
        errors=[],
        gpus=list(gpus),
    )


def users(*hosts: HostStatus) -> list[UserTotals]:
    return user_totals(shares_of(list(hosts)))


def models(*hosts: HostStatus):
    return model_totals(shares_of(list(hosts)))


# The whole


def test_hosts_and_gpus_are_counted_by_state():
    hosts = [
        host("a", gpu(0), gpu(1, "busy")),
        host("b", gpu(0, "unknown"), state="stale"),
        host("c", state="never"),
    ]
    totals = cluster_totals(hosts, shares_of(hosts))
    assert (totals.hosts, totals.hosts_fresh, totals.hosts_stale) == (3, 1, 1)
    assert (totals.hosts_down, totals.hosts_never) == (0, 1)
    assert totals.gpus.total == 3
    assert (totals.gpus.free, totals.gpus.busy, totals.gpus.unknown) == (1, 1, 1)


def test_a_gpu_listed_twice_counts_where_it_was_read_last():
    stale = host("old", gpu(0, "unknown", uuid="A"), state="stale")
    fresh = host("new", gpu(0, "free", uuid="A"))
    assert [(h.name, g.state) for h, g in counted_gpus([stale, fresh])] == [("new", "free")]
    assert [h.name for h, _ in counted_gpus([fresh, stale])] == ["new"]
    both = [fresh, msgspec.structs.replace(fresh, name="twin")]
    assert [h.name for h, _ in counted_gpus(both)] == ["new"]


def test_a_gpu_that_is_drained_under_one_of_two_names_is_not_free():
    free = host("new", gpu(0, "free", uuid="A"))
    drained = host("twin", gpu(0, "drained", uuid="A"))
    assert [g.state for _, g in counted_gpus([free, drained])] == ["drained"]
    assert [g.state for _, g in counted_gpus([drained, free])] == ["drained"]


# Models


def test_models_stand_in_natural_order_with_the_largest_blocks_first():
    found = models(
        host("gpu-10", gpu(0), gpu(1)),
        host("gpu-2", gpu(0), gpu(1), gpu(2, model="A100 40G")),
        host("gpu-3", gpu(0), gpu(1), gpu(2), gpu(3, "busy")),
    )
    assert [model.model for model in found] == ["A100 40G", "H100 80G"]
    h100 = found[1]
    assert (h100.counts.total, h100.counts.free, h100.counts.busy) == (8, 7, 1)
    assert h100.memory_total_mib == 81559
    assert [(block.host, block.free) for block in h100.blocks] == [
        ("gpu-3", 3),
        ("gpu-2", 2),
        ("gpu-10", 2),
    ]


def test_a_gpu_in_mig_mode_counts_by_its_instances_and_one_without_any_as_itself():
    found = models(
        host(
            "a",
            gpu(0, "busy", mig_mode=True, mig=[part(0, "busy"), part(1), part(2, name=None)]),
            gpu(1, "drained", mig_mode=True),
        )
    )
    assert [(model.model, model.counts.total, model.counts.free) for model in found] == [
        ("H100 80G", 1, 0),
        ("H100 80G MIG 1g.10gb", 2, 1),
        ("H100 80G MIG instance", 1, 1),
    ]
    assert found[1].memory_total_mib == 9856


# Users


def test_a_user_is_summed_over_hosts():
    bob = holder("bob", 1, gpu_memory_used_mib=100, started_at=50.0)
    found = users(
        host("a", gpu(0, "busy", holders=[bob]), gpu(3, "idle", holders=[bob])),
        host("b", gpu(7, "busy", holders=[holder("bob", 1, started_at=40.0)])),
    )
    assert found == [
        UserTotals(
            user="bob",
            gpus=3,
            idle_gpus=1,
            processes=2,
            gpu_memory_used_mib=200,
            since=40.0,
            since_at_most=True,
            places=found[0].places,
        )
    ]
    assert [(place.host, place.gpus) for place in found[0].places] == [("a", [0, 3]), ("b", [7])]


def test_a_user_holds_something_since_the_first_that_was_seen_or_may_be():
    seen = holder("bob", 1, started_at=10.0, on_gpu_since=50.0)
    younger = holder("bob", 2, started_at=60.0)
    [found] = users(host("a", gpu(0, "busy", holders=[seen]), gpu(1, "busy", holders=[younger])))
    assert (found.since, found.since_at_most) == (50.0, False)
    older = holder("bob", 2, started_at=40.0)
    [found] = users(host("a", gpu(0, "busy", holders=[seen]), gpu(1, "busy", holders=[older])))
    assert (found.since, found.since_at_most) == (40.0, True)


def test_one_process_on_two_gpus_is_one_process():
    bob = holder("bob", 1, 2)
    found = users(host("a", gpu(0, "busy", holders=[bob]), gpu(1, "busy", holders=[bob])))
    assert (found[0].gpus, found[0].processes) == (2, 2)


def test_those_with_most_gpus_come_first_then_those_with_most_memory():
    found = users(
        host(
            "a",
            gpu(0, "busy", holders=[holder("little", 1, gpu_memory_used_mib=1)]),
            gpu(1, "busy", holders=[holder("unknown", 2)]),
            gpu(2, "busy", holders=[holder("much", 3, gpu_memory_used_mib=9)]),
            gpu(3, "busy", holders=[holder("many", 4)]),
            gpu(4, "busy", holders=[holder("many", 4)]),
        )
    )
    assert [user.user for user in found] == ["many", "much", "little", "unknown"]


def test_unknown_memory_and_start_are_not_zero():
    found = users(host("a", gpu(0, "busy", holders=[holder("bob", 1)])))
    assert (found[0].gpu_memory_used_mib, found[0].since) == (None, None)


def test_only_fresh_hosts_count_as_holding_now():
    last = gpu(0, "unknown", holders=[holder("bob", 1)])
    assert users(host("a", last, state="stale"), host("b", last, state="down")) == []


def test_holders_of_broken_and_drained_gpus_hold_them_still():
    bob = holder("bob", 1)
    found = users(host("a", gpu(0, "fault", holders=[bob]), gpu(1, "drained", holders=[bob])))
    assert found[0].gpus == 2


def test_a_display_server_holds_nothing_unless_it_takes_more_than_its_due():
    xorg = holder("root", 1, graphics_only=True)
    assert users(host("a", gpu(0, "free", holders=[xorg]))) == []
    with_bob = gpu(0, "busy", holders=[xorg, holder("bob", 2)])
    assert [user.user for user in users(host("a", with_bob))] == ["bob"]
    game = gpu(0, "busy", holders=[holder("gamer", 3, graphics_only=True)])
    assert [user.user for user in users(host("a", game))] == ["gamer"]


def test_memory_without_a_process_is_held_by_somebody_unknown():
    found = users(
        host(
            "a",
            gpu(0, "busy", memory_used_mib=61_000),
            gpu(1, "busy", holders=[holder(None, 5, gpu_memory_used_mib=1000)]),
        )
    )
    assert [(user.user, user.gpus, user.gpu_memory_used_mib) for user in found] == [
        (None, 2, 62_000)
    ]
    assert found[0].processes == 1


def test_three_instances_of_one_gpu_are_one_gpu():
    bob = [part(i, "busy", holders=[holder("bob", i, gpu_memory_used_mib=10)]) for i in range(3)]
    card = gpu(0, "busy", mig_mode=True, mig=[*bob, part(3)])
    found = users(host("a", card))
    assert (found[0].gpus, found[0].processes, found[0].gpu_memory_used_mib) == (1, 3, 30)


# Whatever the cluster

_holders = st.lists(
    st.builds(
        Holder,
        user=st.sampled_from(["amy", "bob", None]),
        pids=st.lists(st.integers(1, 5), max_size=3),
        gpu_memory_used_mib=st.one_of(st.none(), st.integers(0, 99)),
        graphics_only=st.booleans(),
    ),
    max_size=2,
)
_states = st.sampled_from(GPU_STATES)
_parts = st.lists(st.builds(part, st.integers(0, 6), _states, holders=_holders), max_size=3)
_gpus = st.builds(
    gpu,
    st.integers(0, 7),
    _states,
    uuid=st.one_of(st.none(), st.sampled_from("ABCDEF")),
    model=st.sampled_from(["H100 80G", "A100 40G"]),
    mig=_parts,
    holders=_holders,
)
_hosts = st.lists(
    st.builds(
        lambda gpus, state: (gpus, state),
        st.lists(_gpus, max_size=4, unique_by=lambda card: card.uuid or id(card)),
        st.sampled_from(HOST_STATES),
    ),
    max_size=4,
).map(lambda found: [host(f"h{i}", *gpus, state=s) for i, (gpus, s) in enumerate(found)])


@given(_hosts)
def test_all_sums_add_up(hosts):
    counted = counted_gpus(hosts)
    totals = cluster_totals(hosts, shares_of(hosts))
    states = Counter(card.state for _, card in counted)
    assert totals.gpus.total == len(counted) == sum(states.values())
    for state in GPU_STATES:
        assert getattr(totals.gpus, state) == states[state]
    by_state = (totals.hosts_fresh, totals.hosts_stale, totals.hosts_down, totals.hosts_never)
    assert sum(by_state) == totals.hosts == len(hosts)

    uuids = [card.uuid for _, card in counted if card.uuid is not None]
    assert len(uuids) == len(set(uuids))
    assert set(uuids) == {c.uuid for h in hosts for c in h.gpus if c.uuid is not None}

    rows = model_totals(shares_of(hosts))
    pieces = [piece for _, card in counted for piece in (card.mig or [card])]
    assert sum(row.counts.total for row in rows) == len(pieces)
    assert sum(row.counts.free for row in rows) == sum(p.state == "free" for p in pieces)
    for row in rows:
        assert sum(block.free for block in row.blocks) == row.counts.free
        assert all(block.free > 0 for block in row.blocks)
        assert sum(getattr(row.counts, state) for state in GPU_STATES) == row.counts.total

    fresh = {h.name for h in hosts if h.state == "fresh"}
    for user in user_totals(shares_of(hosts)):
        assert user.gpus == sum(len(place.gpus) for place in user.places)
        assert user.idle_gpus <= user.gpus
        assert {place.host for place in user.places} <= fresh


def test_a_lost_gpu_of_a_machine_under_two_names_counts_once_too():
    lost = gpu(1, "fault", uuid=None)
    hosts = [host(name, gpu(0, uuid="GPU-a"), lost) for name in ("one", "two")]
    counted = counted_gpus(hosts)
    assert [(found.host.name, found.gpu.index) for found in counted] == [("one", 0), ("one", 1)]


def test_how_many_processes_hold_memory_when_none_is_visible_is_not_known():
    (ghost,) = user_totals(shares_of([host("one", gpu(0, "busy", memory_used_mib=900))]))
    assert (ghost.user, ghost.gpus, ghost.processes) == (None, 1, None)
