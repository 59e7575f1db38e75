"""What the agent says of the last half hour: since when, and how much, from its samples alone."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from gpumon.agent.usage import Usage, complete
from gpumon.config import Limits
from gpumon.model import Gpu, HealthEvent, HostSnapshot, MigInstance, Process
from gpumon.summary import summarize

INTERVAL = 5.0
WALL = 1_700_000_000.0
"""The wall clock at monotonic 0."""


def gpu(utilization: int | None, *, held: bool = False, uuid: str = "GPU-a") -> Gpu:
    return Gpu(
        index=0,
        uuid=uuid,
        utilization_percent=utilization,
        memory_total_mib=81559,
        memory_used_mib=40000 if held else 0,
        memory_reserved_mib=551,
        processes=[Process(pid=1, kinds=["compute"])] if held else [],
    )


class Agent:
    """Feeds samples on a clock of its own."""

    def __init__(self) -> None:
        self.usage = Usage(INTERVAL, Limits())
        self.now = 0.0

    def sample(self, *gpus: Gpu, wall: float = WALL) -> HostSnapshot:
        """Take one sample and let the interval pass."""
        rows = [msgspec.structs.replace(one) for one in gpus]
        snapshot = HostSnapshot(time=wall + self.now, gpus=rows)
        self.summary = summary = summarize(snapshot)
        complete(snapshot, summary, self.usage.add(summary, self.now))
        for whole, short in zip(snapshot.gpus, summary.gpus, strict=True):
            assert (whole.unused_since, whole.free_since, whole.watched_since) == (
                short.unused_since,
                short.free_since,
                short.watched_since,
            )
        self.now += INTERVAL
        return snapshot

    def samples(self, gpus: Iterable[Gpu]) -> Gpu:
        last = [self.sample(one).gpus[0] for one in gpus]
        return last[-1]


@pytest.fixture
def agent() -> Agent:
    return Agent()


def test_a_run_of_unused_samples_began_with_the_first_of_them(agent: Agent) -> None:
    agent.sample(gpu(90, held=True))
    last = agent.samples(gpu(0, held=True) for _ in range(10))
    assert last.unused_since == WALL + 5
    assert last.free_since is None
    assert last.watched_since == WALL


def test_one_used_sample_ends_the_run(agent: Agent) -> None:
    agent.samples(gpu(0, held=True) for _ in range(10))
    assert agent.samples([gpu(95, held=True)]).unused_since is None
    assert agent.samples([gpu(0, held=True)]).unused_since == WALL + 55


def test_a_sample_that_does_not_know_ends_the_run(agent: Agent) -> None:
    agent.samples(gpu(0, held=True) for _ in range(10))
    assert agent.samples([gpu(None, held=True)]).unused_since is None
    assert agent.samples([gpu(0, held=True)]).unused_since == WALL + 55


def test_a_gap_ends_the_run_though_both_ends_are_unused(agent: Agent) -> None:
    agent.samples(gpu(0, held=True) for _ in range(10))
    agent.now += agent.usage.longest_gap() + 1
    last = agent.samples([gpu(0, held=True)])
    assert last.unused_since == last.watched_since == WALL + agent.now - INTERVAL


def test_a_sampler_that_was_replaced_in_time_ends_nothing(agent: Agent) -> None:
    agent.samples(gpu(0, held=True) for _ in range(10))
    agent.now += agent.usage.longest_gap() - INTERVAL
    assert agent.samples([gpu(0, held=True)]).unused_since == WALL


def test_free_since_is_when_the_last_holder_left(agent: Agent) -> None:
    agent.samples(gpu(0, held=True) for _ in range(3))
    assert agent.samples(gpu(0) for _ in range(4)).free_since == WALL + 15


def test_a_stepped_wall_clock_moves_no_run(agent: Agent) -> None:
    agent.samples(gpu(0) for _ in range(10))
    snapshot = agent.sample(gpu(0), wall=WALL + 3600)
    assert snapshot.time is not None
    assert snapshot.gpus[0].free_since is not None
    assert snapshot.time - snapshot.gpus[0].free_since == 50


def test_a_mig_instance_has_runs_of_its_own(agent: Agent) -> None:
    def parent() -> Gpu:
        instances = [
            MigInstance(
                index=index,
                uuid=f"MIG-{index}",
                memory_total_mib=9728,
                memory_used_mib=0,
                memory_reserved_mib=0,
                processes=[Process(pid=1, kinds=["compute"])] if index else [],
            )
            for index in range(2)
        ]
        return Gpu(index=0, uuid="GPU-a", mig_mode=True, mig=instances)

    agent.sample(parent())
    free, held = agent.sample(parent()).gpus[0].mig
    assert (free.free_since, held.free_since) == (WALL, None)


def test_the_mean_needs_the_whole_time_watched(agent: Agent) -> None:
    before = agent.samples(gpu(50, held=True) for _ in range(53))
    assert before.utilization_5m_percent is None
    after = agent.samples(gpu(50, held=True) for _ in range(7))
    assert after.utilization_5m_percent == 50
    assert after.utilization_30m_percent is None


def test_the_mean_is_of_the_last_five_and_thirty_minutes(agent: Agent) -> None:
    last = agent.samples(gpu(100, held=True) for _ in range(300))
    last = agent.samples(gpu(0, held=True) for _ in range(60))
    assert last.utilization_5m_percent == 0
    assert last.utilization_30m_percent == pytest.approx(100 * 300 / 360, abs=0.5)


def test_unknown_samples_are_left_out_of_the_mean_and_not_counted_as_zero(agent: Agent) -> None:
    values = [80 if number % 12 else None for number in range(60)]
    last = agent.samples(gpu(value, held=True) for value in values)
    assert last.utilization_5m_percent == 80


def test_of_unknown_samples_alone_there_is_no_mean(agent: Agent) -> None:
    last = agent.samples(gpu(None, held=True) for _ in range(400))
    assert (last.utilization_5m_percent, last.utilization_30m_percent) == (None, None)


def test_a_mean_with_too_many_unknown_samples_is_unknown(agent: Agent) -> None:
    values = [80 if number % 2 else None for number in range(60)]
    assert agent.samples(gpu(value, held=True) for value in values).utilization_5m_percent is None


def test_what_is_kept_is_bounded_and_forgets_gpus_that_are_gone(agent: Agent) -> None:
    for number in range(1000):
        agent.sample(gpu(50, uuid=f"GPU-{number // 100}"))
    kept = agent.usage._sums
    assert len(agent.usage._times) == 361
    assert len(kept) <= 5
    assert {len(sums.covered) for sums in kept.values()} == {361}


def test_a_host_whose_driver_is_gone_gives_no_means(agent: Agent) -> None:
    agent.samples(gpu(50) for _ in range(60))
    for _ in range(60):
        assert agent.sample().gpus == []
    assert agent.samples([gpu(50)]).utilization_5m_percent is None


# Who holds it, and since when it is broken


def test_the_agent_tells_since_when_who_is_there_holds_it(agent: Agent) -> None:
    agent.samples(gpu(0) for _ in range(4))
    last = agent.samples(gpu(0, held=True) for _ in range(3))
    assert (last.held_since, last.watched_since) == (WALL + 20, WALL)
    assert agent.samples([gpu(0)]).held_since is None


def test_the_agent_tells_who_was_seen_to_come(agent: Agent) -> None:
    """At the earliest after the last sample without it, however old the process is."""
    held = gpu(0, held=True)
    held.processes = [Process(pid=1, kinds=["compute"], user="bob", started_at=WALL - 25_000)]
    agent.samples([gpu(0), held, held])
    assert [holder.on_gpu_since for holder in agent.summary.gpus[0].holders] == [WALL]


def test_the_agent_tells_since_when_a_gpu_is_broken(agent: Agent) -> None:
    lost = Gpu(index=0, uuid="GPU-a", lost=True, error="lost")
    agent.samples([gpu(0), lost])
    assert agent.samples([lost]).fault_since == WALL + 5
    assert agent.samples([gpu(0)]).fault_since is None


def test_what_was_broken_at_the_first_look_is_told_as_old_as_the_watch(agent: Agent) -> None:
    lost = Gpu(index=0, uuid="GPU-a", lost=True, error="lost")
    last = agent.samples([lost, lost, lost])
    assert last.fault_since == last.watched_since == WALL


def an_event(since: float | None, kind: str = "xid") -> HealthEvent:
    return HealthEvent(
        kind=kind,
        level="fault",
        text="broken",
        first_at=since,
        last_at=since,
        count=1,
        source="kernel log",
        since=since,
    )


@pytest.mark.parametrize(
    ("events", "slowdown", "since"),
    [
        ([an_event(WALL - 600)], [], WALL - 600),
        ([an_event(WALL - 600), an_event(WALL - 900, "ecc")], [], WALL - 900),
        ([an_event(WALL - 600), an_event(None, "ecc")], [], WALL),
        ([an_event(WALL - 600)], ["hw_slowdown"], WALL),
    ],
    ids=["known", "the first of two", "one unknown", "slowdown beside it"],
)
def test_health_may_know_of_a_fault_from_before_the_watch(
    agent: Agent, events: list[HealthEvent], slowdown: list[str], since: float
) -> None:
    """Where something else is broken too, of which nobody knows since when, it is at least."""
    broken = gpu(0)
    broken.health, broken.clock_event_reasons = events, slowdown
    last = agent.samples([broken, broken])
    assert last.fault_since == since
    assert last.watched_since == WALL
