"""Simulated agents in processes of their own, and children that ask them."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_cost.children import Trouble, running

from fleet_cost.agents import address

HERE = Path(__file__).parent

FAULTS = {
    "hung": 0.10,
    "blackholed": 0.02,
    "refused": 0.05,
    "garbage": 0.01,
    "oversized": 0.01,
    "bomb": 0.01,
    "dripping": 0.01,
    "growing": 0.01,
}
"""What share of the hosts is broken in which way; the others are healthy."""

Host = tuple[str, str, int, str]
"""Name, address, port, kind."""


@dataclass
class Lab:
    """Where which kind of simulated host listens."""

    ports: dict[str, int]

    def hosts(self, count: int, faults: dict[str, float], sound: str = "healthy") -> list[Host]:
        """Return `count` hosts of which the given shares are broken, in a fixed random order."""
        kinds = [kind for kind, share in faults.items() for _ in range(round(count * share))]
        kinds += [sound] * (count - len(kinds))
        random.Random(count).shuffle(kinds)
        return [
            (f"node-{number:05}", address(number), self.ports[kind], kind)
            for number, kind in enumerate(kinds)
        ]


@contextlib.contextmanager
def lab() -> Iterator[Lab]:
    """Run the agents while the block lasts: healthy ones in one process, faults in another."""
    with _agents(["healthy", "known"]) as sound, _agents(list(FAULTS)) as broken:
        yield Lab({**sound, **broken})


@contextlib.contextmanager
def _agents(kinds: list[str]) -> Iterator[dict[str, int]]:
    command = [sys.executable, str(HERE / "agents.py"), *kinds]
    with running(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise Trouble("the simulated agents did not start")
        yield json.loads(line)


def measured(
    program: str,
    folder: Path,
    hosts: list[Host],
    *,
    interval: float = 5.0,
    timeout: float = 2.0,
    rounds: int = 3,
    watched: bool = False,
    files: int | None = None,
) -> list[dict[str, Any]]:
    """Run poller_child.py or "others.py WAY" over the hosts; return its figures, one per round."""
    task = folder / "task.json"
    task.write_text(
        json.dumps(
            {
                "hosts": hosts,
                "interval": interval,
                "timeout": timeout,
                "rounds": rounds,
                "watched": watched,
                "files": files,
            }
        )
    )
    name, *words = program.split(maxsplit=1)
    command = [sys.executable, str(HERE / name), *words, str(task)]
    with running(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = [json.loads(line) for line in process.stdout]
    if len(lines) != rounds:
        raise Trouble(f"{program} ended after {len(lines)} of {rounds} rounds")
    return lines
