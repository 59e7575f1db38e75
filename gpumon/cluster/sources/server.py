"""Another gpumon server: its `/status.json`, and the details of its hosts when somebody asks."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import NamedTuple

import msgspec

from gpumon.cluster.links import segment
from gpumon.cluster.relayed import Relayed
from gpumon.cluster.sources import answer, failures
from gpumon.cluster.sources.base import MAX_DETAIL_BYTES, Reading
from gpumon.cluster.sources.connections import Connections
from gpumon.cluster.sources.exchange import Answered
from gpumon.cluster.sources.trust import TooNew, foreign_host_detail, foreign_status
from gpumon.cluster.status import ClusterStatus
from gpumon.config import HostEntry
from gpumon.errors import SourceError
from gpumon.model import SCHEMA, HostSnapshot
from gpumon.summary import HostSummary
from gpumon.text import clean

MAX_STATUS_BYTES = 32 * 1024 * 1024
"""Of `/status.json`, before and after decompression: some thousand hosts of eight GPUs."""
MOST_DETAILS = 64
"""So many details of one server's hosts are kept, those asked for last."""
MOST_FETCHES = 4
"""So many are fetched from one server at a time."""

_STATUS = "status.json"


class _Fetch:
    """One request on its way, told how far it has come."""

    def __init__(self) -> None:
        self.step = "connecting"
        self.reused = False


class ServerSource:
    """One other server."""

    def __init__(self, entry: HostEntry, connections: Connections, timeout: float) -> None:
        """`timeout`: seconds that the detail of one host may take."""
        self._where = entry.address
        self._tls = entry.tls
        host = f"[{entry.host}]" if ":" in entry.host else entry.host
        self._url = f"{'https' if entry.tls else 'http'}://{host}:{entry.port}{entry.path}"
        self._connections = connections
        self._timeout = timeout
        self._etag: str | None = None
        self._status: ClusterStatus | None = None
        self._details = DetailCache(self)

    async def poll(self) -> Reading:
        """Return the server's picture. Raises SourceError."""
        self._details.loop = asyncio.get_running_loop()
        got = await self.get(_STATUS, self._etag, MAX_STATUS_BYTES)
        if got.status == 200:
            try:
                self._status = foreign_status(got.body)
            except TooNew as error:
                raise failures.other_schema(self._where, error.schema, SCHEMA) from error
            except ValueError as error:
                raise self._bad(f"a page that can't be read ({clean(str(error), 200)})") from error
            self._etag = got.etag
        if self._status is None:  # "unchanged", though nothing was known
            raise self._bad("HTTP status 304")
        relayed = Relayed(status=self._status, details=self._details)
        return Reading(summary=HostSummary(), packed=b"", relayed=relayed)

    async def get(self, path: str, etag: str | None, most: int) -> Answered:
        """Return what lies below the front page, unpacked, status 200 or 304.

        Raises SourceError.
        """
        try:
            url = f"{self._url}/{path}"
            got = await self._connections.fetch(url, _Fetch(), etag=etag, most=most)
            if got.status == 200:
                return got._replace(body=answer.unpacked(got.body, got.encoding, most))
        except answer.Unexpected as error:
            raise self._bad(str(error)) from error
        except OSError as error:
            raise self._unreached(error) from error
        if got.status == 304 and etag is not None:
            return got
        if got.status in (401, 403):
            raise SourceError(
                "wrong token",
                f"wrong token: {self._where} asks for a login ({got.status}). Let this server's "
                "address through without one, in the proxy there",
            )
        raise self._bad(f"HTTP status {got.status}")

    async def detail(self, host: str) -> HostSnapshot | None:
        """Return the whole last reading of one of its hosts. Raises SourceError."""
        path = f"host/{segment(host)}.json"
        got = await asyncio.wait_for(self.get(path, None, MAX_DETAIL_BYTES), self._timeout)
        try:
            return foreign_host_detail(got.body)
        except ValueError as error:
            raise self._bad(f"a detail that can't be read ({error})") from error

    def _unreached(self, error: OSError) -> SourceError:
        """Say the same as of an agent, but for what to do."""
        failure = failures.way_failed(error, self._where, tls=self._tls, who="'gpumon web'")
        if failure.kind == "bad answer":
            return self._bad(str(failure).partition(". ")[0].rpartition(", found ")[2])
        return failure

    def _bad(self, found: str) -> SourceError:
        return SourceError(
            "bad answer",
            f"bad answer: expected the status.json of a gpumon server below {self._where}, found "
            f"{found}. Write the address of its front page",
        )

    def timed_out(self, seconds: float) -> SourceError:
        """Return what to say of a poll that was cut off."""
        return SourceError(
            "timed out", f"timed out: no whole answer from {self._where} within {seconds:g} s"
        )

    async def close(self) -> None:
        """End what still runs, and give up its connection."""
        await self._details.close()
        self._connections.forget(f"{self._url}/{_STATUS}")


class _Kept(NamedTuple):
    snapshot: HostSnapshot | None
    at: float
    """When it came, monotonic."""


class DetailCache:
    """Details of one server's hosts. `get` is for any thread and never waits for the network."""

    def __init__(self, source: ServerSource) -> None:
        self._source = source
        self.loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self._failed: dict[str, str] = {}
        self._fetching: dict[str, asyncio.Task[None]] = {}

    def get(self, host: str) -> HostSnapshot | None:
        """Return what is there of a host, as old as it is now, and have it fetched anew."""
        loop = self.loop
        if loop is not None:
            with suppress(RuntimeError):  # it was closed just now
                loop.call_soon_threadsafe(self._fetch, host)
        with self._lock:
            kept, failed = self._kept.get(host), self._failed.get(host)
        if kept is None:
            return HostSnapshot(errors=[failed or _UNDER_WAY])
        if kept.snapshot is None:
            return None
        age = kept.snapshot.sample_age_seconds
        return msgspec.structs.replace(
            kept.snapshot,
            sample_age_seconds=None if age is None else age + time.monotonic() - kept.at,
            errors=kept.snapshot.errors if failed is None else [failed, *kept.snapshot.errors],
        )

    def _fetch(self, host: str) -> None:
        loop = self.loop
        if loop is None:
            return  # closed meanwhile
        if host not in self._fetching and len(self._fetching) < MOST_FETCHES:
            task = loop.create_task(self._fetched(host))
            self._fetching[host] = task
            task.add_done_callback(lambda _: self._fetching.pop(host, None))

    async def _fetched(self, host: str) -> None:
        failed: str | None = None
        try:
            snapshot = await self._source.detail(host)
        except SourceError as error:
            failed = f"its server did not give the details: {error}"
        except asyncio.TimeoutError:
            failed = "its server did not give the details in time"
        with self._lock:
            for table in (self._kept, self._failed):
                while len(table) >= MOST_DETAILS and host not in table:
                    table.pop(next(iter(table)))
            self._failed.pop(host, None)
            if failed is not None:
                self._failed[host] = failed
            else:
                self._kept.pop(host, None)
                self._kept[host] = _Kept(snapshot, time.monotonic())

    async def close(self) -> None:
        """End the fetches; nobody asks afterwards."""
        self.loop = None
        tasks = list(self._fetching.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


_UNDER_WAY = "the details of this host are with its server and on their way: look again in a moment"
