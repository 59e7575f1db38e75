"""Supervisors with stub samplers, for tests."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from gpumon.agent.supervisor import Supervisor
from gpumon.model import HostSnapshot, decode_snapshot

STUB = Path(__file__).with_name("agent_stub_sampler.py")


class Plan:
    """What the stub does; see there. A change counts from the next sample on."""

    def __init__(self, folder: Path, **plan: object) -> None:
        self.path = folder / "plan"
        self.set(**plan)

    def set(self, **plan: object) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"gpus": 4, **plan}))
        new.replace(self.path)

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-S", "-E", str(STUB), str(self.path)]

    def pids(self) -> list[int]:
        """Return the pids of all stubs so far, in order of their start."""
        return self._noted("pids")

    def asked(self) -> list[int]:
        """Return for each request the pid that got it."""
        return self._noted("asked")

    def _noted(self, name: str) -> list[int]:
        path = Path(f"{self.path}.{name}")
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def supervisor(self, **changes: object) -> Supervisor:
        quick = {
            "interval": 0.05,
            "deadline": 0.5,
            "start_deadline": 1.0,
            "restart_pauses": (0.02, 0.1),
            "retry_pauses": (60.0, 60.0),
            "command": self.command,
        }
        return Supervisor(**{**quick, **changes})


def drive(supervisor: Supervisor, scenario: Callable[[], Awaitable[None]]) -> None:
    """Run the supervisor for as long as `scenario` takes, 30 seconds at most."""

    async def main() -> None:
        running = asyncio.create_task(supervisor.run())
        try:
            await asyncio.wait_for(scenario(), 30)
            assert not running.done(), running
        finally:
            running.cancel()
            await asyncio.wait({running})

    asyncio.run(main())


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait for a condition; fail when it does not come true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        await asyncio.sleep(0.01)


def shown(supervisor: Supervisor) -> HostSnapshot:
    """Return what the supervisor's latest sample says now."""
    return decode_snapshot(supervisor.latest().snapshot_json(time.monotonic()))


def samples(supervisor: Supervisor) -> int:
    """Return how many samples there have been."""
    return int(supervisor.latest().revision.rpartition("-")[2])
