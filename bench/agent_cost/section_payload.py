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

MOST_BYTES = {5: 10_000, 40: 20_000}
"""Of the answer to `poll`, which is what a server fetches, by processes a GPU."""


def run(settings: Settings) -> Result:
    """Ask a real agent at every size."""
    table = Table(
        "Bytes of the answers",
        [
            "GPUs x processes",
            "snapshot, JSON",
            "summary, JSON",
            "poll: whole answer",
            "budget",
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
                len(summary.encode()),
                len(poll),
                None if most is None else f"<= {most}",
                len(base64.b64decode(packed)),
                len(real.call("poll", revision)),
                len(real.call("snapshot_json")),
                len(real.call("snapshot")),
            )
        rows = sum(len(gpu["processes"]) for gpu in json.loads(snapshot)["gpus"])
        if rows != GPUS * size:
            table.notes.append(f"{host.name}: the snapshot has only {rows} processes.")
        if most is not None:
            result.budgets.append(
                Budget(
                    f"answer to poll, {host.name}",
                    f"<= {most / 1000:.0f} kB",
                    f"{len(poll) / 1000:.1f} kB",
                    len(poll) <= most,
                )
            )
    table.notes.append(f"Each command line has {host.command_bytes()} characters.")
    return result
