"""Which GPUs the sampler leaves alone, and when each is tried again. Pure: now is an argument."""

from __future__ import annotations

import msgspec

from gpumon.agent.latest import SkippedGpu


class Skips:
    """GPUs that hung or crashed a sampler.

    Each is tried again after a pause that doubles from `first` to `longest` seconds. When one has
    healed, the others are tried at once (the driver may be back as a whole); should it fail again
    before `longest` seconds have passed, its pause goes on from where it was.
    """

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._skipped: dict[int, SkippedGpu] = {}
        self._pauses: dict[int, float] = {}
        self._healed_at: dict[int, float] = {}

    def all(self) -> tuple[SkippedGpu, ...]:
        """Return all skipped GPUs by index."""
        return tuple(self._skipped[index] for index in sorted(self._skipped))

    def blame(self, index: int, uuid: str | None, name: str | None, error: str, now: float) -> None:
        """Skip a GPU from now on. One that is skipped already keeps its first sentence."""
        healed_at = self._healed_at.pop(index, None)
        if healed_at is not None and now - healed_at > self._longest:
            del self._pauses[index]
        before = self._pauses.get(index)
        pause = self._first if before is None else min(2 * before, self._longest)
        self._pauses[index] = pause
        known = self._skipped.get(index)
        self._skipped[index] = SkippedGpu(
            index=index,
            uuid=known.uuid if known else uuid,
            name=known.name if known else name,
            error=known.error if known else error,
            retry_at=now + pause,
        )

    def due(self, now: float) -> SkippedGpu | None:
        """Return the GPU that has waited longest for its next try, None when none is due."""
        first = min(self._skipped.values(), key=lambda gpu: gpu.retry_at, default=None)
        return first if first is not None and first.retry_at <= now else None

    def heal(self, index: int, now: float) -> None:
        """Stop skipping a GPU: it was read."""
        del self._skipped[index]
        self._healed_at[index] = now
        for other in list(self._skipped.values()):
            self._skipped[other.index] = msgspec.structs.replace(other, retry_at=now)
