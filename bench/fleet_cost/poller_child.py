"""The server's poller, as `gpumon web` runs it, over simulated hosts: figures as lines of JSON.

Reads one JSON object from its first argument: hosts (list of [name, address, port]), healthy
(number of those at the front that are healthy), interval, timeout, rounds, status (whether the
picture is asked for each second, as by a page that is open).
"""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import sys
import time
from pathlib import Path

from gpumon.cluster.fleet import Fleet
from gpumon.cluster.poller import poll_forever
from gpumon.config import Config, HostEntry


def rss_mib() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


async def measure(task: dict[str, object]) -> None:
    """Poll for the rounds asked for; print one line per round."""
    hosts = [
        HostEntry(name=name, source="xmlrpc", address=f"{host}:{port}", host=host, port=port)
        for name, host, port in task["hosts"]
    ]
    healthy = [entry.name for entry in hosts[: task["healthy"]]]
    config = Config(hosts=hosts, poll_interval=task["interval"], rpc_timeout=task["timeout"])
    fleet = Fleet(config)
    poller = asyncio.create_task(poll_forever(fleet, config))
    begin = time.monotonic()
    cpu, built = time.process_time(), 0.0
    for number in range(task["rounds"]):
        end = begin + (number + 1) * config.poll_interval
        oldest, first = 0.0, None
        while time.monotonic() < end:
            await asyncio.sleep(min(0.5, max(0.0, end - time.monotonic())))
            now, before = time.monotonic(), time.process_time()
            ages = [fleet.record(name).age(now) for name in healthy]
            if None not in ages:
                first = first or now - begin
                oldest = max(oldest, max(ages, default=0.0))
            if task["status"]:
                status = fleet.status()
                built += time.process_time() - before
            else:
                cpu += time.process_time() - before  # looking on is not the poller's
        used = time.process_time() - cpu
        states = {}
        if number + 1 == task["rounds"] or task["status"]:
            status = fleet.status()
            for host in status.hosts:
                key = host.state if host.state == "fresh" else f"{host.state}: {host.reason_kind}"
                states[key] = states.get(key, 0) + 1
        print(
            json.dumps(
                {
                    "round": number,
                    "cpu": used,
                    "built": built,
                    "rss": rss_mib(),
                    "oldest": oldest,
                    "all_seen": first,
                    "states": states,
                }
            ),
            flush=True,
        )
        cpu, built = time.process_time(), 0.0
        assert not poller.done(), poller.exception()
    poller.cancel()
    await asyncio.gather(poller, return_exceptions=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(measure(json.loads(Path(sys.argv[1]).read_text())))
