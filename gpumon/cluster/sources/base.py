"""The contract of a source: one object per host, asked again and again for a reading."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import Protocol

import msgspec

from gpumon.cluster.relayed import Relayed
from gpumon.cluster.sources.trust import foreign_snapshot
from gpumon.errors import SourceError
from gpumon.model import HostSnapshot, encode
from gpumon.summary import HostSummary, summarize

MAX_DETAIL_BYTES = 32 * 1024 * 1024


class Reading(msgspec.Struct, kw_only=True, frozen=True):
    """What one good poll brought: a summary, and the detail packed until somebody opens it."""

    summary: HostSummary
    packed: bytes
    """gzip of the JSON of a HostSnapshot."""
    relayed: Relayed | None = None
    """Of another gpumon server: its whole picture, in place of the two."""
    certificate_ends: float | None = None
    """Of an agent asked over TLS: when the certificate ends that it showed; epoch seconds."""

    @classmethod
    def of(cls, snapshot: HostSnapshot) -> Reading:
        """Make a reading from a whole snapshot, for sources that give no summary."""
        return cls(summary=summarize(snapshot), packed=gzip.compress(encode(snapshot), 1))

    def aged(self, sample_age_seconds: float | None, sampler_error: str | None) -> Reading:
        """Return the same sample as it is now: older, and perhaps with a reason for that."""
        summary = msgspec.structs.replace(
            self.summary, sample_age_seconds=sample_age_seconds, sampler_error=sampler_error
        )
        return msgspec.structs.replace(self, summary=summary)

    def detail(self) -> HostSnapshot:
        """Open the detail. Raises ValueError where it can't be read."""
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(self.packed)) as stream:
                data = stream.read(MAX_DETAIL_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"the packed snapshot can't be unpacked: {error}") from error
        if len(data) > MAX_DETAIL_BYTES:
            raise ValueError(f"the packed snapshot is larger than {MAX_DETAIL_BYTES} bytes")
        return foreign_snapshot(data)


class Source(Protocol):
    """One host's way in. `poll` is never called while an earlier call is still running."""

    async def poll(self) -> Reading:
        """Return a reading: the newest there is, as old as its summary says.

        Raises SourceError for everything that can go wrong with the host. The poller puts a total
        deadline around it and cancels it then.
        """

    def timed_out(self, seconds: float) -> SourceError:
        """Return what to say of the poll that was just cancelled after `seconds`."""

    async def close(self) -> None:
        """Give up connections and children. The source is not used afterwards."""
