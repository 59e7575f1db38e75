"""What the page costs: bytes, time to render, answers per second with other pages open.

    python bench/page.py [--quick]

Everything is measured on invented clusters of about 8, 504, 5,000 and 8,000 GPUs, with no
browser.
The tables go to standard output as Markdown. What they mean stands in bench/README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import io
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from agent_cost import http_load, machine
from agent_cost.children import Trouble, cpu_seconds, rss_mib, running
from agent_cost.invented import Cluster, cluster
from agent_cost.table import Budget, Table, budget_table
from msgspec import structs

from gpumon.cluster.status import ClusterStatus
from gpumon.config import Config
from gpumon.model import HostSnapshot
from gpumon.web.app import make_app

SIZES = (8, 504, 5_000, 8_000)
PACKED_KB = {8: 5, 504: 15, 5_000: 30, 8_000: 40}
"""Budget of the front page as it travels."""
ROWS_KB = 70
RENDER_MS = 100.0
ANSWERS = 1_500.0
OPEN_PAGES = 500
PERIOD_SECONDS = 10.0
START_SECONDS = 30.0
SLICE_SECONDS = 0.2


def main(arguments: list[str]) -> int:
    """Measure and print; return 1 when something could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, 8 and 504 GPUs alone")
    quick = parser.parse_args(arguments).quick
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the clean-up must run, too
    command = ["python", "bench/page.py", *arguments]
    print(machine.heading(command, "What the page costs", "invented hosts"), flush=True)
    sizes, rounds, seconds = (SIZES[:2], 3, 1.0) if quick else (SIZES, 7, 4.0)
    budgets: list[Budget] = []
    clusters = {size: cluster(gpus=size) for size in sizes}
    print(_rendering(clusters, rounds, budgets).markdown(), flush=True)
    code = 0
    try:
        hosts = len(clusters[sizes[-1]][0].hosts)
        print(asyncio.run(_answers(hosts, seconds, budgets)).markdown(), flush=True)
    except (Trouble, OSError, asyncio.TimeoutError) as error:
        print(f"### answers: could not be measured\n\n* {error}\n", flush=True)
        code = 1
    print(budget_table(budgets).markdown())
    return code


def _rendering(clusters: dict[int, Cluster], rounds: int, budgets: list[Budget]) -> Table:
    table = Table(
        "Bytes and times of one rendering",
        ["GPUs", "hosts", "form", "bytes", "gzip", "render, ms", "gzip, ms"],
        notes=[
            "render: a revision that nobody has asked for yet, from the cluster's status to bytes; "
            "it happens once per revision and form, whatever the number of readers",
        ],
    )
    for size, (status, details) in clusters.items():
        forms = [("front page", "/"), ("JSON", "/status.json"), ("host page", _a_host(status))]
        if len(status.hosts) > 200:
            forms.insert(1, ("200 rows", "/?view=rows"))
        forms.insert(1, ("filter: free h100", "/?q=free+h100"))
        for form, target in forms:
            body, packed, times, packing = _render(status, details.get, target, rounds)
            ms, gz = statistics.median(times), statistics.median(packing)
            table.add(
                f"{status.totals.gpus.total:,}", f"{len(status.hosts):,}", form, f"{body:,}",
                f"{packed:,}", f"{ms:.1f}", f"{gz:.1f}",
            )  # fmt: skip
            if form in ("front page", "200 rows"):
                kb = PACKED_KB[size] if form == "front page" else ROWS_KB
                what = f"{form}, {size:,} GPUs, as it travels"
                kept = packed <= 1000 * kb
                budgets.append(Budget(what, f"{kb} kB", f"{packed / 1000:.1f} kB", kept))
            if form == "front page":
                what = f"rendering of the front page, {size:,} GPUs"
                found, kept = f"{ms:.0f} ms", ms <= RENDER_MS
                budgets.append(Budget(what, f"{RENDER_MS:.0f} ms", found, kept))
    return table


def _a_host(status: ClusterStatus) -> str:
    return f"/host/{next(host.name for host in status.hosts if host.gpus)}"


def _render(
    status: ClusterStatus, detail: Callable[[str], HostSnapshot | None], target: str, rounds: int
) -> tuple[int, int, list[float], list[float]]:
    """Return bytes, packed bytes, and ms of rendering and packing of `rounds` revisions."""
    current = [status]
    app = make_app(status=lambda: current[0], detail=detail, config=Config())
    times, packing, body = [], [], b""
    for number in range(rounds):
        current[0] = structs.replace(status, revision=f"r-{number}")
        begin = time.perf_counter()
        body = _call(app, target)
        times.append(1000 * (time.perf_counter() - begin))
        begin = time.perf_counter()
        packed = gzip.compress(body, compresslevel=6, mtime=0)
        packing.append(1000 * (time.perf_counter() - begin))
    return len(body), len(packed), times, packing


def _call(app: Any, target: str) -> bytes:
    path, _, query = target.partition("?")
    environ = {
        "REQUEST_METHOD": "GET", "SCRIPT_NAME": "", "PATH_INFO": path, "QUERY_STRING": query,
        "SERVER_NAME": "localhost", "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_ACCEPT": "text/html", "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(),
        "wsgi.errors": sys.stderr, "wsgi.version": (1, 0), "wsgi.multithread": True,
        "wsgi.multiprocess": False, "wsgi.run_once": False,
    }  # fmt: skip
    return b"".join(app(environ, lambda status, headers, exc_info=None: None))


async def _answers(hosts: int, seconds: float, budgets: list[Budget]) -> Table:
    table = Table(
        f"Answers of a server of {hosts:,} hosts",
        ["open pages", "answers/s", "p50, ms", "p99, ms", "server, % of a core", "RSS, MiB"],
        notes=[
            "8 connections ask for the packed front page as fast as they can, on the same cores; "
            "the server polls its invented hosts and makes new revisions meanwhile",
            f"an open page asks every {PERIOD_SECONDS:g} s with the ETag that it has; alone they "
            "take the share of a core in the last row",
        ],
    )
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        config = Path(folder, "config.yml")
        config.write_text(f"web_port: {port}\n")
        command = [sys.executable, "-m", "gpumon", "demo", "--config", str(config)]
        with running([*command, "--hosts", str(hosts)], stderr=subprocess.DEVNULL) as server:
            await _until_served(port)
            for pages in (0, OPEN_PAGES):
                async with _open_pages(port, pages):
                    before, began = cpu_seconds(server.pid), time.perf_counter()
                    load = await _load(port, seconds)
                    share = (cpu_seconds(server.pid) - before) / (time.perf_counter() - began)
                    p50, p99 = (load.percentile_ms(percent) for percent in (50, 99))
                    table.add(
                        pages, f"{load.rate:.0f}", f"{p50:.1f}", f"{p99:.1f}",
                        f"{100 * share:.0f}", f"{rss_mib(server.pid):.0f}",
                    )  # fmt: skip
                    what = f"answers per second, {pages} open pages"
                    kept = load.rate >= ANSWERS
                    budgets.append(Budget(what, f"{ANSWERS:.0f}", f"{load.rate:.0f}", kept))
            async with _open_pages(port, OPEN_PAGES):
                before, began = cpu_seconds(server.pid), time.perf_counter()
                await asyncio.sleep(max(seconds, PERIOD_SECONDS))
                share = (cpu_seconds(server.pid) - before) / (time.perf_counter() - began)
                resident = f"{rss_mib(server.pid):.0f}"
                table.add(f"{OPEN_PAGES} alone", None, None, None, f"{100 * share:.0f}", resident)
    return table


async def _load(port: int, seconds: float) -> http_load.Load:
    """Ask over 8 connections, new ones now and then: the server ends each after 1,000 answers."""
    slices = [
        await http_load.load(port, _request(), 8, SLICE_SECONDS)
        for _ in range(round(seconds / SLICE_SECONDS))
    ]
    latencies = sorted(value for one in slices for value in one.latencies)
    return http_load.Load(latencies, sum(one.seconds for one in slices))


async def _until_served(port: int) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await http_load.load(port, _request(), 1, 0.01)
            await asyncio.sleep(6)  # every host has answered by then
            return
        await asyncio.sleep(0.1)
    raise Trouble(f"the server did not answer within {START_SECONDS:g} seconds")


@contextlib.asynccontextmanager
async def _open_pages(port: int, count: int) -> AsyncIterator[None]:
    """Keep so many pages open, spread over their period; begin when all have been loaded."""
    loaded = asyncio.Semaphore(0)
    pages = [
        asyncio.create_task(_page(port, PERIOD_SECONDS * number / max(1, count), loaded))
        for number in range(count)
    ]
    try:
        for _ in range(count):
            await asyncio.wait_for(loaded.acquire(), START_SECONDS)
        yield
    finally:
        for page in pages:
            page.cancel()
        outcomes = await asyncio.gather(*pages, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise Trouble(f"an open page ended: {outcome!r}")


async def _page(port: int, wait: float, loaded: asyncio.Semaphore) -> None:
    """Ask as gpumon.js does, over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    etag = b""
    try:
        while True:
            known = b"If-None-Match: " + etag + b"\r\n" if etag else b""
            writer.write(_request(known))
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
            etag = fields[b"etag"]
            await reader.readexactly(int(fields.get(b"content-length", b"0")))
            loaded.release()
            await asyncio.sleep(wait or PERIOD_SECONDS)
            wait = PERIOD_SECONDS
    finally:
        writer.transport.abort()


def _request(more: bytes = b"") -> bytes:
    return (
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/html\r\nAccept-Encoding: gzip\r\n"
        + more + b"\r\n"
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
