"""How fast the agent answers, alone and with slow clients attached."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import subprocess
import time
import xmlrpc.client
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agent_cost import children, http_load
from agent_cost.agent_process import Agent, agent, free_port
from agent_cost.http_load import Load
from agent_cost.settings import Settings
from agent_cost.table import Budget, Result, Table, ratio, spread
from agent_cost.world import World, world

SIZE = 20
SLOW_CLIENTS = 200
MANY = 8
"""Connections that ask at the same time."""
MOST_P99_MS = 10.0

POLL = "poll"
BARE = "bare asyncio server, same bytes as poll"


def _xml(method: str) -> bytes:
    return xmlrpc.client.dumps((), method).encode()


REQUESTS = {
    POLL: http_load.request("/RPC2", _xml("poll"), gzip=True),
    "snapshot_json": http_load.request("/RPC2", _xml("snapshot_json"), gzip=True),
    "/snapshot.json": http_load.request("/snapshot.json"),
}
CONDITIONS: tuple[str | None, ...] = (None, *http_load.SLOW)


@dataclass
class Seen:
    """What all rounds of one request in one condition have given."""

    rate: list[float] = field(default_factory=list)
    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    alone_p50: list[float] = field(default_factory=list)
    alone_p99: list[float] = field(default_factory=list)

    def note(self, many: Load, alone: Load) -> None:
        """Add a round: with many connections, and with one."""
        self.rate.append(many.rate)
        self.p50.append(many.percentile_ms(50))
        self.p99.append(many.percentile_ms(99))
        self.alone_p50.append(alone.percentile_ms(50))
        self.alone_p99.append(alone.percentile_ms(99))


def run(settings: Settings) -> Result:
    """Ask one agent in all conditions, round by round."""
    settings.say(f"answers: {len(CONDITIONS)} conditions, {settings.rounds} rounds")
    with (
        world(settings.folder, SIZE) as host,
        agent(host, 5, [settings.own.gpumon, "agent"]) as real,
    ):
        size = len(real.call("poll"))
        with _bare_server(settings.own.python, size) as bare:
            seen = asyncio.run(_rounds(settings, real, bare))
    return Result([_table(host, seen)], _budgets(seen))


async def _rounds(settings: Settings, real: Agent, bare: int) -> dict[tuple[str, str | None], Seen]:
    seen: dict[tuple[str, str | None], Seen] = {}
    seconds = settings.load_seconds
    for _ in range(settings.rounds):
        for condition in CONDITIONS:
            async with http_load.Slow(real.port, condition, SLOW_CLIENTS):
                for name, request in REQUESTS.items():
                    many = await http_load.load(real.port, request, MANY, seconds)
                    alone = await http_load.load(real.port, request, 1, seconds)
                    seen.setdefault((name, condition), Seen()).note(many, alone)
        many = await http_load.load(bare, REQUESTS[POLL], MANY, seconds)
        alone = await http_load.load(bare, REQUESTS[POLL], 1, seconds)
        seen.setdefault((BARE, None), Seen()).note(many, alone)
    return seen


def _table(host: World, seen: dict[tuple[str, str | None], Seen]) -> Table:
    table = Table(
        f"Answers of the agent, {host.name} processes, one sample per 5 s",
        [
            "request",
            f"{SLOW_CLIENTS} slow clients",
            f"answers/s, {MANY} connections",
            "of those alone",
            "p50 ms",
            "p99 ms",
            "p50 ms, 1 connection",
            "p99 ms, 1 connection",
        ],
        notes=[
            "The client is Python too and has the other core; the last row is what it reaches at "
            "most. poll and snapshot_json are asked with Accept-Encoding: gzip, as Python's "
            "XML-RPC client does, /snapshot.json without, as curl does.",
            f"With {MANY} connections the agent is at its limit, and each answer waits for others; "
            "the budget is about one caller.",
        ],
    )
    for (name, condition), one in seen.items():
        table.add(
            name,
            condition or "none",
            spread(one.rate, 0),
            ratio(one.rate, seen[name, None].rate),
            spread(one.p50),
            spread(one.p99),
            spread(one.alone_p50),
            spread(one.alone_p99),
        )
    return table


def _budgets(seen: dict[tuple[str, str | None], Seen]) -> list[Budget]:
    budgets = []
    undisturbed = statistics.median(seen[POLL, None].alone_p99)
    for kind in http_load.SLOW:
        p99 = statistics.median(seen[POLL, kind].alone_p99)
        budgets.append(
            Budget(
                f"poll with {SLOW_CLIENTS} slow clients ({kind})",
                f"p99 <= {MOST_P99_MS:.0f} ms",
                f"{p99:.1f} ms ({undisturbed:.1f} ms without them)",
                p99 <= MOST_P99_MS,
            )
        )
    return budgets


@contextlib.contextmanager
def _bare_server(python: str, size: int) -> Iterator[int]:
    """Run the bare server; give its port."""
    port = free_port()
    script = str(Path(__file__).with_name("bare_server.py"))
    with children.running(
        [python, "-I", script, str(port), str(size)], stderr=subprocess.DEVNULL
    ) as process:
        deadline = time.monotonic() + 10
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                asyncio.run(http_load.load(port, REQUESTS[POLL], 1, 0.01))
                yield port
                return
            time.sleep(0.05)
    raise children.Trouble("the bare server did not start")
