"""A gpumon agent, asked over XML-RPC: poll(since) on one host."""

from __future__ import annotations

import base64
import binascii
import time
from xml.sax.saxutils import escape

import msgspec

from gpumon.cluster.sources import answer, failures, gpumonitor
from gpumon.cluster.sources.base import Reading
from gpumon.cluster.sources.connections import Connections
from gpumon.cluster.sources.trust import TooNew, foreign_summary
from gpumon.config import HostEntry
from gpumon.errors import SourceError
from gpumon.model import SCHEMA
from gpumon.text import clean

_REQUEST = (
    b"<?xml version='1.0'?>\n<methodCall>\n<methodName>poll</methodName>\n<params>\n",
    b"</params>\n</methodCall>\n",
)
_LONGEST_REVISION = 200
MOST_PACKED_BYTES = 2 * 1024 * 1024
"""Of a detail as it is sent. It is kept for every host; 16 GPUs full of processes need a tenth."""


class _Unchanged(msgspec.Struct):
    """The summary of an answer without news."""

    sample_age_seconds: float | None = None
    sampler_error: str | None = None


class XmlRpcSource:
    """One agent. Remembers its last revision, so that an unchanged reading is not sent again."""

    def __init__(self, entry: HostEntry, connections: Connections) -> None:
        self._where = entry.address
        self._tls = entry.tls
        host = f"[{entry.host}]" if ":" in entry.host else entry.host
        self._url = f"{'https' if entry.tls else 'http'}://{host}:{entry.port}/RPC2"
        self._connections = connections
        self._revision: str | None = None
        self._reading: Reading | None = None
        self._habit = gpumonitor.Habit()
        self.step = "connecting"
        self.reused = False

    async def poll(self) -> Reading:
        """Return the agent's reading. Raises SourceError."""
        try:
            if not self._habit.by_gpu_stats(time.monotonic()):
                try:
                    texts = answer.texts(await self._ask(_request(self._revision)))
                    self._reading = self._understood(texts)
                    return self._reading
                except answer.NoSuchMethod:
                    self._habit.has_no_poll(time.monotonic())
            return await self._by_gpu_stats()
        except OSError as error:
            raise failures.way_failed(error, self._where, tls=self._tls) from error
        except answer.NoSuchMethod as error:
            raise failures.no_poll_method(self._where) from error
        except answer.Faulty as fault:
            raise failures.agent_fault(self._where, fault.code, fault.text) from fault
        except TooNew as error:
            raise failures.other_schema(self._where, error.schema, SCHEMA) from error
        except answer.Unexpected as error:
            raise failures.bad_answer(self._where, str(error), error.hint) from error

    async def _by_gpu_stats(self) -> Reading:
        """Return the reading of an agent of gpumonitor, which has no poll()."""
        self._reading = self._revision = None
        try:
            return gpumonitor.reading(await self._ask(gpumonitor.REQUEST), time.time())
        except answer.Faulty as fault:
            raise gpumonitor.agent_fault(self._where, fault) from fault
        except BaseException:  # a poll that is cut off included
            self._habit.failed()
            raise

    def timed_out(self, seconds: float) -> SourceError:
        """Return what to say of a poll that was cut off."""
        return failures.timed_out(self._where, seconds, self.step)

    async def close(self) -> None:
        """Give up its connection, one of those that belong to all sources together."""
        self._connections.forget(self._url)

    async def _ask(self, body: bytes) -> bytes:
        status, reason, found = await self._connections.post(self._url, body, self)
        if status != 200:
            raise failures.bad_status(
                self._where, status, reason, token_sent=self._connections.has_token
            )
        return found

    def _understood(self, texts: list[bytes]) -> Reading:
        """Return the reading in the answer's texts. Raises answer.Garbled or TooNew."""
        if len(texts) not in (2, 3):
            many = "1 value" if len(texts) == 1 else f"{len(texts)} values"
            raise answer.Garbled(f"{many} instead of two or three")
        try:
            revision = texts[0].decode()
            if len(texts) == 2:
                return self._unchanged(revision, texts[1])
            _, summary_json, packed = texts
            if len(packed) > MOST_PACKED_BYTES:
                raise answer.Garbled(f"a detail of more than {MOST_PACKED_BYTES // 2**20} MiB")
            reading = Reading(
                summary=foreign_summary(summary_json),
                packed=base64.b64decode(packed, validate=True),
            )
        except (TooNew, answer.Garbled):
            raise
        except binascii.Error as error:
            raise answer.Garbled("a detail that is not base64") from error
        except (ValueError, RecursionError) as error:
            raise answer.Garbled(f"a summary that can't be read ({error})") from error
        self._revision = revision if len(revision) <= _LONGEST_REVISION else None
        return reading

    def _unchanged(self, revision: str, text: bytes) -> Reading:
        """Return the reading that is known already, as old as it is now."""
        news = msgspec.json.decode(text, type=_Unchanged)
        if self._reading is None or revision != self._revision:
            self._revision = None
            raise answer.Garbled("an unchanged reading that was never sent")
        error = news.sampler_error
        return self._reading.aged(
            news.sample_age_seconds, None if error is None else clean(error, 1024)
        )


def _request(since: str | None) -> bytes:
    """Return the call poll(since), or poll() where nothing is known yet."""
    if since is None:
        return _REQUEST[0] + _REQUEST[1]
    value = f"<param>\n<value><string>{escape(since)}</string></value>\n</param>\n"
    return _REQUEST[0] + value.encode() + _REQUEST[1]
