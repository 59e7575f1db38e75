"""What the agent knows right now: the newest sample as bytes, its age, and what is wrong."""

from __future__ import annotations

import socket

import msgspec

from gpumon.agent.beginnings import Key, Times, complete_health
from gpumon.agent.usage import Means, complete
from gpumon.model import HostSnapshot, decode_snapshot, encode, splice
from gpumon.summary import decode_summary, summarize
from gpumon.text import clean
from gpumon.version import __version__

NOT_YET = "no sample has been taken yet"


class SkippedGpu(msgspec.Struct, kw_only=True, frozen=True):
    """A GPU that the sampler must not touch, because it hung or crashed when it was read last."""

    index: int
    uuid: str | None
    name: str | None
    error: str
    """What happened, with the time, in words."""
    retry_at: float
    """When it is tried again, monotonic."""


class Latest(msgspec.Struct, kw_only=True, frozen=True):
    """The agent's knowledge at one moment. Replaced, never changed: any thread may keep one."""

    revision: str
    """Names the sample; different in each run of the agent."""
    interval: float
    """Seconds between two samples."""
    snapshot: bytes | None = None
    """As the sampler gave it: JSON of a HostSnapshot with its first three fields at defaults.

    None: no sample yet. Mostly nobody asks for it, so what only the agent knows is not in it; see
    `unspliced`.
    """
    summary: bytes | None = None
    """JSON of the HostSummary of the same sample, also unspliced, with all that there is."""
    means: tuple[Means, ...] | None = None
    """Mean utilizations by GPU, which `snapshot` lacks; None: it lacks nothing."""
    begun: dict[Key, Times] = {}
    """Times of events of which `snapshot` says less than an earlier sampler did."""
    taken_at: float | None = None
    """Monotonic."""
    sampler_error: str | None = NOT_YET
    """Why there is no newer sample, in words; None while samples come on time."""
    last_error: str | None = None
    """The latest `sampler_error` there was, also after it is over."""
    restarts: int = 0
    """How many samplers had to be replaced since the agent began."""
    skipped: tuple[SkippedGpu, ...] = ()
    out_of_range: dict[str, int] = {}
    """In how many readings of a GPU a field had a value that can't be, since the agent began."""

    def age(self, now: float) -> float | None:
        """Return how old the sample is, in seconds; `now` is monotonic. None: there is none."""
        return None if self.taken_at is None else max(0.0, now - self.taken_at)

    def is_fresh(self, now: float) -> bool:
        """Return whether decisions may rest on the sample: it missed two of its turns at most."""
        age = self.age(now)
        return age is not None and age <= 3 * self.interval + 10

    def snapshot_json(self, now: float) -> bytes:
        """Return the JSON of the whole HostSnapshot with today's age and error."""
        return splice(self.unspliced(), self.age(now), self.sampler_error)

    def unspliced(self) -> bytes:
        """Return the JSON of the whole HostSnapshot with its first three fields at defaults.

        Made at each call: keep it.
        """
        if self.snapshot is None:
            return encode(empty_snapshot())
        if self.means is None or self.summary is None:
            return self.snapshot
        snapshot = decode_snapshot(self.snapshot)
        complete(snapshot, decode_summary(self.summary), self.means)
        complete_health(snapshot.gpus, self.begun)
        return encode(snapshot)

    def summary_json(self, now: float) -> bytes:
        """Return the JSON of the HostSummary with today's age and error."""
        unspliced = encode(summarize(empty_snapshot())) if self.summary is None else self.summary
        return splice(unspliced, self.age(now), self.sampler_error)


def empty_snapshot() -> HostSnapshot:
    """Return a snapshot of this host that says that nothing is known about its GPUs."""
    return HostSnapshot(hostname=clean(socket.gethostname()), agent_version=__version__)
