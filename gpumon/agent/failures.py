"""What a sampler may do wrong, each as a sentence with the time."""

from __future__ import annotations

import signal
import time

from gpumon.text import clean

LAST_WORDS_CHARACTERS = 200


HUNG = (
    "look for NVRM and Xid lines in the kernel log (dmesg); a reset of the GPU or a reboot of the "
    "host ends it"
)
FAILED = (
    "it is started again by itself; if it goes on, look at the kernel log (dmesg) and at the "
    "agent's log (journalctl -u gpumon-agent)"
)
NOT_STARTED = (
    "check that gpumon's installation is whole, the host's free memory, and how many processes the "
    "agent may have (TasksMax=)"
)
"""What to do, behind the sentence that says what happened."""


class SamplerFailed(Exception):
    """A sampler gave no sample. `what` is a sentence with the time; the message has advice too.

    `gpu` is the index of the GPU that it was reading when it hung or crashed; None: none, or it is
    not known.
    """

    def __init__(self, what: str, gpu: int | None = None, advice: str = FAILED) -> None:
        super().__init__(f"{what}; {advice}")
        self.what = what
        self.gpu = gpu


def clock(epoch: float) -> str:
    """Return a time of day, by this host's clock, as sentences have it."""
    return time.strftime("%H:%M:%S", time.localtime(epoch))


def not_started(error: OSError) -> SamplerFailed:
    """Return the failure of a sampler that could not be started."""
    reason = error.strerror or type(error).__name__
    return SamplerFailed(f"the sampler can't be started ({reason})", advice=NOT_STARTED)


def unanswered(since: float, gpu: int | None) -> SamplerFailed:
    """Return the failure of a sampler that has been silent since `since` (epoch seconds)."""
    where = "" if gpu is None else f" (GPU {gpu} was being read)"
    return SamplerFailed(f"the driver has not answered since {clock(since)}{where}", gpu, HUNG)


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
