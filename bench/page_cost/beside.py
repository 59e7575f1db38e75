"""Answers per second of gpumon's page beside other web monitors, over the same invented hosts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agent_cost import peers
from agent_cost.children import Trouble, cpu_seconds, rss_mib, running
from agent_cost.table import Table
from fleet_cost.agents import address

from page_cost.readers import ANSWER_SECONDS, Tally, ask, hurry, open_pages

HERE = Path(__file__).parent
HOSTS = 63
PAGES = (0, 500)
READERS = 8
START_SECONDS = 40.0
SETTLE_SECONDS = 7.0
"""From the first answer on: by then every host has been read by those that poll by themselves."""
PACKAGES = {name: name for name in ("gpuview", "gpustat-web", "nvgpu")}


@dataclass(frozen=True)
class Contender:
    """A web server over the invented hosts."""

    title: str
    command: list[str]
    port: int
    path: str = "/"
    remark: str = ""


def table(folder: Path, seconds: float, say: Callable[[str], None]) -> Table:
    """Measure all that run here; a note says why one does not."""
    found = Table(
        f"Answers beside other web monitors: {HOSTS} hosts, {8 * HOSTS} GPUs, 20 processes each",
        [
            "web monitor", "open pages", "answers/s", "of gpumon", "p50, ms",
            "CPU ms an answer", "open pages served in time", "bytes", "RSS, MiB",
        ],
        notes=[
            f"{READERS} readers ask for the whole page again and again, each time over a new "
            f"connection, since not all of these keep one; open pages ask every "
            f"{ANSWER_SECONDS:g} s in the same way, and have missed what takes longer",
            "invented hosts answer at once; a real gpuview host needs 0.1 s a GPU for its answer",
            "CPU ms an answer: of the server's process over all answers, its polling included",
        ],
    )  # fmt: skip
    installed, missing = peers.install(say, PACKAGES)
    found.notes += missing
    with _hosts() as ports:
        task = _task(folder, ports)
        base: dict[int, float] = {}
        for contender in _contenders(folder, task, installed):
            say(contender.title)
            try:
                asyncio.run(_measure(contender, seconds, found, base))
            except (Trouble, OSError) as error:
                found.notes.append(f"{contender.title} is left out: {error}")
    return found


@contextlib.contextmanager
def _hosts() -> Iterator[dict[str, int]]:
    command = [sys.executable, str(HERE / "hosts.py")]
    with running(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise Trouble("the invented hosts did not start")
        yield json.loads(line)


def _task(folder: Path, ports: dict[str, int]) -> dict[str, object]:
    hosts = [(f"node-{number:03}", address(number), ports["http"]) for number in range(HOSTS)]
    return {"hosts": hosts, "ssh": ports["ssh"], "timeout": 2.0}


def _contenders(
    folder: Path, task: dict[str, object], installed: list[peers.Peer]
) -> Iterator[Contender]:
    """Yield gpumon first: the others are shown as a share of it."""
    port = _free_port()
    config = folder / "config.yml"
    config.write_text(_config(port, task))
    command = [sys.executable, "-m", "gpumon", "web", "--config", str(config)]
    yield Contender("gpumon", command, port)
    port, file = _with_port(folder, task)
    command = [sys.executable, str(HERE / "gpumonitor_way.py"), str(file)]
    yield Contender("gpumonitor's way", command, port)
    for peer in installed:
        port, file = _with_port(folder, task)
        command = [str(peer.python), str(HERE / "peer_server.py"), peer.name, str(file)]
        path = "/gpustat.html" if peer.name == "gpustat-web" else "/"
        yield Contender(peer.title, command, port, path)
        if peer.name == "nvgpu":
            port, file = _with_port(folder, task)
            command = [*command[:-1], str(file)]
            yield Contender(f"{peer.title}, JSON alone", command, port, "/cluster_status")


def _config(port: int, task: dict[str, object]) -> str:
    hosts = task["hosts"]
    assert isinstance(hosts, list)
    lines = [f"  - {{name: {name}, address: '{where}:{at}'}}" for name, where, at in hosts]
    return "\n".join([f"web_port: {port}", "hosts:", *lines]) + "\n"


def _with_port(folder: Path, task: dict[str, object]) -> tuple[int, Path]:
    port = _free_port()
    file = folder / f"task-{port}.json"
    file.write_text(json.dumps({**task, "port": port}))
    return port, file


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


async def _measure(
    contender: Contender, seconds: float, found: Table, base: dict[int, float]
) -> None:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with running(contender.command, **quiet) as server:
        await _until_served(contender, server)
        for pages in PAGES:
            async with open_pages(contender.port, contender.path, pages) as opened:
                if pages:
                    await asyncio.sleep(ANSWER_SECONDS)  # all of them have asked once
                    opened.latencies.clear()
                    opened.missed = 0
                before, began = cpu_seconds(server.pid), time.perf_counter()
                tally = await hurry(contender.port, contender.path, READERS, seconds)
                passed = time.perf_counter() - began
                cpu = cpu_seconds(server.pid) - before
            _row(contender, pages, found, base, tally, opened, passed, cpu, rss_mib(server.pid))


def _row(
    contender: Contender,
    pages: int,
    found: Table,
    base: dict[int, float],
    tally: Tally,
    opened: Tally,
    passed: float,
    cpu: float,
    resident: float,
) -> None:
    rate = len(tally.latencies) / passed
    base.setdefault(pages, rate)
    answers = len(tally.latencies) + len(opened.latencies)
    middle = sorted(tally.latencies)[len(tally.latencies) // 2] if tally.latencies else None
    found.add(
        contender.title,
        pages,
        f"{rate:.1f}" if rate < 100 else f"{rate:.0f}",
        f"{rate / base[pages]:.4f}x" if rate < base[pages] else "1.00x",
        None if middle is None else f"{1000 * middle:.1f}",
        f"{1000 * cpu / answers:.2f}" if answers else None,
        None if opened.kept is None else f"{100 * opened.kept:.0f} %",
        f"{tally.body_bytes:,}" if tally.body_bytes else None,
        f"{resident:.0f}",
    )


async def _until_served(contender: Contender, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_SECONDS
    tally = Tally()
    while time.monotonic() < end and not tally.latencies:
        if server.poll() is not None:
            raise Trouble(f"its server ended at once (exit code {server.returncode})")
        await ask(contender.port, contender.path, tally)
        if tally.refused:
            raise Trouble(f"it answers {tally.refused!r} to {contender.path}")
        await asyncio.sleep(0.2)
    if not tally.latencies:
        raise Trouble(f"no answer within {START_SECONDS:g} seconds")
    await asyncio.sleep(SETTLE_SECONDS)
