"""What broke other monitors' servers: whatever a host answers costs that host one poll."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import tracemalloc
import xmlrpc.client

import msgspec
import pytest
from cluster_tools import a_gpu, a_process, a_snapshot, an_answer, an_entry, an_unchanged_answer
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.cluster.sources.answer import Faulty, NoSuchMethod, Unexpected, texts, unpacked
from gpumon.cluster.sources.base import MAX_DETAIL_BYTES, Reading
from gpumon.cluster.sources.xmlrpc import XmlRpcSource
from gpumon.errors import SourceError
from gpumon.http.xmlrpc import array, enveloped, json_text, string
from gpumon.model import HostSnapshot, decode_snapshot, encode
from gpumon.summary import HostSummary, decode_summary, summarize

SNAPSHOT = a_snapshot(a_gpu(0, processes=[a_process()]), a_gpu(1))
WHOLE = an_answer(SNAPSHOT)
UNCHANGED = an_unchanged_answer("a-1", 3.5)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=4) | st.sampled_from(["gpus", "time"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)
FIELDS = st.dictionaries(
    st.sampled_from(sorted({*HostSummary.__struct_fields__, *HostSnapshot.__struct_fields__})),
    JSON,
    max_size=5,
)
DEEP = b'{"colour": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


class Answering:
    """In the place of the connections: every request gets the next of these bodies."""

    has_token = False

    def __init__(self, *bodies: bytes) -> None:
        self._bodies = list(bodies)

    async def post(self, url: str, body: bytes, asker: object) -> tuple[int, str, bytes]:
        return 200, "OK", self._bodies.pop(0)


def polled(*bodies: bytes) -> Reading | SourceError:
    """Return the reading, or the error, of the last of as many polls."""
    source = XmlRpcSource(an_entry("x", 8043), Answering(*bodies))
    for _ in bodies[:-1]:
        asyncio.run(source.poll())
    try:
        return asyncio.run(source.poll())
    except SourceError as error:
        failed = error
    assert len(str(failed).splitlines()) == 1
    return failed


def damaged(whole: bytes, data: st.DataObject) -> bytes:
    begin = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(begin, min(len(whole), begin + 40)))
    pieces = [b"", b"<", b"&", b"</string>", b"<string>", b"null", b"[", b'"', b"\\u0000", b"1e999"]
    piece = data.draw(st.sampled_from(pieces) | st.binary(max_size=5))
    return whole[:begin] + piece + whole[end:]


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(["", "gzip", "deflate", "br"]))
def test_any_bytes_as_an_answer_raise_nothing_but_what_is_meant_for_it(body, encoding):
    with pytest.raises((Unexpected, NoSuchMethod, Faulty)):
        texts(unpacked(body, encoding))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_an_answer_that_was_damaged_on_the_way_is_a_reading_or_a_failed_poll(data):
    if data.draw(st.booleans()):
        found = polled(damaged(WHOLE, data))
    else:
        found = polled(WHOLE, damaged(UNCHANGED, data))
    if isinstance(found, Reading):
        with contextlib.suppress(ValueError):  # what its docstring promises
            found.detail()


@settings(max_examples=200, deadline=None)
@given(FIELDS, JSON)
def test_any_json_of_an_agent_is_a_reading_or_a_failed_poll(fields, other):
    for value in (fields, other, {**fields, "gpus": [{"index": 0}, fields]}):
        told = encode(value)
        packed = base64.b64encode(gzip.compress(told, 1))
        found = polled(enveloped(array([string(b"r"), string(json_text(told)), string(packed)])))
        if isinstance(found, Reading):
            assert isinstance(found.summary, HostSummary)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_json_raises_msgspecs_error_and_no_other(data):
    for decode, whole in (
        (decode_snapshot, encode(SNAPSHOT)),
        (decode_summary, encode(summarize(SNAPSHOT))),
    ):
        with contextlib.suppress(msgspec.MsgspecError):
            decode(damaged(whole, data))


def test_nesting_of_thousands_in_an_answer_is_a_failed_poll():
    news = enveloped(array([string(b"r"), string(DEEP), string(b"")]))
    aged = enveloped(array([string(b"a-1"), string(DEEP)]))
    for error in (polled(news), polled(WHOLE, aged)):
        assert isinstance(error, SourceError)
        assert error.kind == "bad answer"


@pytest.mark.parametrize("decode", [decode_snapshot, decode_summary])
@pytest.mark.parametrize("data", [DEEP, b'{"hostname": "\xff"}', b"\xff", '"\ud800"'])
def test_json_that_no_reader_can_hold_raises_msgspecs_error_and_no_other(decode, data):
    with pytest.raises(msgspec.MsgspecError):
        decode(data)


def test_a_call_is_made_of_constants_and_an_escaped_revision():
    asked = []

    class Listening(Answering):
        async def post(self, url: str, body: bytes, asker: object) -> tuple[int, str, bytes]:
            asked.append(body)
            return await super().post(url, body, asker)

    evil = "</string></value></param></params><methodName>other</methodName>"
    values = [evil, encode(summarize(SNAPSHOT)).decode(), ""]
    answer = xmlrpc.client.dumps((values,), methodresponse=True).encode()
    source = XmlRpcSource(an_entry("x", 8043), Listening(answer, answer))
    asyncio.run(source.poll())
    asyncio.run(source.poll())
    assert xmlrpc.client.loads(asked[1]) == ((evil,), "poll")


def test_a_detail_that_unpacks_to_more_than_a_host_can_have_is_never_held_whole():
    packer = gzip.compress(bytes(2**20), 1)
    reading = Reading(summary=summarize(SNAPSHOT), packed=packer * 80)  # 80 MiB in 80 pieces
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="larger than 33554432 bytes"):
            reading.detail()
        assert tracemalloc.get_traced_memory()[1] < 1.5 * MAX_DETAIL_BYTES + 2**20
    finally:
        tracemalloc.stop()
