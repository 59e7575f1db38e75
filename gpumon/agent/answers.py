"""Forms of the newest sample: each made at most once, and only when somebody asks for it."""

from __future__ import annotations

import base64
import gzip
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from gpumon.agent.latest import Latest
from gpumon.agent.legacy import gpu_stats, without_readings
from gpumon.agent.nvgpu import gpu_status
from gpumon.agent.spliced import Spliced
from gpumon.http import xmlrpc
from gpumon.model import HostSnapshot, decode_snapshot, encode, splice
from gpumon.summary import HostSummary, decode_summary

T = TypeVar("T")


class Forms:
    """Everything that can be said about one `Latest`, which never changes."""

    def __init__(self, latest: Latest) -> None:
        self.latest = latest
        self._made: dict[str, Any] = {}
        self._lock = threading.RLock()

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Return the form of this name, made by `make` when it is asked for first."""
        with self._lock:
            if name not in self._made:
                self._made[name] = make()
            made: T = self._made[name]
            return made

    def snapshot(self) -> HostSnapshot:
        """Return the sample itself, without its age."""
        return self.once("snapshot", lambda: decode_snapshot(self._ageless()))

    def summary(self) -> HostSummary:
        """Return the short form of the sample, without its age."""
        return self.once("summary", lambda: decode_summary(self.latest.summary_json(0.0)))

    def packed(self) -> bytes:
        """Return base64(gzip(JSON of the snapshot)), ASCII.

        The age in it is None: it would be wrong by the time that somebody unpacks it. It stands in
        the summary that is sent along.
        """
        return self.once("packed", lambda: base64.b64encode(gzip.compress(self._ageless(), 6)))

    def json(self) -> Spliced:
        """Return the JSON of the snapshot; the part to splice is `json_age`."""
        return self.once("json", lambda: Spliced.at(self._ageless(), b"null"))

    def json_string(self) -> Spliced:
        """Return the XML-RPC answer with the JSON as a string; the part is `json_age`."""
        return self.once("json_string", self._make_json_string)

    def _make_json_string(self) -> Spliced:
        text = Spliced.at(xmlrpc.json_text(self._ageless()), b"null")
        head, tail = xmlrpc.ENVELOPE
        return text.around(head + xmlrpc.STRING[0], xmlrpc.STRING[1] + tail)

    def native(self) -> Spliced:
        """Return the XML-RPC answer with the snapshot as structs; the part is `xml_age`."""
        return self.once("native", self._make_native)

    def _make_native(self) -> Spliced:
        return Spliced.at(xmlrpc.answer(msgspec.to_builtins(self.snapshot())), xml_age(None))

    def legacy(self) -> bytes:
        """Return the XML-RPC answer of gpumonitor's `gpu_stats`."""
        return self.once("legacy", lambda: _json_answer(gpu_stats(self.snapshot())))

    def legacy_stale(self) -> bytes:
        """Return the same for a sample that is too old to be believed: nothing is known."""
        return self.once("legacy_stale", self._make_legacy_stale)

    def _make_legacy_stale(self) -> bytes:
        return _json_answer(gpu_stats(self._blind()))

    def nvgpu(self) -> bytes:
        """Return the JSON of nvgpu's `/gpu_status`."""
        return self.once("nvgpu", lambda: encode(gpu_status(self.snapshot())))

    def nvgpu_stale(self) -> bytes:
        """Return the same for a sample that is too old to be believed."""
        return self.once("nvgpu_stale", lambda: encode(gpu_status(self._blind())))

    def _blind(self) -> HostSnapshot:
        reason = self.latest.sampler_error or "there has been no new sample for too long"
        return without_readings(self.snapshot(), reason)

    def _ageless(self) -> bytes:
        """Return the JSON of the snapshot with today's error; its first null is the age."""
        latest = self.latest
        return self.once("ageless", lambda: splice(latest.unspliced(), None, latest.sampler_error))


class Answers:
    """The forms of whatever is the newest sample now. For any thread."""

    def __init__(self, latest: Callable[[], Latest]) -> None:
        self._latest = latest
        self._forms = Forms(latest())

    def now(self) -> Forms:
        """Return the forms of the newest sample."""
        latest = self._latest()
        forms = self._forms
        if forms.latest is not latest:
            # Two threads may both come here; then one of them makes a form that nobody keeps.
            forms = self._forms = Forms(latest)
        return forms


def json_age(age: float | None) -> bytes:
    """Return an age in seconds as it stands in JSON."""
    return b"null" if age is None else repr(round(age, 3)).encode()


def xml_age(age: float | None) -> bytes:
    """Return an age in seconds as it stands in an XML-RPC struct."""
    if age is None:
        return b"<value><nil/></value>"
    return b"<value><double>" + json_age(age) + b"</double></value>\n"


def _json_answer(text: str) -> bytes:
    return xmlrpc.enveloped(xmlrpc.string(xmlrpc.json_text(text.encode())))
