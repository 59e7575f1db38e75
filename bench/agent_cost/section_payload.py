"""How many bytes an agent's answers have."""

from __future__ import annotations

import base64
import json
import xmlrpc.client
from typing import Any

from agent_cost.agent_process import agent
from agent_cost.settings import Settings
from agent_cost.table import Budget, Result, Table
from agent_cost.world import GPUS, world

MOST_BYTES = {5: 10_000, 40: 60_000}
"""Of a snapshot before compression, by processes a GPU."""
MOST_TRAVELLING = {5: 10_000, 40: 20_000}
"""Of the answer to `poll`, which is what a server fetches."""


def run(settings: Settings) -> Result:
    """Ask a real agent at every size."""
    table = Table(
        "Bytes of the answers",
        [
            "GPUs x processes",
            "snapshot, JSON",
            "budget",
            "summary, JSON",
            "poll: whole answer",
            "poll: packed snapshot",
            "poll: known revision",
            "snapshot_json (XML-RPC)",
            "snapshot() (structs)",
        ],
    )
    result = Result([table])
    for size in settings.sizes:
        settings.say(f"payload: {GPUS} x {size}")
        with (
            world(settings.folder, size) as host,
            agent(host, 60, [settings.own.gpumon, "agent"]) as real,
        ):
            snapshot = real.get("/snapshot.json")
            poll = real.call("poll")
            answer: Any = xmlrpc.client.loads(poll)[0]
            revision, summary, packed = answer[0]
            most = MOST_BYTES.get(size)
            table.add(
                host.name,
                len(snapshot),
                None if most is None else f"<= {most}",
                len(summary.encode()),
                len(poll),
                len(base64.b64decode(packed)),
                len(real.call("poll", revision)),
                len(real.call("snapshot_json")),
                len(real.call("snapshot")),
            )
        rows = sum(len(gpu["processes"]) for gpu in json.loads(snapshot)["gpus"])
        if rows != GPUS * size:
            table.notes.append(f"{host.name}: the snapshot has only {rows} processes.")
        for what, found, limit in (
            ("snapshot before compression", len(snapshot), most),
            ("answer to poll", len(poll), MOST_TRAVELLING.get(size)),
        ):
            if limit is not None:
                result.budgets.append(
                    Budget(
                        f"{what}, {host.name}",
                        f"<= {limit / 1000:.0f} kB",
                        f"{found / 1000:.1f} kB",
                        found <= limit,
                    )
                )
    table.notes.append(f"Each command line has {host.command_bytes()} characters.")
    return result
