from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import pytest

from gpumon.model import Gpu, HostSnapshot, Process, encode
from gpumon.simulate import SimulatedHost, host_names
from gpumon.text import clean

NOW = 1_763_000_000.0
HOUR = 3600.0


@pytest.fixture(scope="module")
def cluster() -> list[SimulatedHost]:
    return [SimulatedHost(name, number) for number, name in enumerate(host_names(300))]


@pytest.fixture(scope="module")
def readings(cluster: list[SimulatedHost]) -> list[HostSnapshot]:
    return [host.snapshot(NOW) for host in cluster]


def rows(snapshot: HostSnapshot) -> list[Process]:
    gpus = [process for gpu in snapshot.gpus for process in gpu.processes or []]
    return gpus + [p for gpu in snapshot.gpus for mig in gpu.mig for p in mig.processes or []]


def whole_gpus(readings: list[HostSnapshot]) -> list[Gpu]:
    return [gpu for s in readings for gpu in s.gpus if not gpu.lost and not gpu.mig_mode]


def test_names_sort_as_they_count() -> None:
    assert host_names(3) == ["gpu-01", "gpu-02", "gpu-03"]
    many = host_names(1000)
    assert many[0] == "gpu-0001"
    assert many == sorted(set(many))
    assert host_names(0) == []


def test_a_reading_depends_on_number_seed_and_time_alone() -> None:
    asked_once = SimulatedHost("a", 3, seed=5)
    asked_often = SimulatedHost("a", 3, seed=5)
    for step in range(50):
        asked_often.snapshot(NOW - step * HOUR)
    assert asked_once.snapshot(NOW) == asked_often.snapshot(NOW)
    assert asked_once.snapshot(NOW) != SimulatedHost("a", 3, seed=6).snapshot(NOW)
    assert asked_once.snapshot(NOW).gpus != SimulatedHost("a", 13, seed=5).snapshot(NOW).gpus


def test_the_order_of_the_questions_does_not_matter() -> None:
    # 70 days: over a reboot, and over many turns of each kind of work.
    times = [NOW + hour * HOUR for hour in range(0, 70 * 24, 6)]
    for number in range(7):
        forward, back = SimulatedHost("a", number), SimulatedHost("a", number)
        answers = [forward.snapshot(now) for now in times]
        assert [back.snapshot(now) for now in reversed(times)] == answers[::-1]


def test_another_process_sees_the_same_cluster() -> None:
    code = (
        "import hashlib; from gpumon.model import encode; from gpumon.simulate import *\n"
        f"data = b''.join(encode(SimulatedHost(n, i).snapshot({NOW})) for i, n in "
        "enumerate(host_names(8)))\nprint(hashlib.sha256(data).hexdigest())"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(answers) == 1


def test_everything_is_marked_as_simulated(readings: list[HostSnapshot]) -> None:
    assert all(snapshot.simulated for snapshot in readings)


def test_gpu_memory_adds_up(readings: list[HostSnapshot]) -> None:
    checked = 0
    for gpu in whole_gpus(readings):
        if gpu.memory_total_mib is None:
            continue
        assert gpu.memory_used_mib is not None
        assert gpu.memory_reserved_mib is not None
        assert gpu.memory_free_mib is not None
        total = gpu.memory_used_mib + gpu.memory_reserved_mib + gpu.memory_free_mib
        assert total == gpu.memory_total_mib
        assert gpu.memory_free_mib >= 0
        held = sum(p.gpu_memory_used_mib or 0 for p in gpu.processes or [])
        assert held <= gpu.memory_used_mib
        checked += 1
    assert checked > 1500


def test_those_who_share_a_gpu_use_no_more_than_all_of_it(readings: list[HostSnapshot]) -> None:
    shared = 0
    for gpu in whole_gpus(readings):
        uses = [p.sm_utilization_percent or 0.0 for p in gpu.processes or []]
        assert sum(uses) <= 100.1
        if uses:
            assert sum(uses) == pytest.approx(gpu.utilization_percent, abs=0.7)
        shared += sum(use > 0 for use in uses) > 1
    assert shared > 20


def test_instances_fit_their_gpu_and_jobs_their_instance(readings: list[HostSnapshot]) -> None:
    parents = [gpu for snapshot in readings for gpu in snapshot.gpus if gpu.mig_mode]
    assert len(parents) > 10
    for gpu in parents:
        assert gpu.memory_total_mib is not None
        assert sum(mig.memory_total_mib or 0 for mig in gpu.mig) <= gpu.memory_total_mib
        for mig in gpu.mig:
            assert mig.memory_free_mib is not None
            assert mig.memory_free_mib >= 0


def test_power_draw_stays_between_rest_and_limit(readings: list[HostSnapshot]) -> None:
    for gpu in whole_gpus(readings):
        assert gpu.power_draw_watts is not None
        assert gpu.power_draw_watts > 0
        if gpu.enforced_power_limit_watts is not None:
            assert gpu.power_draw_watts <= gpu.enforced_power_limit_watts
        assert gpu.temperature_celsius is not None
        assert 25 <= gpu.temperature_celsius <= 91


def test_a_working_gpu_draws_more_power_than_a_free_one(readings: list[HostSnapshot]) -> None:
    gpus = [gpu for gpu in whole_gpus(readings) if gpu.name == "NVIDIA H100 80GB HBM3"]
    at_work = [g.power_draw_watts or 0 for g in gpus if (g.utilization_percent or 0) > 80]
    free = [g.power_draw_watts or 0 for g in gpus if g.free_since is not None]
    assert len(at_work) > 100
    assert len(free) > 20
    assert min(at_work) > 2 * max(free)


def test_no_process_is_older_than_its_host(cluster: list[SimulatedHost]) -> None:
    for host in cluster[:40]:
        for week in range(30):
            snapshot = host.snapshot(NOW + week * 7 * 24 * HOUR)
            assert snapshot.time is not None
            assert snapshot.host.uptime_seconds is not None
            boot = snapshot.time - snapshot.host.uptime_seconds
            for process in rows(snapshot):
                assert process.started_at is not None
                assert process.started_at >= boot
                assert process.runtime_seconds == snapshot.time - process.started_at
                assert process.runtime_seconds >= 0


def test_the_host_has_room_for_its_processes(readings: list[HostSnapshot]) -> None:
    for snapshot in readings:
        info = snapshot.host
        assert info.memory_total_mib is not None
        assert info.memory_available_mib is not None
        assert 0 < info.memory_available_mib < info.memory_total_mib
        assert info.cpu_percent is not None
        assert 0 < info.cpu_percent <= 100


def test_since_when_agrees_with_what_is_held(readings: list[HostSnapshot]) -> None:
    for snapshot in readings:
        for gpu in snapshot.gpus:
            if gpu.lost or gpu.mig_mode:
                continue
            compute = [p for p in gpu.processes or [] if "compute" in p.kinds]
            if compute or (gpu.memory_used_mib or 0) > 2000:
                assert gpu.free_since is None
            else:
                assert gpu.free_since is not None
                assert gpu.free_since <= (snapshot.time or 0)
            assert (gpu.unused_since is None) == ((gpu.utilization_percent or 0) > 5)


def test_a_field_without_a_value_says_why(readings: list[HostSnapshot]) -> None:
    told = ("utilization_percent", "memory_used_mib", "fan_speed_percent", "ecc_mode", "mig_mode")
    for snapshot in readings:
        for gpu in snapshot.gpus:
            for name in told[:2] if gpu.lost else told:
                assert (getattr(gpu, name) is None) == (name in gpu.unknown), name


def test_values_move_but_do_not_jump(cluster: list[SimulatedHost]) -> None:
    host = cluster[0]
    curve = [host.snapshot(NOW + step).gpus[0].utilization_percent for step in range(0, 3600, 5)]
    values = [value for value in curve if value is not None]
    assert len(values) == len(curve)
    assert len(set(values)) > 5
    small = [abs(b - a) <= 5 for a, b in pairwise(values)]
    assert sum(small) > 0.97 * len(small)


def test_within_one_sample_interval_nothing_changes_but_the_age(
    cluster: list[SimulatedHost],
) -> None:
    first = cluster[0].snapshot(NOW)
    assert first.sample_age_seconds is not None
    assert 0 <= first.sample_age_seconds < 5
    later = cluster[0].snapshot(NOW - first.sample_age_seconds + 4.9)
    assert later.sample_age_seconds == pytest.approx(4.9, abs=0.01)
    assert later.time == pytest.approx(first.time, abs=0.01)
    assert [g.processes and g.processes[0].pid for g in later.gpus] == [
        g.processes and g.processes[0].pid for g in first.gpus
    ]


def test_jobs_start_and_end_over_the_hours(cluster: list[SimulatedHost]) -> None:
    days = [{p.pid for p in rows(cluster[0].snapshot(NOW + 24 * HOUR * d))} for d in range(5)]
    for today, tomorrow in pairwise(days):
        assert today
        assert not today & tomorrow


def test_memory_grows_while_a_job_loads(cluster: list[SimulatedHost]) -> None:
    host = cluster[0]
    process = rows(host.snapshot(NOW))[0]
    assert process.started_at is not None

    def memory_at(age: float) -> int:
        snapshot = host.snapshot((process.started_at or 0) + age)
        found = [p.gpu_memory_used_mib for p in rows(snapshot) if p.pid == process.pid]
        return found[0] or 0

    assert memory_at(10) < memory_at(300) == memory_at(400)


def test_a_large_cluster_is_mostly_well(
    cluster: list[SimulatedHost], readings: list[HostSnapshot]
) -> None:
    silent = sum(1 for host in cluster if not host.answers)
    assert 2 <= silent <= 9
    gpus = [gpu for snapshot in readings for gpu in snapshot.gpus]
    broken = [gpu for gpu in gpus if gpu.lost or gpu.ecc_volatile_uncorrected]
    assert 2 <= len(broken) <= 0.02 * len(gpus)
    assert any(snapshot.sampler_error for snapshot in readings)
    at_work = sum(1 for gpu in gpus if (gpu.utilization_percent or 0) > 5)
    assert 0.4 * len(gpus) < at_work < 0.9 * len(gpus)


def test_a_stuck_host_shows_old_values_and_says_so(readings: list[HostSnapshot]) -> None:
    stuck = [snapshot for snapshot in readings if snapshot.sampler_error is not None]
    for snapshot in stuck:
        assert snapshot.sample_age_seconds is not None
        assert snapshot.sample_age_seconds >= 900
        assert snapshot.time == pytest.approx(NOW - snapshot.sample_age_seconds, abs=0.01)
    others = [s.sample_age_seconds or 0 for s in readings if s.sampler_error is None]
    assert max(others) < 5


def test_more_hosts_have_more_people(readings: list[HostSnapshot]) -> None:
    few = {process.user for snapshot in readings[:7] for process in rows(snapshot)}
    many = {process.user for snapshot in readings for process in rows(snapshot)}
    assert len(few) >= 8
    assert len(many) >= 60


def test_a_pid_belongs_to_one_user_of_a_host(readings: list[HostSnapshot]) -> None:
    for snapshot in readings:
        owners = {(process.pid, process.user, process.started_at) for process in rows(snapshot)}
        assert len({pid for pid, _, _ in owners}) == len(owners)


def test_uuids_and_bus_ids_are_unique(readings: list[HostSnapshot]) -> None:
    uuids = [gpu.uuid for snapshot in readings for gpu in snapshot.gpus]
    uuids += [mig.uuid for s in readings for gpu in s.gpus for mig in gpu.mig]
    assert len(set(uuids)) == len(uuids)
    for snapshot in readings:
        assert len({gpu.pci_bus_id for gpu in snapshot.gpus}) == len(snapshot.gpus)


def test_all_text_is_as_clean_as_an_agents(readings: list[HostSnapshot]) -> None:
    text = encode(readings).decode()
    assert text.isascii()
    for process in (process for snapshot in readings for process in rows(snapshot)):
        for value in (process.user, process.program, process.command):
            assert value == clean(value)
            assert value


def test_a_display_does_not_make_a_gpu_held() -> None:
    desktop = SimulatedHost("desk", 3)
    gpus = [desktop.snapshot(NOW + hour * HOUR).gpus[0] for hour in range(100)]
    display_only = [gpu for gpu in gpus if gpu.free_since is not None]
    assert display_only
    for gpu in display_only:
        assert gpu.processes
        assert gpu.memory_used_mib is not None
        assert 0 < gpu.memory_used_mib < 512


@pytest.mark.parametrize("now", [0.0, 5.0, 4e9])
def test_any_time_can_be_asked_for(now: float) -> None:
    for number in range(20):
        snapshot = SimulatedHost("x", number).snapshot(now)
        assert snapshot.time is not None
        assert snapshot.time <= now
