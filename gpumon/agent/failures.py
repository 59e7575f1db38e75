"""What a sampler may do wrong, each as a sentence with the time."""

from __future__ import annotations

import signal
import time

from gpumon.text import clean

LAST_WORDS_CHARACTERS = 200


class SamplerFailed(Exception):
    """A sampler gave no sample. The message is a sentence with the time.

    `gpu` is the index of the GPU that it was reading when it hung or crashed; None: none, or it is
    not known.
    """

    def __init__(self, sentence: str, gpu: int | None = None) -> None:
        super().__init__(sentence)
        self.gpu = gpu


def clock(epoch: float) -> str:
    """Return a time of day, by this host's clock, as sentences have it."""
    return time.strftime("%H:%M:%S", time.localtime(epoch))


def not_started(error: OSError) -> SamplerFailed:
    """Return the failure of a sampler that could not be started."""
    reason = error.strerror or type(error).__name__
    return SamplerFailed(f"the sampler can't be started ({reason})")


def unanswered(since: float, gpu: int | None) -> SamplerFailed:
    """Return the failure of a sampler that has been silent since `since` (epoch seconds)."""
    where = "" if gpu is None else f" (GPU {gpu} was being read)"
    return SamplerFailed(f"the driver has not answered since {clock(since)}{where}", gpu)


def unusable() -> SamplerFailed:
    """Return the failure of a sampler that sent something else than a sample."""
    return SamplerFailed(
        f"the sampler answered at {clock(time.time())} with something that is no sample"
    )


def ended(code: int | None, gpu: int | None, last_words: str | None = None) -> SamplerFailed:
    """Return the failure of a sampler whose output ended.

    `code` is how the process ended, as `subprocess` has it (None: it has not), `last_words` what it
    said before: not everybody has the agent's log.
    """
    when = f"at {clock(time.time())}"
    where = "" if gpu is None else f" while GPU {gpu} was read"
    if code is None:
        return SamplerFailed(f"the sampler closed its output {when}{where}", gpu)
    if code < 0:
        name = _signal_name(-code)
        return SamplerFailed(f"the sampler crashed (signal {name}) {when}{where}", gpu)
    if code > 0 and last_words:
        where += f": {clean(last_words, LAST_WORDS_CHARACTERS)}"
    return SamplerFailed(f"the sampler ended (exit code {code}) {when}{where}", gpu)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
