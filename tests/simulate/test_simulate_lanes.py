from __future__ import annotations

from itertools import pairwise

import pytest

from gpumon.simulate.jobs import LEAST_USE, Job
from gpumon.simulate.lanes import (
    BUSY,
    GHOST,
    HOARDED,
    LONGEST_TURN,
    MIXED,
    QUIET,
    SERVICE,
    Lane,
    Style,
)

NOW = 1_763_000_000.0
DAY = 86400.0
STYLES = [BUSY, MIXED, QUIET, SERVICE, HOARDED, GHOST]
NAMES = ["busy", "mixed", "quiet", "service", "hoarded", "ghost"]


def lane_of(style: Style) -> Lane:
    return Lane("test", style, [(0, None), (1, None)], people=20)


def jobs_of(lane: Lane, days: int = 30) -> list[Job]:
    found: list[Job] = []
    for minute in range(0, days * 24 * 60, 10):
        job = lane.job(NOW + 60.0 * minute)
        if job is not None and (not found or found[-1] != job):
            found.append(job)
    return found


@pytest.mark.parametrize("style", STYLES, ids=NAMES)
def test_jobs_follow_each_other_and_never_overlap(style: Style) -> None:
    jobs = jobs_of(lane_of(style))
    assert len(jobs) > 5
    for job in jobs:
        assert 0 < job.end - job.start <= LONGEST_TURN
    for job, following in pairwise(jobs):
        assert job.end <= following.start


@pytest.mark.parametrize("style", STYLES, ids=NAMES)
def test_a_job_is_at_zero_or_clearly_at_work(style: Style) -> None:
    for job in jobs_of(lane_of(style))[:20]:
        for step in range(500):
            at = job.start + (job.end - job.start) * step / 500
            use = job.utilization(at, rank=1)
            assert (LEAST_USE <= use <= 100) if job.works(at) else use == 0


def test_a_loading_job_does_not_end_the_run_of_disuse() -> None:
    lane = lane_of(BUSY)
    before, job = jobs_of(lane)[2:4]
    loading = job.start + 1
    assert lane.unused_since(loading, NOW - DAY) == before.last_used
    assert lane.unused_since(job.start + job.loading_seconds, NOW - DAY) is None
    assert lane.free_since(before.end + 1, NOW - DAY) == before.end


def test_a_job_that_stopped_is_unused_since_then() -> None:
    lane = lane_of(HOARDED)
    job = jobs_of(lane)[1]
    assert job.stops_at is not None
    assert job.stops_at < job.end
    assert lane.unused_since(job.end - 1, NOW - DAY) == job.stops_at
    # Also when it has gone: the GPU was not used at its end.
    assert lane.unused_since(job.end, NOW - DAY) == job.stops_at
    assert lane.free_since(job.end, NOW - DAY) == job.end


def test_nobody_knows_what_was_before_the_watch_began() -> None:
    lane = lane_of(QUIET)
    gap = next(at for at in range(int(NOW), int(NOW + 30 * DAY), 600) if lane.job(at) is None)
    at = float(gap)
    assert lane.free_since(at, at) == at
    last_end = lane_of(QUIET).free_since(at, at - 365 * DAY)
    assert at - 365 * DAY < last_end < at
    assert lane.free_since(at, at - 365 * DAY) == last_end
    assert lane.free_since(at, at) == at
    assert lane.unused_since(at, at) == at
