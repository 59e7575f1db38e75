"""Which job is on which GPUs when. A lane is a group of GPUs on which one job follows the next.

Time is cut into turns of equal length. In each turn at most one job runs; who, what and how long
comes from a generator seeded with the turn's number, so any moment can be asked for on its own.
"""

from __future__ import annotations

import random

import msgspec

from gpumon.simulate.jobs import Job, draw
from gpumon.simulate.works import FORGOTTEN, INVISIBLE, SERVING, TRAINING, Work

HOUR = 3600.0


class Style(msgspec.Struct, kw_only=True, frozen=True):
    """How the jobs of a lane follow each other."""

    works: tuple[Work, ...]
    turn_hours: tuple[float, float]
    occupied: float
    """Chance that there is a job in a turn."""
    gap: tuple[float, float]
    """Share of the turn that is free before the job, and again after it."""


BUSY = Style(works=TRAINING, turn_hours=(2, 16), occupied=0.97, gap=(0.002, 0.02))
MIXED = Style(works=TRAINING, turn_hours=(1, 7), occupied=0.65, gap=(0.01, 0.2))
QUIET = Style(works=TRAINING, turn_hours=(1, 5), occupied=0.12, gap=(0.05, 0.3))
SERVICE = Style(works=SERVING, turn_hours=(30, 60), occupied=1.0, gap=(0.001, 0.005))
HOARDED = Style(works=FORGOTTEN, turn_hours=(20, 50), occupied=1.0, gap=(0.001, 0.01))
GHOST = Style(works=INVISIBLE, turn_hours=(40, 60), occupied=1.0, gap=(0.001, 0.005))

LONGEST_TURN = 60 * HOUR

Place = tuple[int, int | None]
"""GPU index, and index of the MIG instance on it or None."""


class Lane:
    """A group of places and its endless row of jobs."""

    def __init__(
        self, key: str, style: Style, places: list[Place], *, people: int, share: float = 1.0
    ) -> None:
        """`key` seeds everything. `share` is the part of each GPU's memory that is the lane's."""
        self.places = places
        self.share = share
        self._key = key
        self._style = style
        self._people = people
        rng = generator(key)
        self._turn_seconds = HOUR * rng.uniform(*style.turn_hours)
        self._shift = rng.uniform(0.0, self._turn_seconds)
        # What was drawn last; drawing it again would give the same.
        self._drawn: tuple[int, Job | None] | None = None
        self._found: tuple[tuple[int, float], Job | None] | None = None

    def job(self, at: float) -> Job | None:
        """Return the job that runs at this moment, None in a gap."""
        job = self._job_of_turn(self._turn_at(at))
        return job if job is not None and job.start <= at < job.end else None

    def free_since(self, at: float, watched_since: float) -> float:
        """Return when the last job before `at` ended, at the earliest `watched_since`."""
        last = self._job_before(at, watched_since)
        return watched_since if last is None else max(last.end, watched_since)

    def unused_since(self, at: float, watched_since: float) -> float | None:
        """Return since when no job here has used its GPUs; None while one does."""
        job = self.job(at)
        if job is not None and job.works(at):
            return None
        if job is None or at < job.last_used:  # it is still loading
            job = self._job_before(at, watched_since)
        return watched_since if job is None else max(job.last_used, watched_since)

    def _job_before(self, at: float, watched_since: float) -> Job | None:
        """Return the last job that ended by `at`; None where `watched_since` came first."""
        turn = self._turn_at(at)
        job = self._job_of_turn(turn)
        if job is not None and job.end <= at:
            return job
        asked = turn, watched_since
        if self._found is None or self._found[0] != asked:
            self._found = asked, self._last_before(turn, watched_since)
        return self._found[1]

    def _last_before(self, turn: int, watched_since: float) -> Job | None:
        while self._begin(turn) > watched_since:
            turn -= 1
            job = self._draw(turn)
            if job is not None:
                return job
        return None

    def _turn_at(self, at: float) -> int:
        return int((at - self._shift) // self._turn_seconds)

    def _begin(self, turn: int) -> float:
        return turn * self._turn_seconds + self._shift

    def _job_of_turn(self, turn: int) -> Job | None:
        if self._drawn is None or self._drawn[0] != turn:
            self._drawn = (turn, self._draw(turn))
        return self._drawn[1]

    def _draw(self, turn: int) -> Job | None:
        rng = generator(f"{self._key}/{turn}")
        if rng.random() >= self._style.occupied:
            return None
        gap = self._style.gap
        return draw(
            rng,
            self._style.works,
            places=len(self.places),
            people=self._people,
            start=self._begin(turn) + self._turn_seconds * rng.uniform(*gap),
            end=self._begin(turn + 1) - self._turn_seconds * rng.uniform(*gap),
        )


def generator(key: str) -> random.Random:
    """Return a generator that gives the same numbers in every process for the same key."""
    return random.Random(key)  # noqa: S311  an invented cluster, no secret
