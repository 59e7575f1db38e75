"""One sample of this host for a person who waits for it."""

from __future__ import annotations

import sys
from collections.abc import Callable

from gpumon.agent.take_one import take_one

TYPE_CHECKING = False  # `typing` takes its time, too
if TYPE_CHECKING:
    from gpumon.model import HostSnapshot


def one_sample(meanwhile: Callable[[], object] | None = None) -> HostSnapshot:
    """Return one sample of this host. Raises CollectError.

    `meanwhile` is called while the sampler starts. A person at a terminal is told when it takes
    long; nothing of that gets into pipes and logs.
    """
    return take_one(meanwhile=meanwhile, notice=_say if sys.stderr.isatty() else None)


def _say(gpu: int | None, seconds: float) -> None:
    what = "the driver" if gpu is None else f"GPU {gpu}"
    print(
        f"gpumon: {what} does not answer yet; waiting for up to {seconds:.0f} s more",
        file=sys.stderr,
        flush=True,
    )
