"""When a host answered last outlives the server."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest
from cluster_tools import WALL, Clock, a_config, a_gpu, a_reading, an_entry

from gpumon.cluster import seen
from gpumon.cluster.fleet import Fleet
from gpumon.cluster.seen import MAX_BYTES, keep_seen, load_seen, save_seen
from gpumon.config import HostEntry


def life(clock: Clock, known: dict[str, float] | None = None) -> Fleet:
    """A server that begins now."""
    config = a_config(an_entry("one", 1), an_entry("two", 2))
    return Fleet(config, monotonic=clock.monotonic, wall=clock.wall, seen=known)


def test_a_host_that_is_silent_after_a_restart_says_since_when(tmp_path: Path):
    clock, path = Clock(), tmp_path / "seen.json"
    first = life(clock)
    first.answered("one", a_reading(a_gpu()), asked=1000.0)
    save_seen(path, first.records())

    clock.move(7200)
    second = life(clock, load_seen(path, clock.wall()))
    assert second.status().hosts[0].state == "never", "it was not even asked yet"
    for host in ("one", "two"):
        second.failed(host, "refused", "refused: ...", asked=clock.monotonic())
    clock.move(5)
    one, two = second.status().hosts
    assert (one.state, one.answered_at, one.reason) == ("down", WALL, "refused: ...")
    assert one.age_seconds is None
    assert "answered last 2h" in one.notes[0]
    assert (two.state, two.answered_at, two.notes) == ("never", None, [])

    # What is not known anew is not forgotten, and an answer takes its place.
    save_seen(path, second.records())
    assert load_seen(path, clock.wall()) == {"one": WALL}
    second.answered("one", a_reading(a_gpu()), asked=clock.monotonic())
    clock.move(3)
    one, _ = second.status().hosts
    assert one.state == "fresh"
    assert "answered last" not in " ".join(one.notes)


def test_a_host_that_answered_a_moment_before_the_restart_is_stale_and_not_down():
    clock = Clock()
    fleet = life(clock, {"one": clock.wall() - 20})
    fleet.failed("one", "refused", "refused: ...", asked=1000.0)
    assert fleet.status().hosts[0].state == "stale"


@pytest.mark.parametrize(
    "content",
    [b"", b"no json", b"[" * 100_000, b'{"seen": {"one": "x"}}', b" " * (MAX_BYTES + 1), b"\xff"],
    ids=["empty", "text", "brackets", "wrong type", "too large", "no UTF-8"],
)
def test_a_file_that_can_not_be_used_is_left_aside_and_told(tmp_path: Path, content, caplog):
    path = tmp_path / "seen.json"
    path.write_bytes(content)
    assert load_seen(path, WALL) == {}
    assert "left aside" in caplog.text


def test_times_that_have_not_been_yet_do_not_count(tmp_path: Path):
    path = tmp_path / "seen.json"
    path.write_text(f'{{"seen": {{"one": {WALL + 1}, "two": -5, "three": {WALL}}}}}')
    assert load_seen(path, WALL) == {"three": WALL}
    assert load_seen(tmp_path / "none", WALL) == {}


def test_the_file_is_written_whole_at_the_end_and_is_nobody_elses(tmp_path: Path):
    clock, path = Clock(), tmp_path / "seen.json"
    fleet = life(clock)
    fleet.answered("one", a_reading(a_gpu()), asked=1000.0)

    async def work() -> None:
        task = asyncio.create_task(keep_seen(path, fleet))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(work())
    assert load_seen(path, clock.wall()) == {"one": WALL}
    assert os.listdir(tmp_path) == ["seen.json"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_file_is_written_as_soon_as_all_hosts_were_asked_once(tmp_path, monkeypatch):
    monkeypatch.setattr(seen, "LOOK_SECONDS", 0.001)
    clock, path = Clock(), tmp_path / "seen.json"
    config = a_config(
        an_entry("one", 1), an_entry("two", 2), HostEntry(name="pushes", source="pushed")
    )
    fleet = Fleet(config, monotonic=clock.monotonic, wall=clock.wall)

    async def work() -> tuple[bool, bool]:
        task = asyncio.create_task(keep_seen(path, fleet))
        fleet.answered("one", a_reading(a_gpu()), asked=1000.0)
        await asyncio.sleep(0.02)
        before = path.exists()
        fleet.failed("two", "refused", "refused: ...", asked=1000.0)
        for _ in range(1000):
            if path.exists():
                break
            await asyncio.sleep(0.005)
        written = path.exists()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return before, written

    assert asyncio.run(work()) == (False, True)
    assert load_seen(path, clock.wall()) == {"one": WALL}


def test_a_folder_that_is_not_there_is_told_once_and_costs_nothing_else(tmp_path: Path, caplog):
    async def work() -> None:
        task = asyncio.create_task(keep_seen(tmp_path / "none" / "seen.json", life(Clock())))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with caplog.at_level(logging.WARNING):
        asyncio.run(work())
    assert caplog.text.count("can't be written") == 1
