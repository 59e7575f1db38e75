"""The server's poller, as `gpumon web` runs it, over simulated hosts; figures as lines of JSON.

`python poller_child.py FILE`, where FILE holds one JSON object: hosts (list of [name, address,
port, kind]), interval, timeout, rounds (of `interval` seconds), watched (whether somebody looks at
the page all the time), files (limit of open files, or null for as many as there may be).
"""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from gpumon.cluster.fleet import Fleet
from gpumon.cluster.poller import poll_forever
from gpumon.config import Config, HostEntry

SOUND = ("healthy", "known")
LOOK_SECONDS = 0.1


class Watcher:
    """Looks at the fleet now and then; what that costs is not counted as the poller's."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.kinds = {name: kind for name, _, _, kind in task["hosts"]}
        self.config = Config(
            hosts=[
                HostEntry(
                    name=name, source="xmlrpc", address=f"{host}:{port}", host=host, port=port
                )
                for name, host, port, _ in task["hosts"]
            ],
            poll_interval=task["interval"],
            rpc_timeout=task["timeout"],
        )
        self.fleet = Fleet(self.config)
        self.sound = [name for name, kind in self.kinds.items() if kind in SOUND]
        self.watched = task["watched"]
        self.begin = time.monotonic()
        self.seen: float | None = None
        """Seconds until every healthy host was read for the first time."""
        self.over: float | None = None
        """Seconds until every host had been asked and the outcome was known."""
        self.oldest = 0.0
        self.looking = 0.0
        self.building: list[float] = []
        """CPU seconds of each picture that was put together, where somebody looks."""
        self.revision = ""

    def look(self) -> None:
        """Note the age of the oldest healthy host, and how far the first sweep has come."""
        before, now = time.process_time(), time.monotonic()
        if self.watched:
            revision = self.fleet.status().revision
            if revision != self.revision:
                self.building.append(time.process_time() - before)
                self.revision = revision
            before = time.process_time()
        answered = [self.fleet.record(name).answered for name in self.sound]
        if all(moment is not None for moment in answered):
            self.seen = self.seen or now - self.begin
            self.oldest = max(self.oldest, max((now - m for m in answered if m), default=0.0))
        if self.over is None and all(self.fleet.record(name).asked for name in self.kinds):
            self.over = now - self.begin
        self.looking += time.process_time() - before

    def states(self) -> dict[str, dict[str, int]]:
        """Return for each kind of host how many are in which state, with the short reason."""
        found: dict[str, Counter[str]] = {}
        for host in self.fleet.status().hosts:
            words = host.state
            if host.state != "fresh":
                words += f": {host.reason_kind}"
            found.setdefault(self.kinds[host.name], Counter())[words] += 1
        return {kind: dict(counts) for kind, counts in found.items()}


async def measure(task: dict[str, Any]) -> None:
    """Poll for the rounds asked for and print one line for each."""
    watcher = Watcher(task)
    poller = asyncio.create_task(poll_forever(watcher.fleet, watcher.config))
    for number in range(1, task["rounds"] + 1):
        cpu, watcher.looking, watcher.oldest = time.process_time(), 0.0, 0.0
        end = watcher.begin + number * watcher.config.poll_interval
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(LOOK_SECONDS, left))
            watcher.look()
        used = time.process_time() - cpu - watcher.looking
        if poller.done():
            poller.result()
        line = {
            "cpu": used,
            "rss": rss_mib(),
            "oldest": watcher.oldest,
            "seen": watcher.seen,
            "over": watcher.over,
            "building": watcher.building,
            "states": watcher.states() if number == task["rounds"] else {},
        }
        print(json.dumps(line), flush=True)
    poller.cancel()
    await asyncio.gather(poller, return_exceptions=True)


def rss_mib() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def main(path: str) -> None:
    """Measure what the file says."""
    task = json.loads(Path(path).read_text())
    logging.basicConfig(level=logging.CRITICAL)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (task["files"] or hard, hard))
    asyncio.run(measure(task))


if __name__ == "__main__":
    main(sys.argv[1])
