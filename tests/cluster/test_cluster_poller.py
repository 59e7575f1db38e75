"""The poller: every host for itself, whatever the others do."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import time
import weakref
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from cluster_tools import (
    Agent,
    a_config,
    a_gpu,
    a_reading,
    a_snapshot,
    an_answer,
    an_entry,
    http,
    listening,
    read_request,
    saying,
    until,
)

from gpumon.cluster import poller as poller_module
from gpumon.cluster.fleet import Fleet
from gpumon.cluster.poller import Poller, poll_forever
from gpumon.cluster.sources.base import Reading
from gpumon.config import Config, HostEntry
from gpumon.errors import SourceError, StartError

TIMEOUT = 0.4
SNAPSHOT = a_snapshot(a_gpu(), time=None)


class Scripted:
    """A source that does what `answer` does at each poll."""

    def __init__(self, answer: Callable[[int], Awaitable[Reading]]) -> None:
        self.polls = 0
        self.running = 0
        self._answer = answer

    async def poll(self) -> Reading:
        self.polls += 1
        self.running += 1
        assert self.running == 1, "two polls of one host at once"
        try:
            return await self._answer(self.polls)
        finally:
            self.running -= 1

    def timed_out(self, seconds: float) -> SourceError:
        return SourceError("timed out", f"timed out: nothing within {seconds:g} s")

    async def close(self) -> None:
        pass


async def good(_: int) -> Reading:
    return a_reading(a_gpu())


async def hang(_: int) -> Reading:
    await asyncio.sleep(3600)
    raise AssertionError


def scripted_config(*names: str, **fields: object) -> Config:
    entries = [HostEntry(name=name, source="xmlrpc", address=name) for name in names]
    return a_config(*entries, **{"poll_interval": 0.1, "rpc_timeout": TIMEOUT, **fields})


async def running(
    sources: dict[str, Scripted],
    check: Callable[[Fleet], Awaitable[None]],
    **fields: object,
) -> None:
    """Run `check` while a poller asks `sources`."""
    config = scripted_config(*sources, **fields)
    fleet = Fleet(config)
    task = asyncio.create_task(Poller(fleet, config, sources).run())
    try:
        await check(fleet)
    finally:
        task.cancel()
        await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), 3)


def run(work: Awaitable[None]) -> None:
    asyncio.run(asyncio.wait_for(work, 20))


def state_of(fleet: Fleet, host: str) -> str:
    return next(h.state for h in fleet.status().hosts if h.name == host)


# The whole zoo on the real wire


def test_healthy_hosts_are_fresh_at_once_and_stay_so_beside_every_kind_of_bad_one():
    async def silent(reader, writer):
        await asyncio.sleep(3600)

    async def drip(reader, writer):
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    bad = {
        "silent": (silent, "timed out"),
        "drip": (drip, "timed out"),
        "html": (saying(http(b"<html>")), "bad answer"),
        "ssh": (saying(b"SSH-2.0-OpenSSH\r\n"), "bad answer"),
        "cut": (saying(http(an_answer(SNAPSHOT))[:-40]), "bad answer"),
        "closed": (saying(b""), "bad answer"),
        "redirect": (saying(http(b"", "302 Found", "Location: /x")), "bad answer"),
        "stranger": (saying(http(b"", "401 Unauthorized")), "wrong token"),
    }

    async def work() -> None:
        async with AsyncExitStack() as stack:
            entries, agents = [], []
            for name, (behave, _) in bad.items():
                port = await stack.enter_async_context(listening(behave))
                entries += [an_entry(f"{name}{i}", port) for i in range(8)]
            for i in range(5):
                agents.append(Agent(SNAPSHOT))
                port = await stack.enter_async_context(listening(agents[-1]))
                entries.append(an_entry(f"good{i}", port))
            with socket.socket() as closed:
                closed.bind(("127.0.0.1", 0))
                entries.append(an_entry("refused", closed.getsockname()[1]))
            entries.append(an_entry("nameless", 8043, host="nonexistent.invalid"))
            config = a_config(*entries, poll_interval=0.5, rpc_timeout=TIMEOUT)
            fleet = Fleet(config)
            task = asyncio.create_task(poll_forever(fleet, config))
            await until(lambda: all(fleet.record(f"good{i}").answered for i in range(5)), 3)
            await until(lambda: all(fleet.record(e.name).asked for e in entries))
            await until(lambda: all(len(agent.requests) >= 4 for agent in agents))
            for name, (_, kind) in bad.items():
                for i in range(8):
                    assert fleet.record(f"{name}{i}").failure.kind == kind, name
            assert fleet.record("refused").failure.kind == "refused"
            assert fleet.record("nameless").failure.kind == "name not found"
            assert state_of(fleet, "good0") == "fresh"
            assert fleet.status().totals.hosts_fresh == 5
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run(work())


def test_an_agent_that_restarts_is_seen_again():
    async def work() -> None:
        agent = Agent(SNAPSHOT)
        async with listening(agent) as port:
            entry = an_entry("one", port)
            config = a_config(entry, poll_interval=0.2, rpc_timeout=TIMEOUT)
            fleet = Fleet(config)
            task = asyncio.create_task(poll_forever(fleet, config))
            await until(lambda: fleet.record("one").answered is not None)
        await until(lambda: fleet.record("one").failure is not None)
        assert fleet.record("one").failure.kind in ("refused", "bad answer")
        assert fleet.record("one").reading is not None
        reborn = Agent(a_snapshot(a_gpu(0), a_gpu(1), time=None), revision="b-1")
        async with listening(reborn, port=port):
            await until(lambda: fleet.record("one").failure is None, 3)
            assert len(fleet.status().hosts[0].gpus) == 2
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run(work())


# One host's loop


def test_a_host_is_asked_at_once_and_then_again_and_again():
    source = Scripted(good)

    async def check(fleet: Fleet) -> None:
        await until(lambda: source.polls >= 4)
        assert fleet.record("a").next_poll is not None
        assert state_of(fleet, "a") == "fresh"

    run(running({"a": source}, check))


def test_a_poll_that_hangs_is_cut_off_at_its_deadline_and_asked_again():
    source = Scripted(hang)

    async def check(fleet: Fleet) -> None:
        began = time.monotonic()
        await until(lambda: fleet.record("a").failure is not None)
        assert TIMEOUT - 0.05 < time.monotonic() - began < TIMEOUT + 2.0
        assert fleet.record("a").failure.message == "timed out: nothing within 0.4 s"
        await until(lambda: source.polls >= 3)

    run(running({"a": source}, check))


def test_hosts_that_hang_do_not_make_the_rest_wait_for_their_deadline(monkeypatch):
    monkeypatch.setattr(poller_module, "MOST_BEGINNING", 4)
    monkeypatch.setattr(poller_module, "BEGINNING_SECONDS", 0.05)
    sources = {f"hang{i}": Scripted(hang) for i in range(12)} | {"good": Scripted(good)}

    async def check(fleet: Fleet) -> None:
        began = time.monotonic()
        await until(lambda: fleet.record("good").answered is not None)
        assert time.monotonic() - began < 3.0

    run(running(sources, check, rpc_timeout=10.0, poll_interval=10.0))


def test_hosts_that_go_on_hanging_do_not_delay_the_rounds_of_the_others(monkeypatch):
    monkeypatch.setattr(poller_module, "MOST_BEGINNING", 2)
    monkeypatch.setattr(poller_module, "BEGINNING_SECONDS", 0.2)
    # In turn they fill two places for 3 seconds, and are due again after half a second.
    sources = {f"hang{i}": Scripted(hang) for i in range(30)} | {"good": Scripted(good)}

    async def check(fleet: Fleet) -> None:
        await until(lambda: all(fleet.record(name).asked for name in sources), 10)
        before, began = sources["good"].polls, time.monotonic()
        await until(lambda: sources["good"].polls >= before + 4)
        assert time.monotonic() - began < 3.0

    run(running(sources, check, rpc_timeout=0.3, poll_interval=0.5))


def test_the_start_does_not_open_all_connections_in_one_moment(monkeypatch):
    monkeypatch.setattr(poller_module, "MOST_BEGINNING", 3)
    begun = most = 0

    async def counting(_: int) -> Reading:
        nonlocal begun, most
        begun += 1
        most = max(most, begun)
        await asyncio.sleep(0.02)
        begun -= 1
        return a_reading(a_gpu())

    sources = {f"h{i}": Scripted(counting) for i in range(20)}

    async def check(fleet: Fleet) -> None:
        await until(lambda: fleet.status().totals.hosts_fresh == 20)

    run(running(sources, check, poll_interval=30.0))
    assert most == 3


def test_the_polls_of_a_round_are_spread_evenly_over_it():
    names = [f"h{i}" for i in range(4)]

    async def check(fleet: Fleet) -> None:
        await until(lambda: all(fleet.record(name).next_poll for name in names))
        turns = [fleet.record(name).next_poll for name in names]
        offsets = sorted((turn - turns[0]) % 100.0 for turn in turns)
        assert offsets == pytest.approx([0.0, 25.0, 50.0, 75.0])

    run(running({name: Scripted(good) for name in names}, check, poll_interval=100.0))


def test_an_unexpected_error_costs_its_host_one_poll_and_is_logged_once(caplog):
    async def broken(count: int) -> Reading:
        if count < 4:
            raise ZeroDivisionError("a bug")
        return a_reading(a_gpu())

    async def check(fleet: Fleet) -> None:
        await until(lambda: fleet.record("a").failure is not None)
        failure = fleet.record("a").failure
        assert failure.kind == "failed"
        assert failure.message.startswith("failed: ZeroDivisionError: a bug.")
        await until(lambda: fleet.record("a").answered is not None)
        await until(lambda: fleet.record("b").answered is not None)

    with caplog.at_level(logging.INFO):
        run(running({"a": Scripted(broken), "b": Scripted(good)}, check))
    assert caplog.text.count("Traceback") == 1
    assert "a: answers" in caplog.text


def test_a_reading_that_trips_the_fleet_costs_its_host_only():
    async def poisoned(_: int) -> Reading:
        reading = a_reading(a_gpu())
        reading.summary.gpus[0].memory_used_mib = "much"  # type: ignore[assignment]
        return reading

    async def check(fleet: Fleet) -> None:
        await until(lambda: fleet.record("a").failure is not None)
        await until(lambda: fleet.record("b").answered is not None)
        assert "TypeError" in fleet.record("a").failure.message

    run(running({"a": Scripted(poisoned), "b": Scripted(good)}, check))


def test_a_poll_that_cancels_itself_does_not_end_the_loop():
    async def odd(count: int) -> Reading:
        if count == 1:
            raise asyncio.CancelledError
        return a_reading(a_gpu())

    async def check(fleet: Fleet) -> None:
        await until(lambda: fleet.record("a").answered is not None)

    run(running({"a": Scripted(odd)}, check))


def test_a_change_is_logged_and_not_every_failure(caplog):
    async def flaky(count: int) -> Reading:
        if count == 5:
            return a_reading(a_gpu())
        kind = "refused" if count < 3 else "timed out"
        raise SourceError(kind, f"{kind}: number {count}")

    source = Scripted(flaky)

    async def check(fleet: Fleet) -> None:
        await until(lambda: source.polls >= 8)

    with caplog.at_level(logging.INFO):
        run(running({"a": source}, check))
    lines = [record.getMessage() for record in caplog.records if "a: " in record.getMessage()]
    assert lines[:4] == [
        "a: refused: number 1",
        "a: timed out: number 3",
        "a: answers",
        "a: timed out: number 6",
    ]
    assert len(lines) == 4


def test_an_answer_that_comes_after_the_deadline_is_nobodys():
    async def stubborn(count: int) -> Reading:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return a_reading(a_gpu(0), a_gpu(1))  # answers all the same
        raise AssertionError

    async def check(fleet: Fleet) -> None:
        await until(lambda: fleet.record("a").failure is not None)
        await asyncio.sleep(0.05)
        assert fleet.record("a").reading is None

    run(running({"a": Scripted(stubborn)}, check))


def test_a_poll_that_can_not_be_cut_off_is_not_doubled(monkeypatch):
    monkeypatch.setattr(poller_module, "CANCEL_SECONDS", 0.05)
    release = asyncio.Event()

    async def deaf(_: int) -> Reading:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return a_reading(a_gpu())

    source = Scripted(deaf)

    async def check(fleet: Fleet) -> None:
        await until(
            lambda: (failure := fleet.record("a").failure) and "has not ended" in failure.message
        )
        assert source.polls == 1
        release.set()
        await until(lambda: fleet.record("a").answered is not None)

    run(running({"a": source}, check))


def test_without_hosts_the_poller_waits_and_does_not_end():
    async def check(fleet: Fleet) -> None:
        await asyncio.sleep(0.05)
        assert fleet.status().hosts == []

    async def work() -> None:
        config = scripted_config()
        task = asyncio.create_task(poll_forever(Fleet(config), config))
        done, _ = await asyncio.wait({task}, timeout=0.1)
        assert not done
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(running({}, check))
    run(work())


def test_a_token_file_that_is_not_there_is_told_before_the_first_poll(tmp_path):
    config = scripted_config(token_file=tmp_path / "none")
    with pytest.raises(StartError, match="token_file"):
        run(poll_forever(Fleet(config), config))


def test_what_a_failed_poll_had_read_is_not_kept_for_the_garbage_collector():
    class Mebibytes(bytearray):
        pass

    kept: list[weakref.ref[Mebibytes]] = []

    async def bloated(_: int) -> Reading:
        read = Mebibytes(2**20)
        kept.append(weakref.ref(read))
        try:
            raise ValueError(f"{len(read)} bytes of nothing")
        except ValueError as error:
            raise SourceError("bad answer", "bad answer: nothing") from error

    async def check(fleet: Fleet) -> None:
        gc.disable()
        try:
            await until(lambda: len(kept) >= 4)
            assert [ref() for ref in kept[:3]] == [None, None, None]
        finally:
            gc.enable()

    run(running({"a": Scripted(bloated)}, check))


def test_the_garbage_collector_is_as_before_when_polling_ends():
    before = gc.get_threshold()

    async def work() -> None:
        config = scripted_config()
        task = asyncio.create_task(poll_forever(Fleet(config), config))
        await until(lambda: gc.get_threshold() != before)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(work())
    assert gc.get_threshold() == before
