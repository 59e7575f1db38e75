"""Debian's Prometheus and VictoriaMetrics find 200 agents through the server and scrape them."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from metrics.many_agents import sample

AGENTS, PROCESSES = 200, 2
TOKEN = "an-invented-token-of-the-tests"
WAIT_SECONDS = 60.0
DOCS = Path(__file__).parents[2] / "docs" / "prometheus.md"

pytestmark = pytest.mark.system


class Lab(msgspec.Struct):
    """What runs: the server's port, the moment of all samples, and how to ask each database."""

    web: int
    epoch: float
    databases: dict[str, int]

    def query(self, database: str, expression: str) -> dict[str, float]:
        """Return the values of an instant query by their labels, as text."""
        query = urllib.parse.urlencode({"query": expression})
        url = f"http://127.0.0.1:{self.databases[database]}/api/v1/query?{query}"
        answer = json.loads(fetch(url))
        assert answer["status"] == "success", answer
        return {
            json.dumps(row["metric"], sort_keys=True): float(row["value"][1])
            for row in answer["data"]["result"]
        }

    def number(self, database: str, expression: str) -> float | None:
        values = list(self.query(database, expression).values())
        assert len(values) < 2, values
        return values[0] if values else None


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        data: bytes = answer.read()
        return data


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until(condition, what: str, seconds: float = WAIT_SECONDS):
    end = time.monotonic() + seconds
    while True:
        try:
            found = condition()
        except OSError:
            found = None
        if found:
            return found
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.25)


def start(stack: ExitStack, folder: Path, name: str, *command: str) -> subprocess.Popen[str]:
    """Start a program that ends with the stack; what it says goes to a file."""
    log = stack.enter_context((folder / f"{name}.log").open("w"))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder)

    def end() -> None:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(15)
        process.stdout.close()

    stack.callback(end)
    return process


def example(folder: Path, server: int) -> Path:
    """Return the file with the scrape configuration of the docs, made to point at this lab."""
    [text] = re.findall(r"```yaml\n(scrape_configs:.*?)```", DOCS.read_text(), re.DOTALL)
    text = text.replace("gpus.example.org:8042", f"127.0.0.1:{server}")
    text = text.replace("/etc/prometheus/gpumon-token", str(folder / "token"))
    # The agents of this lab speak without TLS.
    text = re.sub(r"    tls_config:\n(?:      .*\n)+", "", text)
    path = folder / "scrape.yml"
    path.write_text("global: {scrape_interval: 5s, scrape_timeout: 5s}\n" + text)
    return path


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    for program in ("prometheus", "victoria-metrics"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is missing; it is a package of Debian")
    folder, epoch = tmp_path_factory.mktemp("scraped"), time.time()
    token = folder / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    each, script = AGENTS // PROCESSES, str(Path(__file__).parent / "many_agents.py")
    with ExitStack() as stack:
        ports: list[int] = []
        agents = [
            start(
                stack, folder, f"agents-{n}",
                sys.executable, script, str(n * each), str(each), repr(epoch), TOKEN,
            )
            for n in range(PROCESSES)
        ]  # fmt: skip
        for process in agents:
            ports += json.loads(process.stdout.readline())
        nobody = free_port()
        hosts = [
            f"  - {{name: sim-{n:03}, address: 127.0.0.1:{port}, labels: {{rack: r{n % 4}}}}}"
            for n, port in enumerate(ports)
        ]
        hosts.append(f"  - {{name: gone, address: 127.0.0.1:{nobody}}}")
        config = folder / "config.yml"
        server = free_port()
        config.write_text(
            f"web_port: {server}\ntoken_file: {token}\npoll_interval: 5\nhosts:\n"
            + "\n".join(hosts)
        )
        start(
            stack, folder, "server", sys.executable, "-m", "gpumon", "web", "--config", str(config)
        )
        scrape, databases = example(folder, server), dict[str, int]()
        lab = Lab(web=server, epoch=epoch, databases=databases)
        until(lambda: fresh(lab) == AGENTS, "the server has polled all agents")
        databases["prometheus"] = free_port()
        start(
            stack, folder, "prometheus", "prometheus",
            f"--config.file={scrape}", f"--storage.tsdb.path={folder / 'prometheus'}",
            f"--web.listen-address=127.0.0.1:{databases['prometheus']}",
        )  # fmt: skip
        databases["victoria-metrics"] = free_port()
        start(
            stack, folder, "victoria-metrics", "victoria-metrics",
            f"-promscrape.config={scrape}", f"-storageDataPath={folder / 'victoria'}",
            f"-httpListenAddr=127.0.0.1:{databases['victoria-metrics']}",
            "-search.latencyOffset=1s",
        )  # fmt: skip
        yield lab


def fresh(lab: Lab) -> int:
    status = json.loads(fetch(f"http://127.0.0.1:{lab.web}/status.json"))
    return int(status["totals"]["hosts_fresh"])


DATABASES = pytest.mark.parametrize("database", ["prometheus", "victoria-metrics"])


@DATABASES
def test_all_agents_are_found_through_the_server_and_scraped_with_the_token(lab: Lab, database):
    until(
        lambda: lab.number(database, 'sum(up{job="gpumon-agents"})') == AGENTS,
        "all agents are scraped",
    )
    assert lab.number(database, 'count(up{job="gpumon-agents"})') == AGENTS + 1
    [gone] = lab.query(database, 'up{job="gpumon-agents"} == 0')
    assert json.loads(gone)["instance"] == "gone"
    assert lab.number(database, 'sum(up{job="gpumon-agents",rack="r1"})') == AGENTS / 4


@DATABASES
def test_what_they_hold_is_what_the_agents_sampled(lab: Lab, database):
    snapshots = [sample(number, lab.epoch) for number in range(AGENTS)]
    gpus = [gpu for snapshot in snapshots for gpu in snapshot.gpus]
    known = [gpu.utilization_percent for gpu in gpus if gpu.utilization_percent is not None]
    assert len(known) < len(gpus), "some GPU must not tell its utilization"
    until(
        lambda: lab.number(database, 'count(gpumon_build_info{part="agent"})') == AGENTS,
        "all agents are scraped",
    )
    for expression, wanted in {
        'count(gpumon_gpu_info{job="gpumon-agents"})': len(gpus),
        # A utilization that is not known is not there: neither counted nor summed as zero.
        'count(gpumon_gpu_utilization_ratio{job="gpumon-agents"})': len(known),
        'sum(gpumon_gpu_utilization_ratio{job="gpumon-agents"})': sum(known) / 100,
        'sum(gpumon_gpu_power_draw_watts{job="gpumon-agents"})': sum(
            gpu.power_draw_watts for gpu in gpus if gpu.power_draw_watts is not None
        ),
        'sum(gpumon_gpu_memory_used_bytes{job="gpumon-agents"})': 1024**2
        * sum(gpu.memory_used_mib for gpu in gpus if gpu.memory_used_mib is not None),
    }.items():
        assert lab.number(database, expression) == pytest.approx(wanted), expression
    silent = snapshots[10].gpus[0]
    this = f'gpumon_gpu_utilization_ratio{{job="gpumon-agents",uuid="{silent.uuid}"}}'
    assert lab.query(database, this) == {}
    assert lab.number(database, f"absent({this})") == 1


@DATABASES
def test_the_servers_own_figures_are_those_of_its_page(lab: Lab, database):
    status = json.loads(fetch(f"http://127.0.0.1:{lab.web}/status.json"))
    until(
        lambda: lab.number(database, 'gpumon_hosts{job="gpumon-server",state="fresh"}') == AGENTS,
        "the server is scraped with all hosts fresh",
    )
    assert (
        lab.number(database, 'sum(gpumon_gpus{job="gpumon-server"})')
        == (status["totals"]["gpus"]["total"])
    )
    assert lab.number(database, 'gpumon_host_state{host="gone",state="never"}') == 1
    assert lab.query(database, 'gpumon_host_gpus{host="gone"}') == {}
    refused = lab.number(database, 'gpumon_poll_failures_total{reason="refused"}')
    assert refused is not None
    assert refused >= 1
