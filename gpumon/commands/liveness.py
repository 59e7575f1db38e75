"""Whether a daemon's work goes on, and a sentence about it: for the service manager's watchdog."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from gpumon.agent.latest import NOT_YET, Latest

FIRST_SAMPLE_SECONDS = 120.0
"""A supervisor with neither a sample nor a reason by then is stuck; its own deadline is 30 s."""


class Work(msgspec.Struct, frozen=True):
    """What the watchdog asks. `alive` False: a restart is better than to go on."""

    alive: Callable[[], bool]
    words: Callable[[], str]


def of_agent(latest: Callable[[], Latest], clock: Callable[[], float] = time.monotonic) -> Work:
    """Return how an agent is judged: its supervisor takes samples, or says why it can't.

    A driver that hangs is no reason for a restart: the supervisor knows, tells and tries again.
    Old samples without a reason are one: then the supervisor itself is stuck.
    """
    start = clock()

    def alive() -> bool:
        now, known = clock(), latest()
        if known.taken_at is None and known.sampler_error == NOT_YET:
            return now - start < FIRST_SAMPLE_SECONDS
        return known.sampler_error is not None or known.is_fresh(now)

    def words() -> str:
        known = latest()
        return known.sampler_error or f"a sample every {known.interval:g} s"

    return Work(alive, words)


def of_server(hosts: int) -> Work:
    """Return how a server is judged: by its event loop. A poller that ends, ends it all.

    `hosts`: how many it polls, for the sentence.
    """
    noun = "host" if hosts == 1 else "hosts"
    return Work(alive=lambda: True, words=lambda: f"polling {hosts} {noun}")
