"""One invented job: who runs which program, and how it uses GPUs and memory over time."""

from __future__ import annotations

import math
import random

import msgspec

from gpumon.simulate.works import FIRST_UID, Work, user_name

LEAST_USE = 8.0
"""A job that works never drops to the 5 % at which the state rules begin to call a GPU unused."""


class Job(msgspec.Struct, kw_only=True, frozen=True):
    """One run of a program. Times are epoch seconds."""

    work: Work
    user: str
    uid: int
    pids: list[int]
    """One per GPU; the same number again and again where a single process holds them all."""
    start: float
    end: float
    loading_seconds: float
    stops_at: float | None
    memory_share: float
    use: float
    cpu: float
    rss_mib: int
    phase: float
    """Radians; sets the waves of one job apart from the next one's."""

    @property
    def last_used(self) -> float:
        """When it uses its GPUs for the last time."""
        return self.end if self.stops_at is None else min(self.stops_at, self.end)

    def works(self, at: float) -> bool:
        """Return whether it uses its GPUs: not while it loads, and not once it stopped."""
        return self.start + self.loading_seconds <= at < self.last_used

    def utilization(self, at: float, rank: int) -> float:
        """Return how much it uses of the GPU that is number `rank` of its own, in percent."""
        if not self.works(at):
            return 0.0
        age = at - self.start - self.loading_seconds
        phase = self.phase + 0.3 * rank
        wave = 0.6 * math.sin(at / 310.0 + phase) + 0.4 * math.sin(at / 47.0 + 5 * phase)
        value = self.use + self.work.swing * wave
        if self.work.pauses and age % 1500.0 > 1460.0:
            value *= 0.3
        return min(100.0, max(LEAST_USE, value * min(1.0, 0.2 + age / 30.0)))

    def memory_mib(self, at: float, capacity_mib: float) -> int:
        """Return what it holds of one GPU's `capacity_mib`: grows while loading, then stays."""
        loaded = min(1.0, 0.05 + (at - self.start) / self.loading_seconds)
        return max(300, int(capacity_mib * self.memory_share * loaded))

    def cpu_percent(self, at: float) -> float:
        """Return the use of the CPU by each of its processes, in percent of one core."""
        wave = 1.0 + 0.1 * math.sin(at / 23.0 + self.phase)
        return round(self.cpu * wave, 1)


def draw(
    rng: random.Random,
    works: tuple[Work, ...],
    *,
    places: int,
    people: int,
    start: float,
    end: float,
) -> Job:
    """Invent the job that runs from `start` to `end` on `places` GPUs, by one of `people`."""
    work = rng.choice(works)
    # The power favours small numbers: few people hold much, many hold little.
    person = int(people * rng.random() ** 1.5)
    first_pid = rng.randrange(3_000, 4_100_000)
    loading = rng.uniform(40.0, 150.0)
    return Job(
        work=work,
        user=user_name(person),
        uid=FIRST_UID + person,
        pids=[first_pid + (place if work.ranks else 0) for place in range(places)],
        start=start,
        end=end,
        loading_seconds=loading,
        stops_at=start + loading + rng.uniform(*work.works_for) if work.works_for else None,
        memory_share=rng.uniform(*work.memory),
        use=rng.uniform(*work.use),
        cpu=rng.uniform(*work.cpu),
        rss_mib=int(1024 * rng.uniform(*work.rss_gib)),
        phase=rng.uniform(0.0, 2 * math.pi),
    )
