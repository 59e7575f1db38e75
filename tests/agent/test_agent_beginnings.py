"""When a trouble began, for a sampler that only finds it: what the one before it saw."""

from __future__ import annotations

import msgspec
import pytest

from gpumon.agent.beginnings import Beginnings, complete_health
from gpumon.model import Gpu, HealthEvent

WALL = 1_700_000_000.0
GAP = 25.0
ECC = HealthEvent(
    kind="ecc",
    level="fault",
    text="2 uncorrected memory errors",
    first_at=WALL,
    last_at=WALL,
    count=2,
    source="driver",
    since=WALL,
)
FOUND = msgspec.structs.replace(ECC, first_at=None, last_at=None, since=None)
"""The same, as a sampler tells it that was started later."""


class Agent:
    def __init__(self) -> None:
        self.beginnings = Beginnings()
        self.wall = WALL

    def sample(self, now: float, *events: HealthEvent, uuid: str | None = "GPU-a") -> HealthEvent:
        """Return the first event as the agent tells it."""
        gpus = [Gpu(index=0, uuid=uuid, health=list(events))]
        more = self.beginnings.add(gpus, time=self.wall + now, now=now, longest_gap=GAP)
        complete_health(gpus, more)
        return gpus[0].health[0] if events else ECC


def times(event: HealthEvent) -> tuple[float | None, ...]:
    return event.first_at, event.last_at, event.since


def test_what_a_new_sampler_finds_began_when_the_one_before_saw_it():
    agent = Agent()
    agent.sample(0, ECC)
    for now in (5, 10, 15):
        assert times(agent.sample(now, FOUND)) == (WALL, WALL, WALL)


def test_a_count_that_has_grown_changed_nobody_knows_when():
    agent = Agent()
    agent.sample(0, ECC)
    more = msgspec.structs.replace(FOUND, count=3)
    assert times(agent.sample(5, more)) == (WALL, None, WALL)


@pytest.mark.parametrize("between", [[], [msgspec.structs.replace(ECC, ended_at=WALL + 4)]])
def test_what_was_over_in_between_began_anew(between):
    agent = Agent()
    agent.sample(0, ECC)
    agent.sample(5, *between)
    assert times(agent.sample(10, FOUND)) == (None, None, None)


def test_after_a_gap_nothing_is_known_of_before():
    agent = Agent()
    agent.sample(0, ECC)
    assert times(agent.sample(GAP + 1, FOUND)) == (None, None, None)


def test_another_gpu_or_one_without_uuid_gets_no_times():
    agent = Agent()
    agent.sample(0, ECC)
    assert times(agent.sample(5, FOUND, uuid="GPU-b")) == (None, None, None)
    agent.sample(10, ECC)
    assert times(agent.sample(15, FOUND, uuid=None)) == (None, None, None)


def test_a_clock_that_is_set_moves_the_times_with_it():
    agent = Agent()
    agent.sample(0, ECC)
    agent.wall += 3600
    assert times(agent.sample(5, FOUND)) == (WALL + 3600,) * 3


def test_what_a_sampler_says_itself_stands():
    agent = Agent()
    agent.sample(0, ECC)
    own = msgspec.structs.replace(ECC, last_at=WALL + 3, since=WALL + 3)
    assert times(agent.sample(5, own)) == (WALL, WALL + 3, WALL + 3)
