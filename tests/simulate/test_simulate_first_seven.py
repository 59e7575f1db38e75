"""The seven hosts of the demo show every case that matters, at whatever time somebody looks."""

from __future__ import annotations

from collections import Counter

import pytest

from gpumon.model import Gpu, HostSnapshot
from gpumon.simulate import SimulatedHost, host_names

# A month, at all hours of the day; the odd step keeps clear of any rhythm of the hosts.
TIMES = [1_760_000_000.0 + 19_001 * step for step in range(140)]


@pytest.fixture(scope="module")
def hosts() -> list[SimulatedHost]:
    return [SimulatedHost(name, number) for number, name in enumerate(host_names(7))]


@pytest.fixture(scope="module")
def moments(hosts: list[SimulatedHost]) -> list[list[HostSnapshot]]:
    return [[host.snapshot(now) for host in hosts] for now in TIMES]


def users(gpu: Gpu) -> set[str | None]:
    return {process.user for process in gpu.processes or []}


def is_idle(gpu: Gpu, at: float | None) -> bool:
    if gpu.unused_since is None or at is None or not gpu.memory_used_mib:
        return False
    return gpu.memory_used_mib > 1024 and at - gpu.unused_since > 1800


def test_a_busy_host_has_several_users_nearly_always(moments: list[list[HostSnapshot]]) -> None:
    people = [len(set().union(*map(users, snapshots[0].gpus))) for snapshots in moments]
    assert sum(1 for count in people if count >= 2) > 0.95 * len(people)
    in_use = [sum(1 for gpu in snapshots[0].gpus if gpu.processes) for snapshots in moments]
    assert sum(in_use) / len(in_use) > 7


def test_one_process_holds_several_gpus_nearly_always(moments: list[list[HostSnapshot]]) -> None:
    seen = []
    for snapshots in moments:
        pids = Counter(p.pid for gpu in snapshots[0].gpus for p in gpu.processes or [])
        seen.append(any(count > 1 for count in pids.values()))
    assert sum(seen) > 0.9 * len(seen)


def test_a_gpu_is_shared_by_two_people_now_and_then(moments: list[list[HostSnapshot]]) -> None:
    assert any(len(users(gpu)) > 1 for snapshots in moments for gpu in snapshots[0].gpus)


def test_somebody_holds_gpus_without_using_them(moments: list[list[HostSnapshot]]) -> None:
    for snapshots in moments:
        idle = [
            gpu for gpu in snapshots[1].gpus if gpu.processes and is_idle(gpu, snapshots[1].time)
        ]
        assert idle


def test_memory_is_held_without_a_visible_process(moments: list[list[HostSnapshot]]) -> None:
    ghosts = [
        any(is_idle(gpu, snapshots[1].time) and gpu.processes == [] for gpu in snapshots[1].gpus)
        for snapshots in moments
    ]
    assert sum(ghosts) > 0.95 * len(ghosts)


def test_one_gpu_is_lost_and_the_others_are_fine(moments: list[list[HostSnapshot]]) -> None:
    for snapshots in moments:
        lost, fine = snapshots[1].gpus[4], snapshots[1].gpus[:4] + snapshots[1].gpus[5:]
        assert lost.lost
        assert lost.error is not None
        assert "XID 79" in lost.error
        assert lost.utilization_percent is None
        assert lost.processes is None
        assert lost.uuid is not None
        assert not any(gpu.lost or gpu.error for gpu in fine)
        assert all(gpu.utilization_percent is not None for gpu in fine)


def test_a_host_is_mostly_free_and_says_since_when(moments: list[list[HostSnapshot]]) -> None:
    free = [[gpu for gpu in s[2].gpus[2:] if gpu.free_since is not None] for s in moments]
    assert min(map(len, free)) >= 2
    assert sum(map(len, free)) / len(free) > 4


def test_a_gpu_has_uncorrected_memory_errors(moments: list[list[HostSnapshot]]) -> None:
    assert {snapshots[2].gpus[5].ecc_volatile_uncorrected for snapshots in moments} == {2}


def test_mig_instances_are_held_and_free(moments: list[list[HostSnapshot]]) -> None:
    for snapshots in moments:
        parents = [gpu for gpu in snapshots[2].gpus if gpu.mig_mode]
        instances = [instance for gpu in parents for instance in gpu.mig]
        assert {instance.name for instance in instances} == {"1g.10gb", "2g.20gb", "3g.40gb"}
        assert any(instance.processes for instance in instances)
        assert any(instance.free_since is not None for instance in instances)
        for gpu in parents:
            assert gpu.utilization_percent is None
            assert gpu.unknown["utilization_percent"] == "not available under MIG"


def test_a_desktop_has_fans_and_a_display(moments: list[list[HostSnapshot]]) -> None:
    for snapshots in moments:
        first, second = snapshots[3].gpus
        assert first.fan_speed_percent is not None
        assert first.ecc_mode is None
        assert [p.program for p in first.processes or []][:2] == ["Xorg", "gnome-shell"]
        assert next(p.kinds for p in second.processes or []) == ["graphics"]


def test_unified_memory_is_unknown_and_not_zero(moments: list[list[HostSnapshot]]) -> None:
    for snapshots in moments:
        (gpu,) = snapshots[4].gpus
        assert gpu.unified_memory
        assert gpu.memory_total_mib is None
        assert gpu.memory_used_mib is None
    held = [s[4].gpus[0].processes for s in moments]
    assert any(held)
    assert not all(held)


def test_a_host_without_its_driver_counts_no_gpus_and_says_what_to_do(
    moments: list[list[HostSnapshot]],
) -> None:
    for snapshots in moments:
        assert snapshots[5].gpu_count is None
        assert snapshots[5].gpus == []
        assert "Reboot" in snapshots[5].errors[0]


def test_only_the_seventh_never_answers(hosts: list[SimulatedHost]) -> None:
    assert [host.answers for host in hosts] == [True] * 6 + [False]
