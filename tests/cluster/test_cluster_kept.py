"""A picture that keeps parts of the last one says what one made from nothing says, all the time."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
from cluster_tools import Clock, a_config, a_gpu, a_process, a_snapshot, an_entry

from gpumon.cluster.fleet import Fleet
from gpumon.cluster.kept import STEADY_SECONDS
from gpumon.cluster.sources.base import Reading
from gpumon.cluster.status import ClusterStatus
from gpumon.cluster.view import build
from gpumon.config import Config, Limits
from gpumon.model import Gpu, HealthEvent, HostSnapshot, MigInstance

NAMES = [f"h{number}" for number in range(6)]
STEP = 10.0


class Hour:
    """Six hosts to which things happen, by a clock that is turned by hand."""

    def __init__(self, seed: int) -> None:
        self.luck = random.Random(seed)
        self.clock = Clock()
        self.wall_step = 0.0
        self.config = a_config(*(an_entry(name, 1) for name in NAMES), poll_interval=STEP)
        self.fleet = Fleet(self.config, monotonic=self.clock.monotonic, wall=self.wall)
        self.readings: dict[str, Reading] = {}
        self.held = {name: [True, False] for name in NAMES}
        self.silent: dict[str, int] = {}
        self.seen: Counter[str] = Counter()
        self.kept = 0

    def wall(self) -> float:
        return self.clock.wall() + self.wall_step

    def gpus(self, name: str) -> list[Gpu]:
        """Two GPUs of a host, in a mood: most often the same as before."""
        luck, found = self.luck, []
        for index in range(2):
            if luck.random() < 0.005:
                self.held[name][index] = not self.held[name][index]
            gpu = a_gpu(index, uuid=f"GPU-{name}-{index}")
            if self.held[name][index]:
                used = 90 if luck.random() < 0.002 else 0
                process = a_process(user=luck.choice(["ada", "bob", None]))
                gpu = a_gpu(
                    index, uuid=gpu.uuid, processes=[process], utilization_percent=used,
                    memory_used_mib=9000,
                )  # fmt: skip
            found.append(gpu)
        event = luck.random()
        if event < 0.01:
            fault = HealthEvent(
                kind="xid", level="fault", text="XID 79", first_at=None, last_at=None, count=1,
                source="driver",
            )  # fmt: skip
            found[0] = msgspec.structs.replace(found[0], health=[fault])
        elif event < 0.02:
            part = MigInstance(index=0, uuid=f"MIG-{name}", processes=[], memory_used_mib=3)
            found[1] = msgspec.structs.replace(found[1], mig_mode=True, mig=[part])
        elif event < 0.03:
            found.pop()
        elif event < 0.04:  # a GPU of another host, or the same machine under two names
            found[1] = a_gpu(1, uuid="GPU-h0-1")
        return found

    def news(self, name: str) -> Reading:
        fields = {"sampler_error": "late"} if self.luck.random() < 0.02 else {}
        snapshot = a_snapshot(*self.gpus(name), time=self.wall(), **fields)
        return Reading.of(msgspec.structs.replace(snapshot, hostname=name))

    def poll(self, name: str) -> None:
        now, luck = self.clock.seconds, self.luck
        if self.silent.get(name, 0) > 0:
            self.silent[name] -= 1
            if luck.random() < 0.8:
                self.fleet.failed(name, "refused", f"refused: {luck.randrange(2)}", asked=now)
            return
        if luck.random() < 0.01:
            self.silent[name] = luck.choice([1, 5, 45])
        known = self.readings.get(name)
        if known is None or luck.random() < 0.7:
            self.readings[name] = known = self.news(name)
        elif known.summary.time is not None:
            known = known.aged(max(0.0, self.wall() - known.summary.time), None)
        self.fleet.answered(name, known, asked=now)
        self.fleet.planned(name, now + STEP)

    def reconfigure(self) -> None:
        luck = self.luck
        hosts = [
            msgspec.structs.replace(entry, drained=luck.random() < 0.2)
            for entry in self.config.hosts
            if luck.random() < 0.9
        ]
        limits = Limits(idle_minutes=luck.choice([5.0, 10.0]))
        self.fleet.reconfigure(msgspec.structs.replace(self.config, hosts=hosts, limits=limits))

    def step(self) -> None:
        self.clock.move(STEP / 2 + 2.5 * self.luck.random())
        if self.luck.random() < 0.005:
            self.wall_step += self.luck.choice([-3600.0, 0.2, 40.0])
        if self.luck.random() < 0.01:
            self.reconfigure()
        for record in self.fleet.records():
            if self.luck.random() < 0.8:
                self.poll(record.entry.name)

    def compare(self) -> None:
        before = {} if self.fleet._status is None else rows(self.fleet._status)
        ours = self.fleet.status()
        config: Config = self.fleet._config
        nothing = build(
            self.fleet.records(),
            config=config,
            now=self.fleet.now(),
            revision=ours.revision,
            instance=ours.instance,
        )
        same(msgspec.to_builtins(ours), msgspec.to_builtins(nothing), "")
        self.kept += sum(before.get(name) is gpus for name, gpus in rows(ours).items())
        self.seen.update(host.state for host in ours.hosts)
        self.seen.update(gpu.state for host in ours.hosts for gpu in host.gpus)


def rows(status: ClusterStatus) -> dict[str, list]:
    return {host.name: host.gpus for host in status.hosts}


def same(one: object, other: object, where: str) -> None:
    """Compare all the way down; times may differ by what the clocks may drift apart."""
    if isinstance(one, dict) and isinstance(other, dict):
        assert one.keys() == other.keys(), where
        for key, value in one.items():
            same(value, other[key], f"{where}.{key}")
    elif isinstance(one, list) and isinstance(other, list):
        assert len(one) == len(other), where
        for number, value in enumerate(one):
            same(value, other[number], f"{where}[{number}]")
    elif isinstance(one, float) and isinstance(other, float):
        assert abs(one - other) <= STEADY_SECONDS + 1e-6, where
    else:
        assert one == other, where


def test_over_an_hour_of_events_what_is_kept_is_what_would_be_made_anew():
    hour = Hour(seed=4)
    steps = 0
    while hour.clock.seconds < 1000.0 + 3600.0:
        hour.step()
        hour.compare()
        steps += 1
    # Something of everything was in it, and much was kept.
    assert {"free", "busy", "idle", "fault", "unknown", "drained"} <= hour.seen.keys()
    assert {"fresh", "stale", "down"} <= hour.seen.keys()
    assert hour.kept > steps


def one_host(**fields: object) -> tuple[Clock, Fleet]:
    clock = Clock()
    config = a_config(an_entry("one", 1), an_entry("two", 2), **fields)
    return clock, Fleet(config, monotonic=clock.monotonic, wall=clock.wall)


def answer(fleet: Fleet, clock: Clock, host: str, *gpus: Gpu) -> HostSnapshot:
    snapshot = a_snapshot(*gpus, time=clock.wall())
    fleet.answered(host, Reading.of(snapshot), asked=clock.seconds)
    return snapshot


def test_a_host_that_told_nothing_new_keeps_its_rows_and_the_others_get_new_ones():
    clock, fleet = one_host()
    answer(fleet, clock, "one", a_gpu(0))
    answer(fleet, clock, "two", a_gpu(1))
    before = rows(fleet.status())
    clock.move(4)
    answer(fleet, clock, "two", a_gpu(1, temperature_celsius=50))
    after = rows(fleet.status())
    assert after["one"] is before["one"]
    assert after["two"] is not before["two"]
    assert after["two"][0].temperature_celsius == 50


def test_a_host_that_falls_silent_grows_stale_and_its_gpus_unknown_on_time():
    clock, fleet = one_host(poll_interval=5.0, rpc_timeout=2.0)
    answer(fleet, clock, "one", a_gpu(0))
    states = []
    for _ in range(16):
        clock.move(2.5)
        host = fleet.status().hosts[0]
        states.append((host.state, host.gpus[0].state, host.age_seconds))
    # Stale once two intervals and the deadline have gone by, 12 s.
    assert states[3] == ("fresh", "free", 10.0)
    assert states[4] == ("stale", "unknown", 12.5)
    clock.move(280)
    assert fleet.status().hosts[0].state == "down"


def test_a_gpu_becomes_idle_with_the_sample_that_makes_thirty_minutes():
    clock, fleet = one_host(poll_interval=60.0)
    busy = a_gpu(0, processes=[a_process()], memory_used_mib=9000)
    states = []
    for _ in range(32):
        answer(fleet, clock, "one", busy)
        states.append(fleet.status().hosts[0].gpus[0].state)
        clock.move(60)
    assert states == ["busy"] * 30 + ["idle"] * 2


def test_a_wall_clock_that_is_set_moves_the_times_of_kept_rows():
    clock, fleet = one_host()
    step = 0.0
    fleet._wall = lambda: clock.wall() + step
    answer(fleet, clock, "one", a_gpu(0))
    clock.move(4)
    before = fleet.status().hosts[0].gpus[0].since
    step = 3600.0
    clock.move(4)
    after = fleet.status().hosts[0].gpus[0].since
    assert before is not None
    assert after is not None
    assert abs(after - before - 3600.0) < 1e-3


def test_another_configuration_holds_for_rows_that_would_else_be_kept():
    clock, fleet = one_host()
    answer(fleet, clock, "one", a_gpu(0, utilization_percent=8))

    def state_with(**fields: object) -> str:
        entry = msgspec.structs.replace(an_entry("one", 1), drained=fields.pop("drained", False))
        fleet.reconfigure(a_config(entry, **fields))
        clock.move(1)
        return fleet.status().hosts[0].gpus[0].state

    assert state_with() == "busy"
    assert state_with(drained=True) == "drained"
    assert state_with() == "busy"
    assert state_with(limits=Limits(used_percent=10.0)) == "free"


def test_a_missing_gpu_is_not_kept_once_another_host_lists_it():
    clock, fleet = one_host()
    answer(fleet, clock, "one", a_gpu(0), a_gpu(1))
    clock.move(4)
    answer(fleet, clock, "one", a_gpu(0))
    assert [gpu.state for gpu in fleet.status().hosts[0].gpus] == ["free", "fault"]
    clock.move(4)
    answer(fleet, clock, "two", a_gpu(1))
    assert [gpu.state for gpu in fleet.status().hosts[0].gpus] == ["free"]


def test_a_host_that_went_leaves_nothing_behind():
    clock, fleet = one_host()
    answer(fleet, clock, "one", a_gpu(0))
    fleet.status()
    fleet.reconfigure(a_config(an_entry("two", 2)))
    for _ in range(2):
        clock.move(4)
        fleet.status()
    kept = fleet._kept
    assert {*kept._rows, *kept._old_rows, *kept._shares, *kept._old_shares} == {"two"}
