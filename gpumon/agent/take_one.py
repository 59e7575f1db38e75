"""One sample without a daemon: within a time, and though a GPU hangs.

Somebody waits for it. So this needs no event loop, and what takes long to import is imported while
the sampler starts.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from gpumon.agent import failures
from gpumon.agent.failures import SamplerFailed
from gpumon.agent.launch import sampler_command
from gpumon.agent.one_child import KILL_SECONDS, OneChild
from gpumon.errors import CollectError

TYPE_CHECKING = False  # `typing` takes its time, too
if TYPE_CHECKING:
    from gpumon.agent.latest import SkippedGpu
    from gpumon.model import HostSnapshot

PATIENCE_SECONDS = 3.0
"""After so long, whoever waits is told what for."""

Notice = Callable[["int | None", float], None]
"""Hears what does not answer, a GPU by its index or (None) the driver, and how many seconds that
may take at most."""


def take_one(
    deadline: float = 30.0,
    *,
    command: list[str] | None = None,
    meanwhile: Callable[[], object] | None = None,
    notice: Notice | None = None,
) -> HostSnapshot:
    """Return one sample of this host, from a sampler of its own; ends within `deadline` seconds.

    A GPU on which the sampler hangs or crashes is left out of a second try, as far as the time
    goes. `meanwhile` is called once, while the sampler starts; `notice` at most once, where it
    takes long. Raises CollectError.
    """
    begin = time.monotonic()
    end = begin + deadline - 2 * KILL_SECONDS
    patience = _Patience(begin, begin + deadline, notice)
    command = command or sampler_command()
    skipped: dict[int, SkippedGpu] = {}
    while True:
        try:
            child = OneChild(command, deadline, skipped.values())
        except SamplerFailed as error:
            raise CollectError("failed", str(error)) from error
        try:
            if not skipped and meanwhile is not None:
                meanwhile()
            # Not all the time that is left: a second try may need some.
            seconds = max(0.1, (end - time.monotonic()) * 2 / 3)
            return _decoded(child.answer(seconds, patience.tick))
        except SamplerFailed as error:
            failure = error
        finally:
            gone = child.kill()
        gpu = failure.gpu
        if gpu is None or gpu in skipped or not gone or time.monotonic() > end:
            raise CollectError("failed", str(failure)) from failure
        skipped[gpu] = _left_out(gpu, failure)


class _Patience:
    """Gives the notice when it is due."""

    def __init__(self, begin: float, end: float, notice: Notice | None) -> None:
        self._due = begin + PATIENCE_SECONDS
        self._end = end
        self._notice = notice

    def tick(self, gpu: int | None) -> None:
        now = time.monotonic()
        if self._notice is not None and now >= self._due:
            self._notice(gpu, max(0.0, self._end - now))
            self._notice = None


def _decoded(data: bytes) -> HostSnapshot:
    import msgspec

    from gpumon.model import decode_snapshot

    try:
        snapshot = decode_snapshot(data)
    except msgspec.MsgspecError as error:
        raise failures.unusable() from error
    snapshot.sample_age_seconds = 0.0
    snapshot.sample_interval_seconds = None
    return snapshot


def _left_out(gpu: int, failure: SamplerFailed) -> SkippedGpu:
    from gpumon.agent.latest import SkippedGpu

    return SkippedGpu(index=gpu, uuid=None, name=None, error=str(failure), retry_at=0.0)
