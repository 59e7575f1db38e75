"""One agent over the real wire: what it answers, and what else can answer in its place."""

from __future__ import annotations

import asyncio
import base64
import gzip
import socket
import xmlrpc.client
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from cluster_tools import (
    Agent,
    Behaviour,
    a_config,
    a_gpu,
    a_process,
    a_snapshot,
    an_answer,
    an_entry,
    an_unchanged_answer,
    http,
    listening,
    read_request,
    saying,
)

from gpumon.cluster.sources.answer import MAX_BYTES
from gpumon.cluster.sources.base import Reading
from gpumon.cluster.sources.connections import Connections
from gpumon.cluster.sources.resolver import Resolver
from gpumon.cluster.sources.xmlrpc import XmlRpcSource
from gpumon.errors import SourceError, StartError
from gpumon.http.xmlrpc import array, enveloped, string
from gpumon.model import SCHEMA, encode
from gpumon.summary import summarize

SNAPSHOT = a_snapshot(a_gpu(0, processes=[a_process()]), a_gpu(1))
WHOLE = an_answer(SNAPSHOT)
EMPTY = string(b"")
MANY_GPUS = b'{"gpus": [' + b",".join([b'{"index": 1}'] * 65) + b"]}"

Result = TypeVar("Result")


def against(
    behave: Behaviour,
    work: Callable[[XmlRpcSource], Awaitable[Result]],
    *,
    token_file: Path | None = None,
) -> Result:
    """Run `work` with a source whose host behaves like `behave`."""

    async def run() -> Result:
        async with listening(behave) as port:
            entry = an_entry("gpu-01", port)
            connections = Connections(a_config(entry, token_file=token_file))
            try:
                return await asyncio.wait_for(work(XmlRpcSource(entry, connections)), 10)
            finally:
                await connections.close()

    return asyncio.run(run())


@contextmanager
def deaf(host: str, port: int = 0) -> Iterator[int]:
    """Listen on a port where no connection comes about: its backlog is full. Yields the port."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind((host, port))
        server.listen(0)
        for _ in range(8):  # more than the backlog holds: the rest stays in SYN_SENT
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        yield server.getsockname()[1]


async def failure(source: XmlRpcSource) -> SourceError:
    """The error of one poll, or of its being cut off after a moment."""
    try:
        await asyncio.wait_for(source.poll(), 0.3)
    except SourceError as error:
        return error
    except asyncio.TimeoutError:
        return source.timed_out(0.3)
    raise AssertionError("the poll went well")


def failure_of(behave: Behaviour, token_file: Path | None = None) -> SourceError:
    error = against(behave, failure, token_file=token_file)
    assert error.kind in SourceError.KINDS
    assert str(error).startswith(f"{error.kind}: ")
    assert "\n" not in str(error)
    assert "127.0.0.1:" in str(error), "it says which host"
    return error


# Good answers


def test_an_answer_becomes_a_reading_with_its_detail_packed():
    reading = against(Agent(SNAPSHOT), XmlRpcSource.poll)
    assert reading.summary == summarize(SNAPSHOT)
    assert reading.detail() == SNAPSHOT


def test_an_unchanged_reading_is_not_sent_again_but_grows_old():
    agent = Agent(SNAPSHOT)

    async def twice(source):
        first = await source.poll()
        agent.age = 4.5
        return first, await source.poll()

    first, second = against(agent, twice)
    assert (first.summary.sample_age_seconds, second.summary.sample_age_seconds) == (0.0, 4.5)
    assert second.packed is first.packed
    assert second.summary.gpus == first.summary.gpus


def test_news_replace_what_was_known():
    agent = Agent(SNAPSHOT)

    async def twice(source):
        await source.poll()
        agent.snapshot, agent.revision = a_snapshot(a_gpu(0)), "a-2"
        return await source.poll()

    assert len(against(agent, twice).summary.gpus) == 1


def test_a_sampler_that_stopped_is_told_with_the_unchanged_reading():
    answers = [WHOLE, an_unchanged_answer("a-1", 40.0, "the sampler\x1b[31m hangs")]

    async def behave(reader, writer):
        for answer in answers:
            await read_request(reader)
            writer.write(http(answer))

    async def twice(source):
        await source.poll()
        return await source.poll()

    reading = against(behave, twice)
    assert reading.summary.sampler_error == "the sampler\ufffd[31m hangs"
    assert reading.summary.sample_age_seconds == 40.0


def test_one_connection_is_kept_for_all_polls():
    agent = Agent(SNAPSHOT)

    async def thrice(source):
        for _ in range(3):
            await source.poll()

    against(agent, thrice)
    assert (agent.connections, len(agent.requests)) == (1, 3)


def test_a_kept_connection_that_the_agent_closed_is_no_failure():
    agent = Agent(SNAPSHOT)
    agent.hang_up = True

    async def twice(source):
        await source.poll()
        await source.poll()

    against(agent, twice)
    assert agent.connections == 2


def test_the_request_is_plain_xml_rpc():
    agent = Agent(SNAPSHOT)

    async def twice(source):
        await source.poll()
        await source.poll()

    against(agent, twice)
    (headers, first), (_, second) = agent.requests
    assert headers["request"] == "POST /RPC2 HTTP/1.1"
    assert headers["content-type"] == "text/xml"
    assert headers["accept-encoding"] == "identity"
    assert xmlrpc.client.loads(first) == ((), "poll")
    assert xmlrpc.client.loads(second) == (("a-1",), "poll")


def test_a_revision_that_is_markup_comes_back_as_it_was():
    agent = Agent(SNAPSHOT, revision="a&amp;-1")  # as it stands in the XML

    async def twice(source):
        await source.poll()
        await source.poll()

    against(agent, twice)
    assert xmlrpc.client.loads(agent.requests[1][1]) == (("a&-1",), "poll")


@pytest.mark.parametrize("encoding", ["", "Transfer-Encoding: chunked"])
def test_answers_without_a_length_are_read_too(encoding):
    head = f"HTTP/1.1 200 OK\r\nConnection: close\r\n{encoding}".rstrip().encode() + b"\r\n\r\n"
    body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(WHOLE), WHOLE) if encoding else WHOLE
    assert against(saying(head + body), XmlRpcSource.poll).detail() == SNAPSHOT


def test_an_answer_that_a_proxy_compressed_is_read():
    answer = http(gzip.compress(WHOLE), "200 OK", "Content-Encoding: gzip")
    assert against(saying(answer), XmlRpcSource.poll).detail() == SNAPSHOT


# Agents of other versions


def answered(summary: object) -> Behaviour:
    return saying(http(enveloped(array([string(b"r"), string(encode(summary)), string(b"H4sI")]))))


def test_unknown_keys_of_a_newer_agent_are_ignored_and_missing_ones_unknown():
    newer = {"schema": SCHEMA + 1, "colour": "red", "gpus": [{"index": 3, "warp": [1, {}]}]}
    summary = against(answered(newer), XmlRpcSource.poll).summary
    assert summary.gpus[0].index == 3
    assert summary.gpus[0].utilization_percent is None
    assert summary.sample_age_seconds is None


def test_the_detail_of_a_newer_agent_and_of_an_older_one_can_be_opened():
    newer = {"schema": SCHEMA + 1, "colour": "red", "gpus": [{"index": 3, "warp": [1, {}]}]}
    for told in (newer, {"schema": SCHEMA, "gpus": [{"index": 3}]}):
        packed = base64.b64encode(gzip.compress(encode(told)))
        body = enveloped(array([string(b"r"), string(encode(told)), string(packed)]))
        detail = against(saying(http(body)), XmlRpcSource.poll).detail()
        assert [gpu.index for gpu in detail.gpus] == [3]
        assert (detail.gpus[0].processes, detail.gpu_count) == (None, None)


@pytest.mark.parametrize(
    ("schema", "to_update"), [(SCHEMA + 1, "this server"), (SCHEMA - 1, "that host")]
)
def test_a_schema_that_can_not_be_read_says_who_has_to_update(schema, to_update):
    error = failure_of(answered({"schema": schema, "gpus": {"0": "other"}}))
    assert error.kind == "version too old"
    assert str(error).endswith(f"Update gpumon on {to_update}")


def test_an_xml_rpc_server_that_is_no_agent_is_told_apart():
    async def behave(reader, writer):
        while True:
            _, body = await read_request(reader)
            method = xmlrpc.client.loads(body)[1]
            words = f"<class 'Exception'>:method \"{method}\" is not supported"
            writer.write(http(xmlrpc.client.dumps(xmlrpc.client.Fault(1, words)).encode()))

    error = failure_of(behave)
    assert error.kind == "version too old"
    assert "neither the method poll()" in str(error)


def test_a_fault_of_the_agent_is_shown_clean_and_short():
    fault = xmlrpc.client.Fault(5, "Traceback\x7f (most recent" + "x" * 5000)
    error = failure_of(saying(http(xmlrpc.client.dumps(fault).encode())))
    assert error.kind == "failed"
    assert "Traceback\ufffd (most" in str(error)
    assert len(str(error)) < 400


# Everything else that may answer


def test_a_wrong_token_is_told_apart_from_a_missing_one(tmp_path):
    agent = Agent(SNAPSHOT)
    agent.token = "secret"
    assert "none is configured" in str(failure_of(agent))
    tokens = tmp_path / "token"
    tokens.write_text("not-it\nsecret\n")
    tokens.chmod(0o600)
    error = failure_of(agent, tokens)
    assert error.kind == "wrong token"
    assert str(error).endswith("refused it (401). Put the agent's token first in token_file")
    tokens.write_text("secret\n")
    assert against(agent, XmlRpcSource.poll, token_file=tokens).detail() == SNAPSHOT


@pytest.mark.parametrize(
    ("said", "kind", "found"),
    [
        (http(b"<html>It works</html>"), "bad answer", "found an HTML page"),
        (http(b""), "bad answer", "found an empty answer"),
        (http(b"hello"), "bad answer", "found something that is not XML"),
        (http(b"{}"), "bad answer", "found JSON"),
        (http(b"", "404 Not Found"), "bad answer", "found HTTP status 404 (Not Found)"),
        (http(b"", "502 \x1b[31mBad"), "bad answer", "found HTTP status 502"),
        (http(b"", "500"), "bad answer", "found HTTP status 500"),
        (
            http(b"", "302 Found", "Location: http://127.0.0.1:1/login"),
            "bad answer",
            "found a redirect (HTTP status 302)",
        ),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "bad answer", "found an SSH banner"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "bad answer", "found TLS"),
        (b"220 mail.example ESMTP\r\n", "bad answer", "found something that is not HTTP"),
        (b"\0\xff\0\xff" * 100, "bad answer", "found something that is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000, "bad answer", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", "bad answer", "not HTTP"),
        (b"", "bad answer", "found a connection closed without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "bad answer", "closed without an answer"),
        (http(b"<!DOCTYPE x [<!ENTITY a 'b'>]><x>&a;</x>"), "bad answer", "<!DOCTYPE>"),
        (
            http(gzip.compress(bytes(100 * 2**20)), "200 OK", "Content-Encoding: gzip"),
            "bad answer",
            "unpacks to 200 times its size",
        ),
        (
            http(an_unchanged_answer("a-9", 1.0)),
            "bad answer",
            "an unchanged reading that was never sent",
        ),
        (
            http(enveloped(array([string(b"r")] * 4))),
            "bad answer",
            "4 values instead of two or three",
        ),
        (http(enveloped(array([]))), "bad answer", "0 values instead of two or three"),
        (
            http(enveloped(array([string(b"r"), string(b"{}"), string(b"%%%")]))),
            "bad answer",
            "a detail that is not base64",
        ),
        (
            http(enveloped(array([string(b"r"), string(b"{}"), string(b"QUJD" * 600_000)]))),
            "bad answer",
            "a detail of more than 2 MiB",
        ),
        (
            http(enveloped(array([string(b"r"), string(b'{"gpus": [{"index": "a"}]}'), EMPTY]))),
            "bad answer",
            "Expected `int`, got `str` - at `$.gpus[0].index`",
        ),
        (
            http(enveloped(array([string(b"r"), string(MANY_GPUS), EMPTY]))),
            "bad answer",
            "a summary that can't be read (expected at most 64 GPUs, found 65)",
        ),
    ],
)
def test_what_is_no_agent_is_named_in_one_sentence(said, kind, found):
    error = failure_of(saying(said))
    assert error.kind == kind
    assert found in str(error)


def test_an_answer_cut_at_any_place_is_a_failed_poll():
    whole = http(WHOLE)
    for end in range(0, len(whole), 97):
        error = failure_of(saying(whole[:end]))
        assert error.kind == "bad answer", end
    assert "an answer cut short" in str(failure_of(saying(whole[:-1])))


@pytest.mark.parametrize("with_length", [True, False])
def test_an_answer_of_60_megabytes_is_given_up_at_the_limit(with_length):
    sent = 0

    async def behave(reader, writer):
        nonlocal sent
        await read_request(reader)
        length = f"Content-Length: {60 * 2**20}\r\n" if with_length else ""
        writer.write(f"HTTP/1.1 200 OK\r\n{length}\r\n".encode())
        for _ in range(60 * 16):
            writer.write(b"x" * 2**16)
            await writer.drain()
            sent += 2**16

    error = against(behave, _poll_failure)
    assert "more than 8 MiB" in str(error)
    assert sent < 2 * MAX_BYTES


async def _poll_failure(source: XmlRpcSource) -> SourceError:
    with pytest.raises(SourceError) as caught:
        await source.poll()
    return caught.value


def test_a_host_that_closes_at_once_is_told():
    async def behave(reader, writer):
        writer.close()

    assert failure_of(behave).kind == "bad answer"


def test_a_port_where_nothing_listens_is_refused():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    error = asyncio.run(_failure_at("127.0.0.1", port))
    assert error.kind == "refused"
    assert f"nothing listens on 127.0.0.1:{port}" in str(error)
    assert "'gpumon agent' running" in str(error)


def test_a_name_without_an_address_is_not_found():
    error = asyncio.run(_failure_at("nonexistent.invalid", 8043))
    assert error.kind == "name not found"
    assert "nonexistent.invalid:8043 has no address" in str(error)


async def _failure_at(host: str, port: int) -> SourceError:
    entry = an_entry("x", port, host=host)
    connections = Connections(a_config(entry))
    try:
        with pytest.raises(SourceError) as caught:
            await asyncio.wait_for(XmlRpcSource(entry, connections).poll(), 10)
        return caught.value
    finally:
        await connections.close()


@pytest.mark.parametrize("first", ["refuses", "is silent"])
def test_a_dead_first_address_of_a_name_does_not_hide_the_second(first):
    def lookup(*_: object, **__: object) -> list[object]:
        addresses = ("127.0.0.99", "127.0.0.1")  # nothing listens on the first
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, 0)) for a in addresses]

    async def run() -> Reading:
        async with listening(Agent(SNAPSHOT)) as port:
            entry = an_entry("x", port, host="two-addresses")
            connections = Connections(a_config(entry), Resolver(lookup))
            with deaf("127.0.0.99", port) if first == "is silent" else nullcontext():
                try:
                    return await asyncio.wait_for(XmlRpcSource(entry, connections).poll(), 5)
                finally:
                    await connections.close()

    assert asyncio.run(run()).detail() == SNAPSHOT


def test_an_ipv6_address_is_asked_in_brackets():
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")

    async def run() -> Reading:
        async with listening(Agent(SNAPSHOT), host="::1") as port:
            entry = an_entry("x", port, host="::1")
            connections = Connections(a_config(entry))
            try:
                return await asyncio.wait_for(XmlRpcSource(entry, connections).poll(), 5)
            finally:
                await connections.close()

    assert asyncio.run(run()).detail() == SNAPSHOT


# How far a poll had come when its time was over


async def silent(reader, writer):
    await asyncio.sleep(3600)


def test_a_host_that_accepts_and_says_nothing_times_out_while_waiting():
    error = failure_of(silent)
    assert error.kind == "timed out"
    assert "within 0.3 s, while waiting for its answer" in str(error)


def test_an_answer_that_drips_times_out_while_reading():
    async def drip(reader, writer):
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    assert "while reading its answer" in str(failure_of(drip))


def test_a_full_backlog_times_out_while_connecting():
    async def run() -> SourceError:
        with deaf("127.0.0.1") as port:
            entry = an_entry("x", port)
            connections = Connections(a_config(entry))
            try:
                return await failure(XmlRpcSource(entry, connections))
            finally:
                await connections.close()

    error = asyncio.run(run())
    assert error.kind == "timed out"
    assert "while connecting" in str(error)


# What must be right before the first poll


def test_an_unreadable_token_file_stops_the_start(tmp_path):
    async def run() -> None:
        with pytest.raises(StartError, match="token_file"):
            Connections(a_config(token_file=tmp_path / "missing"))

    asyncio.run(run())


def test_a_host_that_is_no_agent_is_asked_without_the_token(tmp_path):
    tokens = tmp_path / "token"
    tokens.write_text("s3cret-token\n")
    tokens.chmod(0o600)
    asked: list[dict[str, str]] = []

    async def behave(reader, writer):
        while True:
            headers, _ = await read_request(reader)
            asked.append(headers)
            writer.write(http(b'{"gpus": []}'))

    async def both(source: XmlRpcSource) -> tuple[int, str | None, bytes]:
        connections = source._connections
        await connections.post(source._url, b"x", source)
        return await connections.get(source._url.replace("/RPC2", "/gpu_status?a=b"), source)

    assert against(behave, both, token_file=tokens) == (200, "OK", b'{"gpus": []}')
    assert [headers["request"] for headers in asked] == [
        "POST /RPC2 HTTP/1.1",
        "GET /gpu_status?a=b HTTP/1.1",
    ]
    assert [headers.get("authorization") for headers in asked] == ["Bearer s3cret-token", None]


def test_the_token_is_in_no_sentence(tmp_path):
    tokens = tmp_path / "token"
    tokens.write_text("s3cret-token\n")
    tokens.chmod(0o600)
    for said in (http(b"", "401 No"), b"SSH-2.0\r\n", http(b"s"), b""):
        assert "s3cret" not in str(failure_of(saying(said), tokens))


def test_hostile_text_is_cleaned_in_summary_and_detail():
    evil = a_snapshot(
        a_gpu(0, processes=[a_process(user="a\x1b[31m", command="rm\u202e", program="x" * 10_000)])
    )
    reading = against(saying(http(an_answer(evil))), XmlRpcSource.poll)
    holder = reading.summary.gpus[0].holders[0]
    assert holder.user == "a\ufffd[31m"
    assert len(str(holder.program)) <= 1024
    process = reading.detail().gpus[0].processes[0]
    assert (process.user, process.command) == ("a\ufffd[31m", "rm\ufffd")


def test_a_clean_answer_is_decoded_without_a_second_look(monkeypatch):
    monkeypatch.setattr(msgspec, "convert", None)
    assert against(Agent(SNAPSHOT), XmlRpcSource.poll).summary.hostname == "gpu-01"
