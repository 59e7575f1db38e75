"""Many agents in one process: the real application, each with one invented sample that stays.

    python many_agents.py FIRST COUNT EPOCH TOKEN

Serves the simulated hosts FIRST, FIRST + 1, ... as they were at EPOCH, on free ports of loopback.
Prints the ports as JSON on one line and serves until it is ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from gpumon.agent.app import make_app
from gpumon.agent.latest import Latest
from gpumon.http.auth import Tokens
from gpumon.http.server import Site, open_sockets, serve, stop_on_signals
from gpumon.model import HostSnapshot, encode
from gpumon.simulate import SimulatedHost
from gpumon.summary import summarize

INTERVAL = 300.0


def sample(number: int, epoch: float) -> HostSnapshot:
    """Return what the agent of this number shows; not every GPU tells its utilization."""
    # A host of the first seven kinds, all of which have GPUs to show.
    snapshot = SimulatedHost(f"sim-{number:03}", number % 3, seed=number).snapshot(epoch)
    snapshot.hostname = f"sim-{number:03}"
    snapshot.sample_interval_seconds = INTERVAL  # one sample has to last for a whole test
    snapshot.sample_age_seconds = None
    snapshot.sampler_error = None
    if number % 10 == 0:
        snapshot.gpus[0].utilization_percent = None
    return snapshot


def site(number: int, epoch: float, tokens: Tokens) -> Site:
    snapshot = sample(number, epoch)
    latest = Latest(
        revision=f"r-{number}",
        interval=INTERVAL,
        snapshot=encode(snapshot),
        summary=encode(summarize(snapshot)),
        taken_at=time.monotonic(),
        sampler_error=None,
    )
    return Site(name="agent", app=make_app(lambda: latest, tokens), binds=["127.0.0.1:0"])


async def main(first: int, count: int, epoch: float, token: str) -> None:
    tokens = Tokens([token])
    sites = [site(number, epoch, tokens) for number in range(first, first + count)]
    ports = [int(open_sockets(one)[0].rpartition(":")[2]) for one in sites]
    shutdown = stop_on_signals()
    print(json.dumps(ports), flush=True)
    await serve(sites, shutdown)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]))
