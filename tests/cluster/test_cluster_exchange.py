"""One HTTP connection: whatever comes over it, there is a whole answer or an error, and an end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.cluster.sources.answer import MAX_BYTES, Unexpected
from gpumon.cluster.sources.exchange import (
    FRAMING_BYTES,
    MOST_HEAD_BYTES,
    Answered,
    ClosedError,
    Exchange,
)

OK = b"HTTP/1.1 200 OK\r\n"


class Asker:
    step = "waiting"
    reused = False


class Wire:
    """A real connection whose other end is in our hands."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.ended: list[Exchange] = []
        self.asker = Asker()
        ours, self.theirs = socket.socketpair()
        self.theirs.settimeout(5)
        _, self.exchange = self.run(
            loop.create_connection(lambda: Exchange(self.ended.append), sock=ours)
        )

    def run(self, work):
        return self._loop.run_until_complete(asyncio.wait_for(work, 5))

    def asked(self, *parts: bytes, close: bool = True) -> Answered:
        """Ask, answer with `parts`, each in a read of its own, and close."""

        async def work() -> Answered:
            asking = asyncio.ensure_future(self.exchange.ask(b"question", self.asker))
            await asyncio.sleep(0)
            for part in parts:
                with suppress(BrokenPipeError):  # it has heard enough
                    await self._loop.sock_sendall(self.theirs, part)
                await asyncio.sleep(0)
            if close:
                self.theirs.shutdown(socket.SHUT_WR)
            return await asking

        self.theirs.setblocking(False)
        return self.run(work())

    def settle(self) -> None:
        """Let the loop see what has come."""
        for _ in range(3):
            self._loop.run_until_complete(asyncio.sleep(0))

    def close(self) -> None:
        self.exchange.close()
        self.settle()
        self.theirs.close()


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def wire(loop) -> Iterator[Wire]:
    wire = Wire(loop)
    yield wire
    wire.close()


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(places)]


def chunked(body: bytes, cuts: list[int]) -> bytes:
    chunks = [b"%x;x=y\r\n%b\r\n" % (len(part), part) for part in pieces(body, cuts) if part]
    return OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(chunks) + b"0\r\nA: b\r\n\r\n"


CUTS = st.lists(st.integers(0, 10_000), max_size=5)


@given(st.binary(max_size=500), CUTS, CUTS, st.sampled_from(["length", "chunked", "close"]))
def test_an_answer_is_whole_however_it_is_cut_and_framed(loop, body, cuts, chunks, framing):
    whole = {
        "length": OK + b"Content-Length: %d\r\n\r\n" % len(body) + body,
        "chunked": chunked(body, chunks),
        "close": OK + b"\r\n" + body,
    }[framing]
    wire = Wire(loop)
    try:
        found = wire.asked(*pieces(whole, cuts))
        assert found == Answered(200, "OK", "", body)
        assert wire.asker.step == "reading"
    finally:
        wire.close()


@given(
    st.binary(max_size=300), st.integers(0, 400), st.integers(0, 20), st.binary(max_size=9), CUTS
)
def test_any_bytes_are_an_answer_or_an_error_and_the_connection_ends(
    loop, body, at, gone, added, cuts
):
    sound = chunked(body, [100, 200])
    wire = Wire(loop)
    try:
        with suppress(Unexpected, OSError):
            wire.asked(*pieces(sound[:at] + added + sound[at + gone :], cuts))
        wire.settle()
        assert wire.ended == [wire.exchange]
        assert not wire.exchange.usable
    finally:
        wire.close()


def test_a_connection_serves_one_question_after_the_other(wire):
    for body in (b"one", b"two", b""):
        answer = OK + b"Content-Length: %d\r\n\r\n" % len(body) + body
        assert wire.asked(answer, close=False).body == body
        assert wire.exchange.usable
    assert wire.theirs.recv(100) == b"question" * 3


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Connection: close\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 401 No\r\nContent-Length: 1\r\n\r\nx",
        OK + b"Content-Length: 1\r\n\r\nx" + OK + b"Content-Length: 1\r\n\r\ny",
        OK + b"Content-Length: 1\r\n\r\nx" + b"HTTP/1.",
    ],
)
def test_a_connection_is_not_used_again_where_it_might_not_hold(wire, answer):
    found = wire.asked(answer, close=False)
    assert (found.status, found.body) in ((200, b"x"), (401, b""))
    wire.settle()
    assert not wire.exchange.usable
    with pytest.raises(ClosedError):
        wire.asked(b"", close=False)


def test_what_nobody_asked_for_ends_the_connection(wire):
    wire.theirs.sendall(OK + b"Content-Length: 1\r\n\r\nx")
    wire.settle()
    assert not wire.exchange.usable


def test_an_answer_is_awaited_behind_100_continue(wire):
    assert wire.asked(b"HTTP/1.1 100 Continue\r\n\r\n", OK + b"Content-Length: 1\r\n\r\nx") == (
        Answered(200, "OK", "", b"x")
    )


def test_another_protocol_is_refused(wire):
    with pytest.raises(Unexpected, match="101"):
        wire.asked(b"HTTP/1.1 101 X\r\nUpgrade: y\r\nConnection: upgrade\r\n\r\nzzz")


@pytest.mark.parametrize(
    ("head", "piece", "words"),
    [
        (OK + b"X: ", b"a" * 1000, "not HTTP"),
        (OK + b"\r\n", b"a" * 60_000, "more than 8 MiB"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n" * 10_000, "more than 8 MiB"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n1;", b"x" * 60_000, "more than 8 MiB"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"A: b\r\n" * 10_000, "more than 8 MiB"),
        (b"HTTP/1.1 100 C\r\n\r\n", b"HTTP/1.1 100 C\r\n\r\n" * 1000, "not HTTP"),
    ],
)
def test_nothing_that_never_ends_is_read_for_ever(wire, head, piece, words):
    read = 0

    async def feed() -> None:
        nonlocal read
        while True:
            await asyncio.get_running_loop().sock_sendall(wire.theirs, piece)
            read += len(piece)

    async def work() -> None:
        wire.theirs.setblocking(False)
        asking = asyncio.ensure_future(wire.exchange.ask(b"question", wire.asker))
        await asyncio.sleep(0)
        wire.theirs.sendall(head)
        with suppress(ConnectionError):
            await feed()
        await asking

    with pytest.raises(Unexpected, match=words):
        wire.run(work())
    limit = MOST_HEAD_BYTES if words == "not HTTP" else MAX_BYTES + FRAMING_BYTES
    assert read < limit + 2**20
    assert FRAMING_BYTES < MAX_BYTES


def test_a_body_that_has_reached_the_limit_is_too_large_however_it_would_have_gone_on(wire):
    head = OK + b"\r\n"

    async def work(size: int) -> Answered:
        wire.theirs.setblocking(False)
        asking = asyncio.ensure_future(wire.exchange.ask(b"question", wire.asker))
        await asyncio.sleep(0)
        with suppress(ConnectionError):
            await asyncio.get_running_loop().sock_sendall(wire.theirs, head + bytes(size))
        return await asking  # it stays open, and nothing else comes: only a deadline would end it

    with pytest.raises(Unexpected, match="more than 8 MiB"):
        wire.run(work(MAX_BYTES + 1))


def test_a_body_of_just_the_limit_is_an_answer(wire):
    length = b"Content-Length: %d\r\n\r\n" % MAX_BYTES

    async def work() -> Answered:
        wire.theirs.setblocking(False)
        asking = asyncio.ensure_future(wire.exchange.ask(b"question", wire.asker))
        await asyncio.sleep(0)
        await asyncio.get_running_loop().sock_sendall(wire.theirs, OK + length + bytes(MAX_BYTES))
        return await asking

    assert len(wire.run(work()).body) == MAX_BYTES


def test_a_question_that_is_cut_off_closes_the_connection(wire, loop):
    async def work() -> None:
        asking = asyncio.ensure_future(wire.exchange.ask(b"question", wire.asker))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    wire.run(work())
    wire.settle()
    assert wire.ended == [wire.exchange]
    assert wire.theirs.recv(100) in (b"question", b"")
