"""The agent's side: `Pusher` against the real server, and against servers that misbehave."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import msgspec
import pytest
from certificates import issue
from cluster_tools import BROKEN_OFF, a_config, a_gpu, a_snapshot, http, listening, saying, until

from gpumon.agent import push as push_module
from gpumon.agent.latest import Latest
from gpumon.agent.post import PostClient
from gpumon.agent.push import LONGEST_PAUSE_SECONDS, Pusher, PushFailed
from gpumon.cluster.fleet import Fleet
from gpumon.cluster.sources.pushed import PushInbox
from gpumon.config import HostEntry, TlsConfig
from gpumon.http.push_tokens import PushTokens
from gpumon.http.server import Site, open_sockets, serve
from gpumon.model import encode
from gpumon.summary import summarize
from gpumon.web.app import make_app
from gpumon.web.entrances import body_limit_of
from gpumon.web.push import PushDesk
from gpumon.web.refused_pushes import Refusals

GPU_09 = HostEntry(name="gpu-09", source="pushed", address="push://gpu-09", host="gpu-09")
SNAPSHOT = a_snapshot(a_gpu(), sample_age_seconds=None)


class Sampled:
    """The newest sample of an agent, as its supervisor would give it."""

    def __init__(self) -> None:
        self.latest = Latest(revision="x-0", interval=1.0)

    def sample(self, revision: str = "x-1") -> None:
        self.latest = Latest(
            revision=revision,
            interval=1.0,
            snapshot=encode(SNAPSHOT),
            summary=encode(summarize(SNAPSHOT)),
            taken_at=time.monotonic(),
            sampler_error=None,
        )

    def pusher(self, url: str, token: str = "tok", **more: object) -> Pusher:
        return Pusher(lambda: self.latest, url=url, name="gpu-09", token=lambda: token, **more)


class Server:
    """The real application with a memory of its own; `restarted` makes it forget everything."""

    def __init__(self) -> None:
        self.config = a_config(GPU_09)
        self.bodies: list[int] = []
        self.restarted()

    def restarted(self) -> None:
        self.fleet = Fleet(self.config)
        inbox = PushInbox(self.fleet, accept_new=False)
        self.ways_in = [PushDesk(inbox, PushTokens(["tok"]), Refusals())]
        self.app = make_app(
            status=self.fleet.status,
            detail=self.fleet.detail,
            config=self.config,
            entrances=self.ways_in,
        )

    def __call__(self, environ, start_response):
        self.bodies.append(int(environ.get("CONTENT_LENGTH", 0)))
        return self.app(environ, start_response)


@asynccontextmanager
async def serving(server: Server, tls: TlsConfig | None = None) -> AsyncIterator[int]:
    limit: Callable[..., int | None] = partial(body_limit_of, server.ways_in)
    site = Site(name="web", app=server, binds=["127.0.0.1:0"], tls=tls, body_limit=limit)
    port = int(open_sockets(site)[0].rpartition(":")[2])
    shutdown = asyncio.Event()
    task = asyncio.create_task(serve([site], shutdown))
    try:
        yield port
    finally:
        shutdown.set()
        await asyncio.wait_for(task, 10)


def run(work) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


def test_every_sample_arrives_and_a_known_one_in_a_short_call():
    async def work() -> None:
        sampled, server = Sampled(), Server()
        async with serving(server) as port:
            pusher = sampled.pusher(f"http://127.0.0.1:{port}")
            await pusher.push()
            host = server.fleet.status().hosts[0]
            assert (host.state, host.reason) == ("stale", "no sample has been taken yet")
            sampled.sample("x-1")
            await pusher.push()
            assert server.fleet.record("gpu-09").sampled is not None
            assert server.fleet.detail("gpu-09").gpus == SNAPSHOT.gpus
            whole = server.bodies[-1]
            sampled.latest = msgspec.structs.replace(sampled.latest, sampler_error="NVML hangs")
            await pusher.push()
            assert server.fleet.record("gpu-09").sampler_error == "NVML hangs"
            assert server.bodies[-1] < 700 < whole
            sampled.sample("x-2")
            await pusher.push()
            assert server.bodies[-1] == whole
            assert len(server.bodies) == 5, "a greeting, and one call for each push"
            await pusher.close()

    run(work())


def test_a_server_that_was_restarted_gets_everything_at_the_next_push():
    async def work() -> None:
        sampled, server = Sampled(), Server()
        sampled.sample()
        async with serving(server) as port:
            pusher = sampled.pusher(f"http://127.0.0.1:{port}")
            await pusher.push()
            server.restarted()
            await pusher.push()
            assert server.fleet.record("gpu-09").sampled is not None
            await pusher.close()

    run(work())


def test_a_connection_that_the_server_closed_meanwhile_is_made_anew():
    async def work() -> None:
        sampled, server = Sampled(), Server()
        sampled.sample()
        async with serving(server) as port:
            pusher = sampled.pusher(f"http://127.0.0.1:{port}")
            await pusher.push()
            pusher._client[1]._streams[1].transport.get_extra_info("socket").shutdown(
                socket.SHUT_RDWR
            )
            await pusher.push()
            await pusher.close()

    run(work())


@BROKEN_OFF
def test_over_tls_the_server_must_show_a_certificate_of_our_authority(tmp_path):
    async def work() -> None:
        authority = issue(tmp_path, "authority")
        cert = issue(tmp_path, "server", by=authority)
        stranger = issue(tmp_path, "stranger")
        sampled, server = Sampled(), Server()
        sampled.sample()
        async with serving(server, TlsConfig(cert=cert.cert, key=cert.key)) as port:
            url = f"https://127.0.0.1:{port}"
            good = sampled.pusher(url, tls=TlsConfig(ca=authority.cert))
            await good.push()
            assert server.fleet.record("gpu-09").sampled is not None
            await good.close()
            with pytest.raises(PushFailed, match="certificate is not accepted") as caught:
                await sampled.pusher(url, tls=TlsConfig(ca=stranger.cert)).push()
            await asyncio.sleep(0.1)
            assert caught.value.kind == "tls"

    run(work())


def test_a_wrong_token_is_said_and_a_new_one_taken_up_without_a_restart():
    async def work() -> None:
        sampled, server = Sampled(), Server()
        sampled.sample()
        token = ["old"]
        async with serving(server) as port:
            pusher = Pusher(
                lambda: sampled.latest,
                url=f"http://127.0.0.1:{port}",
                name="gpu-09",
                token=lambda: token[0],
            )
            with pytest.raises(PushFailed, match="wrong token") as caught:
                await pusher.push()
            assert "old" not in str(caught.value)
            token[0] = "tok"
            await pusher.push()
            assert server.fleet.record("gpu-09").sampled is not None
            await pusher.close()

    run(work())


def test_a_host_that_is_not_expected_hears_the_servers_sentence():
    async def work() -> None:
        sampled, server = Sampled(), Server()
        async with serving(server) as port:
            pusher = Pusher(
                lambda: sampled.latest,
                url=f"http://127.0.0.1:{port}",
                name="other",
                token=lambda: "tok",
            )
            with pytest.raises(PushFailed, match="write push://other into hosts"):
                await pusher.push()
            await pusher.close()

    run(work())


ANSWERS = {
    "html": http(b"<html>hello</html>"),
    "redirect": http(b"", "301 Moved", "Location: https://elsewhere/"),
    "not found": http(b"", "404 Not Found"),
    "no HTTP": b"SSH-2.0-OpenSSH_9\r\n",
    "nothing": b"",
    "cut short": b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n<?xml",
    "too large": http(b"x" * 100_000),
    "entities": http(b'<!DOCTYPE x [<!ENTITY a "b">]><methodResponse/>'),
    "markup for a ticket": http(
        b"<methodResponse><params><param><value><array><data><value>taken</value>"
        b"<value>&lt;/string&gt;</value></data></array></value></param></params></methodResponse>"
    ),
    "a harmless entity": http(
        b'<!DOCTYPE x [<!ENTITY a "taken">]><methodResponse><params><param><value><array><data>'
        b"<value>&a;</value><value>t-1</value></data></array></value></param></params>"
        b"</methodResponse>"
    ),
    "always again": http(
        b"<methodResponse><params><param><value><array><data><value>again</value>"
        b"<value>t-1</value></data></array></value></param></params></methodResponse>"
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_whatever_answers_that_is_no_server_of_ours_is_one_sentence(case: str):
    async def work() -> None:
        sampled = Sampled()
        sampled.sample()
        async with listening(saying(ANSWERS[case])) as port:
            pusher = sampled.pusher(f"http://127.0.0.1:{port}")
            with pytest.raises(PushFailed) as caught:
                await pusher.push()
            await pusher.close()
        said = str(caught.value)
        assert caught.value.kind == ("not taken" if case == "always again" else "bad answer")
        assert said.startswith(f"{caught.value.kind}: ")
        assert "\n" not in said
        assert len(said) < 400
        assert not any(raw in said for raw in ("<", "SSH-2.0", "x" * 20)), "never shown raw"

    run(work())


def test_a_reading_that_is_too_large_to_push_is_told_on_both_sides(caplog):
    async def work() -> None:
        sampled, server = Sampled(), Server()
        sampled.sample()
        async with serving(server) as port:
            pusher = sampled.pusher(f"http://127.0.0.1:{port}")
            await pusher.push()
            sampled.sample("x-2")
            # Nothing that gzip could make smaller.
            noise = base64.b64encode(os.urandom(900_000)).decode()
            large = encode(msgspec.structs.replace(SNAPSHOT, errors=[noise]))
            sampled.latest = msgspec.structs.replace(sampled.latest, snapshot=large)
            with pytest.raises(PushFailed, match="1 MiB a push at most") as caught:
                await pusher.push()
            await pusher.close()
        assert caught.value.kind == "too large"
        assert "not read" in server.fleet.record("gpu-09").failure.message
        assert caplog.text.count("a push of gpu-09 from 127.0.0.1 was refused") == 1

    run(work())


def test_a_server_that_is_down_is_refused_and_one_without_an_address_not_found():
    async def work() -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with pytest.raises(PushFailed) as caught:
            await Sampled().pusher(f"http://127.0.0.1:{port}").push()
        assert caught.value.kind == "refused"
        with pytest.raises(PushFailed) as caught:
            await Sampled().pusher("http://no-such-name.invalid").push()
        assert caught.value.kind == "name not found"

    run(work())


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n<"])
def test_a_push_has_one_deadline_from_the_name_to_the_answer(monkeypatch, said: bytes):
    monkeypatch.setattr(push_module, "DEADLINE_SECONDS", 0.3)

    async def work() -> None:
        async with listening(saying(said, then_close=False)) as port:
            began = time.monotonic()
            with pytest.raises(PushFailed, match="timed out"):
                await Sampled().pusher(f"http://127.0.0.1:{port}").push()
            assert time.monotonic() - began < 2

    run(work())


def test_a_silent_name_server_costs_one_thread_and_no_end_of_the_agent():
    async def work() -> None:
        started = []

        def silent(*_: object, **__: object):
            started.append(1)
            time.sleep(3)
            return []

        client = PostClient("http://name/RPC2", {}, None, silent)
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.post(b""), 0.1)
        assert len(started) == 1

    began = time.monotonic()
    run(work())
    assert time.monotonic() - began < 2


def test_the_second_address_of_a_name_is_tried_where_the_first_is_dead():
    async def work() -> None:
        async with listening(saying(http(b"yes"))) as port:
            family = socket.AF_INET, socket.SOCK_STREAM, 6, ""

            def two(*_: object, **__: object):
                return [(*family, ("127.255.255.254", port)), (*family, ("127.0.0.1", port))]

            client = PostClient(f"http://name:{port}/RPC2", {}, None, two)
            assert (await client.post(b"")).body == b"yes"
            await client.end()

    run(work())


def test_pauses_vary_around_the_interval_and_grow_while_the_server_fails():
    sampled = Sampled()
    lucky = sampled.pusher("http://x", luck=lambda: 0.0)
    unlucky = sampled.pusher("http://x", luck=lambda: 1.0)
    assert (lucky.pause(0), unlucky.pause(0)) == (0.9, 1.1)
    assert [lucky.pause(n) for n in (1, 2, 3)] == [2.0, 4.0, 8.0]
    assert unlucky.pause(3) == 4.0
    assert lucky.pause(10_000) == LONGEST_PAUSE_SECONDS


def test_the_loop_says_a_failure_once_keeps_nothing_and_recovers(caplog):
    async def work() -> None:
        sampled, server = Sampled(), Server()
        sampled.sample()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        pusher = sampled.pusher(f"http://127.0.0.1:{port}")
        pusher.pause = lambda failures: 0.01  # type: ignore[method-assign]
        loop = asyncio.create_task(pusher.run())
        await until(lambda: "refused" in caplog.text)
        for number in range(20):
            sampled.sample(f"x-{number}")
            await asyncio.sleep(0.01)
        site = Site(name="web", app=server, binds=[f"127.0.0.1:{port}"])
        shutdown = asyncio.Event()
        task = asyncio.create_task(serve([site], shutdown))
        await until(lambda: server.fleet.record("gpu-09").sampled is not None)
        await until(lambda: "taken, as gpu-09" in caplog.text)
        assert len(server.bodies) < 20, "what was missed was pushed later"
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        shutdown.set()
        await asyncio.wait_for(task, 10)

    with caplog.at_level(logging.INFO):
        run(work())
    assert caplog.text.count("nothing listens there") == 1
    assert "tok" not in caplog.text.replace("taken", "")
