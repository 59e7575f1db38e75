"""When the troubles of the GPUs began, kept over restarts of the sampler.

A new sampler that remembers nothing finds a trouble that goes on, and can't say when it began. The
one before it may have seen that, and the agent has heard it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpumon.model import Gpu, HealthEvent

Key = tuple[str, str, "int | None"]
"""UUID of the GPU, kind and code of the event."""


class Times(msgspec.Struct, frozen=True):
    """Of one event that goes on. Times are epoch seconds; None: nobody knows."""

    count: int
    first_at: float | None
    last_at: float | None
    since: float | None


class Beginnings:
    """What was heard of the events that go on. A sample without one of them forgets it."""

    def __init__(self) -> None:
        self._known: dict[Key, Times] = {}
        self._heard = 0.0
        self._to_wall = 0.0

    def add(
        self, gpus: Iterable[Gpu], *, time: float | None, now: float, longest_gap: float
    ) -> dict[Key, Times]:
        """Take in a sample of `now` (monotonic), `time` by the host's clock.

        Returns the times of those events of which it says less than was known before.
        """
        if time is None:
            return {}
        known = self._known if now - self._heard <= longest_gap else {}
        # A clock that was set moves the times with it, as the sampler does with its own.
        moved = (time - now) - self._to_wall
        if abs(moved) >= 1.0:
            known = {key: _moved(times, moved) for key, times in known.items()}
            self._to_wall += moved
        self._heard = now
        self._known, more = {}, {}
        for gpu in gpus:
            for event in gpu.health:
                if gpu.uuid is not None and event.ended_at is None:
                    key = gpu.uuid, event.kind, event.code
                    told = Times(event.count, event.first_at, event.last_at, event.since)
                    self._known[key] = best = _together(told, known.get(key))
                    if best != told:
                        more[key] = best
        return more


def complete_health(gpus: Iterable[Gpu], more: dict[Key, Times]) -> None:
    """Put the times that `Beginnings.add` returned into the GPUs of its sample."""
    if more:
        for gpu in gpus:
            gpu.health = [_completed(gpu.uuid, event, more) for event in gpu.health]


def _completed(uuid: str | None, event: HealthEvent, more: dict[Key, Times]) -> HealthEvent:
    times = None if uuid is None else more.get((uuid, event.kind, event.code))
    if times is None or event.ended_at is not None:
        return event
    return msgspec.structs.replace(
        event, first_at=times.first_at, last_at=times.last_at, since=times.since
    )


def _together(told: Times, before: Times | None) -> Times:
    """Return what is told, and what was known before in the place of what is not."""
    if before is None:
        return told
    return Times(
        told.count,
        before.first_at if told.first_at is None else told.first_at,
        before.last_at if told.last_at is None and told.count == before.count else told.last_at,
        before.since if told.since is None else told.since,
    )


def _moved(times: Times, seconds: float) -> Times:
    told = (times.first_at, times.last_at, times.since)
    return Times(times.count, *(None if at is None else at + seconds for at in told))
