"""What /metrics costs: bytes and CPU time, of a server with 1,000 hosts and of an agent.

    python bench/scrape.py [--quick] [--no-peers]

Beside Prometheus' own Python client and the least that Python can do with the same samples. The
tables go to standard output as Markdown. What they mean stands in bench/README.md.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from agent_cost import machine, peers
from agent_cost.invented import NOW, cluster
from agent_cost.table import Budget, Table, budget_table, ratio, spread

from gpumon.agent.answers import Forms
from gpumon.agent.latest import Latest
from gpumon.agent.metrics import AgentMetrics
from gpumon.cluster.metrics import PollCounts, metrics
from gpumon.cluster.status import ClusterStatus
from gpumon.config import Limits, MetricsConfig
from gpumon.model import HostSnapshot, Process, encode
from gpumon.simulate import SimulatedHost
from gpumon.summary import summarize

HOSTS = 1000
BYTES_A_GPU = 2500
TIMES_THE_CLIENT = 1.0
CLIENT = Path(__file__).parent / "agent_cost" / "client_metrics.py"
SAMPLE = re.compile(r"([a-z_]+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


def main(arguments: list[str]) -> int:
    """Measure and print; return 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="100 hosts, fewer rounds")
    parser.add_argument("--no-peers", action="store_true", help="without prometheus-client")
    asked = parser.parse_args(arguments)
    quick = asked.quick
    hosts, rounds = (HOSTS // 10, 3) if quick else (HOSTS, 9)
    command = ["python", "bench/scrape.py", *arguments]
    print(machine.heading(command, "What /metrics costs", "invented hosts"), flush=True)
    client, left_out = (None, []) if asked.no_peers else _client()
    table = Table(
        "One answer of /metrics",
        [
            "who", "GPUs", "samples", "bytes", "bytes a GPU", "gzip", "CPU ms", "gzip, CPU ms",
            "prometheus-client, CPU ms", "ours to it", "floor, CPU ms", "ours to it",
        ],
        notes=[
            "CPU ms: from the cluster's picture (server) or the sample's bytes (agent) to the "
            "text, once for each new one whoever scrapes; gzip as it travels",
            "prometheus-client: from samples that lie ready to text. floor: one f-string a sample "
            "with its labels ready, nothing escaped, nothing looked up",
            *left_out,
        ],
    )  # fmt: skip
    budgets: list[Budget] = []
    status, _ = cluster(hosts=hosts)
    counts = PollCounts(answered=100_000, failed={"timed out": 7})
    made = {f"server, {hosts:,} hosts": _server(status, counts)}
    gpus = {f"server, {hosts:,} hosts": status.totals.gpus.total}
    for processes in (5, 40):
        name = f"agent, {processes} processes a GPU"
        made[name], gpus[name] = _agent(processes), 8
    for name, make in made.items():
        _measure(name, make, gpus[name], rounds, client, table, budgets)
    print(table.markdown(), flush=True)
    print(budget_table(budgets).markdown())
    return 0


def _client() -> tuple[peers.Peer | None, list[str]]:
    """Return Prometheus' own client where it can be had, and a sentence where it can't."""
    try:
        name = "prometheus-client"
        return peers.install_one(name, name, lambda words: print(words, file=sys.stderr)), []
    except (OSError, subprocess.SubprocessError) as error:
        return None, [f"prometheus-client and the floor are left out: {error}"]


def _server(status: ClusterStatus, counts: PollCounts) -> Callable[[], bytes]:
    return lambda: metrics(status, counts, MetricsConfig())


def _agent(processes: int) -> Callable[[], bytes]:
    snapshot = _busy(SimulatedHost("gpu-01", 0).snapshot(NOW), processes)
    latest = Latest(
        revision="r-1",
        interval=5.0,
        snapshot=encode(snapshot),
        summary=encode(summarize(snapshot)),
        taken_at=time.monotonic(),
        sampler_error=None,
    )
    maker = AgentMetrics(Limits(), MetricsConfig())
    # What was made of a sample is kept with it: each round is a new sample.
    return lambda: maker.text(Forms(latest), time.monotonic(), gzip=False)


def _busy(snapshot: HostSnapshot, processes: int) -> HostSnapshot:
    for gpu in snapshot.gpus:
        gpu.processes = [
            Process(pid=1000 * gpu.index + n, user=f"user{n % 7}", gpu_memory_used_mib=500)
            for n in range(processes)
        ]
    snapshot.sample_age_seconds = snapshot.sampler_error = None
    return snapshot


def _measure(
    name: str,
    make: Callable[[], bytes],
    gpus: int,
    rounds: int,
    client: peers.Peer | None,
    table: Table,
    budgets: list[Budget],
) -> None:
    text = make()
    ours, packing = _times(make, rounds), _times(lambda: gzip.compress(text, 6), rounds)
    families = _families(text.decode())
    theirs, floor = ([], []) if client is None else _beside(client, families, rounds)
    table.add(
        name, f"{gpus:,}", f"{sum(len(samples) for *_, samples in families):,}", f"{len(text):,}",
        f"{len(text) / gpus:,.0f}", f"{len(gzip.compress(text, 6)):,}", spread(ours, 1),
        f"{statistics.median(packing):.1f}", spread(theirs, 1), ratio(ours, theirs),
        spread(floor, 1), ratio(ours, floor),
    )  # fmt: skip
    if name.startswith("server"):
        found = len(text) / gpus
        budgets.append(
            Budget("bytes a GPU, server", f"{BYTES_A_GPU}", f"{found:.0f}", found <= BYTES_A_GPU)
        )
    if theirs:
        times = statistics.median(ours) / statistics.median(theirs)
        kept = times <= TIMES_THE_CLIENT
        what = f"CPU time beside prometheus-client, {name}"
        budgets.append(Budget(what, f"{TIMES_THE_CLIENT:g}x", f"{times:.2f}x", kept))


def _times(make: Callable[[], bytes], rounds: int) -> list[float]:
    found = []
    for _ in range(rounds):
        begin = time.process_time()
        make()
        found.append(1000 * (time.process_time() - begin))
    return found


def _families(text: str) -> list[list[object]]:
    """Return the samples of a text as `client_metrics.py` wants them."""
    found: list[list[object]] = []
    words = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            words = line.split(" ", 3)[3]
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            found.append([name, words, kind, []])
        elif line:
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            pairs = LABEL.findall(match[2] or "")
            samples = found[-1][3]
            assert isinstance(samples, list)
            samples.append([[k for k, _ in pairs], [v for _, v in pairs], float(match[3])])
    return found


def _beside(
    client: peers.Peer, families: list[list[object]], rounds: int
) -> tuple[list[float], list[float]]:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(families, file)
        file.flush()
        command = [str(client.python), "-I", str(CLIENT), file.name, str(rounds)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    theirs, floor = json.loads(done.stdout)
    return theirs, floor


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
