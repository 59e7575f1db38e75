"""Hosts added, removed and changed while the poller runs: the others notice nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from cluster_tools import Clock, a_config, a_gpu, a_process, a_reading, until

from gpumon.cluster.fleet import Fleet
from gpumon.cluster.pace import Pace
from gpumon.cluster.poller import Poller, _Host
from gpumon.cluster.sources.base import Reading
from gpumon.config import Config, HostEntry
from gpumon.errors import SourceError


class Source:
    """Answers, unless `answer` says otherwise; knows whether it was closed while it was asked."""

    def __init__(self, answer: Callable[[], Awaitable[Reading]] | None = None) -> None:
        self.polls = 0
        self.running = 0
        self.closed = False
        self._answer = answer

    async def poll(self) -> Reading:
        self.polls += 1
        self.running += 1
        assert self.running == 1, "two polls of one host at once"
        try:
            return a_reading(a_gpu()) if self._answer is None else await self._answer()
        finally:
            self.running -= 1

    def timed_out(self, seconds: float) -> SourceError:
        return SourceError("timed out", f"timed out: nothing within {seconds:g} s")

    async def close(self) -> None:
        assert self.running == 0
        self.closed = True


async def hang() -> Reading:
    await asyncio.sleep(3600)
    raise AssertionError


def config_of(*names: str, **fields: object) -> Config:
    entries = [HostEntry(name=name, source="xmlrpc", address=name) for name in names]
    return a_config(*entries, **{"poll_interval": 0.1, "rpc_timeout": 0.4, **fields})


class Lab:
    """A running poller and its fleet."""

    def __init__(self, sources: dict[str, Source], **fields: object) -> None:
        self.config = config_of(*sources, **fields)
        self.fleet = Fleet(self.config)
        self.sources = sources
        self.poller = Poller(self.fleet, self.config, sources)

    def update(self, sources: dict[str, Source], **fields: object) -> None:
        config = config_of(*sources, **fields)
        self.fleet.reconfigure(config)
        self.poller.update(config, sources)

    def run(self, check: Callable[[], Awaitable[None]]) -> None:
        async def work() -> None:
            task = asyncio.create_task(self.poller.run())
            try:
                await check()
                assert not task.done()
            finally:
                task.cancel()
                await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), 3)

        asyncio.run(asyncio.wait_for(work(), 20))


# The poller


def test_a_host_that_is_added_is_asked_at_once_and_the_others_go_on():
    lab = Lab({"a": Source()})
    a, b = lab.sources["a"], Source()

    async def check() -> None:
        await until(lambda: a.polls >= 2)
        lab.update({"b": b, "a": a})
        before = a.polls
        await until(lambda: b.polls >= 2 and a.polls >= before + 2)
        assert [host.name for host in lab.fleet.status().hosts] == ["b", "a"]
        assert not a.closed

    lab.run(check)


def test_a_host_that_is_removed_is_not_asked_again_and_its_source_is_closed():
    lab = Lab({"a": Source(), "b": Source(hang)})
    a, b = lab.sources["a"], lab.sources["b"]

    async def check() -> None:
        await until(lambda: a.polls >= 1 and b.running)
        lab.update({"a": a})
        await until(lambda: b.closed)
        polls = b.polls
        await until(lambda: a.polls >= 4)
        assert b.polls == polls
        assert [host.name for host in lab.fleet.status().hosts] == ["a"]

    lab.run(check)


def test_a_host_with_another_source_is_asked_through_that_one_only():
    lab = Lab({"a": Source()})
    old, new = lab.sources["a"], Source()

    async def check() -> None:
        await until(lambda: old.polls >= 1)
        lab.update({"a": new})
        polls = old.polls
        await until(lambda: new.polls >= 3)
        assert old.closed
        assert old.polls == polls

    lab.run(check)


def test_a_source_that_can_not_be_closed_troubles_nobody(caplog):
    class Stuck(Source):
        async def close(self) -> None:
            raise ZeroDivisionError("a bug")

    lab = Lab({"a": Source(), "b": Stuck()})
    a = lab.sources["a"]

    async def check() -> None:
        await until(lambda: a.polls >= 1)
        lab.update({"a": a})
        before = a.polls
        await until(lambda: a.polls >= before + 2)

    lab.run(check)
    assert "b: its source could not be closed" in caplog.text


def test_a_shorter_interval_holds_at_once():
    lab = Lab({"a": Source()}, poll_interval=3600.0)
    a = lab.sources["a"]

    async def check() -> None:
        await until(lambda: lab.fleet.record("a").next_poll is not None)
        lab.update({"a": a}, poll_interval=0.1)
        await until(lambda: a.polls >= 4)

    lab.run(check)


def test_all_hosts_may_go_and_come():
    lab = Lab({"a": Source()})
    again = Source()

    async def check() -> None:
        await until(lambda: lab.sources["a"].polls >= 1)
        lab.update({})
        await until(lambda: lab.sources["a"].closed)
        lab.update({"a": again})
        await until(lambda: again.polls >= 2)

    lab.run(check)


def test_a_host_that_stays_is_asked_when_it_was_planned_whoever_comes_or_goes():
    lab = Lab({"a": Source(), "b": Source()}, poll_interval=3600.0)
    a, b = lab.sources["a"], lab.sources["b"]

    def planned() -> list[float | None]:
        return [lab.fleet.record(name).next_poll for name in "ab"]

    async def check() -> None:
        await until(lambda: None not in planned())
        before = planned()
        crowd = {f"new-{number}": Source() for number in range(5)}
        for sources in (crowd | {"a": a, "b": b}, {"b": b, "a": a}, {"a": a, "b": b} | crowd):
            lab.update(sources, poll_interval=3600.0)
            await asyncio.sleep(0.01)  # whoever was woken by it would have been asked by now
            assert planned() == before
        assert (a.polls, b.polls) == (1, 1)

    lab.run(check)


def test_a_longer_interval_holds_at_once():
    lab = Lab({"a": Source()}, poll_interval=600.0)

    async def check() -> None:
        await until(lambda: lab.fleet.record("a").next_poll is not None)
        asked = lab.fleet.record("a").asked
        lab.update({"a": lab.sources["a"]}, poll_interval=3600.0)
        await until(lambda: (lab.fleet.record("a").next_poll or 0.0) - (asked or 0.0) > 600)
        assert lab.sources["a"].polls == 1

    lab.run(check)


def test_a_shorter_interval_does_not_ask_all_hosts_at_once():
    lab = Lab({f"h{number}": Source() for number in range(40)}, poll_interval=3600.0)
    planned: list[float] = []

    async def check() -> None:
        await until(lambda: all(r.next_poll is not None for r in lab.fleet.records()))
        now = time.monotonic()
        lab.update(lab.sources, poll_interval=4.0)
        await asyncio.sleep(0.01)
        planned.extend(r.next_poll - now for r in lab.fleet.records() if r.next_poll is not None)
        assert sum(source.polls for source in lab.sources.values()) <= 42

    lab.run(check)
    assert max(planned) < 6.01
    assert max(planned) - min(planned) > 3.5


def test_a_silent_host_keeps_its_long_wait_unless_it_may_answer_now():
    async def refused() -> Reading:
        raise SourceError("wrong token", "wrong token: no")

    lab = Lab({"a": Source(refused), "b": Source()}, poll_interval=3600.0)
    a, b = lab.sources["a"], lab.sources["b"]

    async def check() -> None:
        await until(lambda: all(r.next_poll is not None for r in lab.fleet.records()))
        lab.update({"a": a, "b": b}, poll_interval=3600.0)
        await asyncio.sleep(0.01)
        assert (a.polls, b.polls) == (1, 1)
        lab.poller.update(lab.config, {"a": a, "b": b}, again=True)
        await until(lambda: a.polls == 2)
        assert b.polls == 1

    lab.run(check)


# The fleet


def test_a_host_that_stays_keeps_what_is_known_and_takes_its_new_labels():
    fleet, clock = Fleet(config_of("a", "b")), Clock()
    fleet.answered("a", a_reading(a_gpu(processes=[a_process()])), asked=clock.seconds)
    config = config_of("c", "a")
    drained = msgspec.structs.replace(config.hosts[1], drained=True, labels={"room": "b12"})
    fleet.reconfigure(msgspec.structs.replace(config, hosts=[config.hosts[0], drained]))
    first, second = fleet.status().hosts
    assert (first.name, first.state) == ("c", "never")
    assert (second.name, second.state, second.labels) == ("a", "fresh", {"room": "b12"})
    assert second.gpus[0].state == "drained"
    with pytest.raises(KeyError):
        fleet.record("b")


def test_a_name_that_leads_to_another_machine_begins_anew():
    fleet, clock = Fleet(config_of("a")), Clock()
    fleet.answered("a", a_reading(a_gpu()), asked=clock.seconds)
    moved = msgspec.structs.replace(config_of("a").hosts[0], address="elsewhere", host="elsewhere")
    fleet.reconfigure(a_config(moved))
    assert fleet.status().hosts[0].state == "never"


def test_the_picture_is_made_anew_soon_after_an_update():
    clock = Clock()
    fleet = Fleet(config_of("a"), monotonic=clock.monotonic, wall=clock.wall)
    assert len(fleet.status().hosts) == 1
    fleet.reconfigure(config_of("a", "b"))
    clock.move(0.3)
    assert len(fleet.status().hosts) == 2


@pytest.mark.parametrize("other_pace", [False, True])
def test_a_host_that_is_to_be_asked_at_once_is_whatever_its_pace_becomes(other_pace: bool) -> None:
    pace = Pace(start=0.0, phase=0.0, interval=5.0)
    host = _Host("a", Source(), pace)

    async def scenario() -> None:
        rest = asyncio.create_task(host.rest(60.0))
        await asyncio.sleep(0)
        if other_pace:
            host.repace(Pace(start=0.0, phase=0.0, interval=7.0))
        host.wake()
        assert await asyncio.wait_for(rest, 5.0)
        next_rest = asyncio.create_task(host.rest(60.0))
        await asyncio.sleep(0)
        host.repace(pace if other_pace else Pace(start=0.0, phase=0.0, interval=7.0))
        assert await asyncio.wait_for(next_rest, 5.0) is False, "it is due once"

    asyncio.run(scenario())
