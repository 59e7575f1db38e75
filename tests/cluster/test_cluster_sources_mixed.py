"""A cluster of every kind of host on one page of a real `gpumon web`: the same shape for all."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cluster.real_processes import (
    Page,
    Processes,
    Watcher,
    free_port,
    gpu_environment,
    gpus_of,
)
from commands.running import wait_until
from fake_nvml.scenario import Scenario, mig
from other_tools import (
    gpumonitor_agent,
    gpumonitor_gpu,
    gpumonitor_stats,
    nvgpu_agent,
    nvgpu_gpu,
)
from push.vesta_sender import Sender
from push.vesta_sender import gpu as vesta_gpu
from ssh_host import SSHD, USER, SshHost, a_process_row, a_row, kill
from web_client import BROWSER
from web_client import Page as Html

from gpumon.certs.authority import Limits, Names
from gpumon.certs.folder import CertsFolder

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(SSHD is None, reason="there is no sshd on this machine"),
]

TOKEN = "a-token-of-agents-0123456789"
PUSH_TOKEN = "a-token-of-pushes-0123456789"
VESTA_TOKEN = "a-token-of-vesta-0123456789"
ROOT = Path(__file__).parents[2]
MEMORY = {"total": 34_089_730_048, "used": 11_534_336, "free": 34_078_195_712}
NVGPU = json.dumps({"hostname": "gpu-old", "gpus": [nvgpu_gpu(memory=MEMORY)]}).encode()
PORTS = ("web", "plain", "mutual", "pushing", "north")
LOOPBACK = ipaddress.ip_address("127.0.0.1")

OURS = ("plain", "mutual", "pushing", "self", "ssh-forced")
"""Hosts whose readings are gpumon's own, whichever way they come."""
OTHERS = ("gpumonitor", "nvgpu", "ssh-smi", "vesta")
RELAYED = ("north:gpu-01", "north:gpu-02")
KINDS = (
    "plain", "mutual", "gpumonitor", "nvgpu", "ssh-smi", "ssh-forced", "pushing", "vesta",
    *RELAYED, "self",
)  # fmt: skip
BROKEN = {
    "plain": "refused",
    "gpumonitor": "failed",
    "nvgpu": "bad answer",
    "ssh-smi": "login refused",
    "ssh-forced": "login refused",
    "pushing": "silent",
    "north:gpu-01": "server silent",
    "north:gpu-02": "server silent",
}
"""What is said of each when it was broken."""
UNTOLD: dict[str, set[str]] = {
    "gpumonitor": {"uuid", "power_draw_watts", "enforced_power_limit_watts", "mig_mode"},
    "nvgpu": {"uuid", "power_draw_watts", "enforced_power_limit_watts", "mig_mode"},
    "vesta": {"power_draw_watts", "enforced_power_limit_watts", "mig_mode"},
    "ssh-smi": set(),
}
"""What another tool does not tell of a GPU, of the fields that are null where they are unknown."""
READINGS = (
    "uuid", "name", "utilization_percent", "memory_used_mib", "memory_total_mib",
    "temperature_celsius", "power_draw_watts", "enforced_power_limit_watts", "mig_mode",
)  # fmt: skip


class Cluster:
    """One server, and a host of every kind that it can show."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.run = Processes(folder)
        stack.callback(self.run.end)
        self.stats: Callable[[], Any] = lambda: gpumonitor_stats(gpumonitor_gpu())
        self.report = (200, NVGPU)
        self.smi = stack.enter_context(SshHost(_folder(folder / "smi")))
        self.smi.says([a_row(uuid="GPU-smi")], [a_process_row(os.getpid(), gpu_uuid="GPU-smi")])
        self.forced = stack.enter_context(SshHost(_folder(folder / "forced")))
        self.forced_command = _snapshot_command(folder / "forced")
        self.allow_forced()
        ports = {name: free_port() for name in PORTS}
        ports["gpumonitor"] = stack.enter_context(gpumonitor_agent(lambda: self.stats()))
        ports["nvgpu"] = stack.enter_context(nvgpu_agent(lambda: self.report))
        self.page = Page(ports["web"])
        self.start_agents(folder, ports)
        self.start_server(folder, ports)
        self.vesta = Sender(ports["web"], "vesta", VESTA_TOKEN)
        self.silent = threading.Event()
        posting = threading.Thread(target=self._post_as_vesta, daemon=True)
        posting.start()
        stack.callback(posting.join, 15)
        stack.callback(self.silent.set)

    def start_agents(self, folder: Path, ports: dict[str, int]) -> None:
        tokens = self.run.secret("agent-token", TOKEN)
        pushes = self.run.secret("pushing-token", PUSH_TOKEN)
        authority = CertsFolder(folder / "ca")
        now = dt.datetime.now(dt.timezone.utc)
        authority.init("an authority", Limits(), now, 3650, force=False)
        self.tls = {
            name: _tls(authority.add(Names((name,), ips), now, 730, force=False))
            for name, ips in (("mutual", (LOOPBACK,)), ("server", ()))
        }
        for name, token, more, push_as in (
            ("plain", tokens, "", ""),
            ("mutual", tokens, self.tls["mutual"], ""),
            ("pushing", pushes, "", ", push_as: pushing"),
        ):
            agent = f"agent: {{bind: 127.0.0.1, sample_interval: 1{push_as}}}\n"
            text = f"rpc_port: {ports[name]}\ntoken_file: {token}\n{more}{agent}"
            self.run.home(name, text)
        self.run.home("north", f"web_port: {ports['north']}\n")
        self.run.start("mutual", "agent", scenario=gpus_of("mutual"))
        self.start_plain()
        self.start_pushing()
        self.start_north()

    def start_plain(self) -> None:
        self.run.start("plain", "agent", scenario=_odd_machine())

    def start_pushing(self) -> None:
        where = f"{self.page.base}/"
        self.run.start("pushing", "agent", "--push", where, scenario=gpus_of("pushing"))

    def start_north(self) -> None:
        self.run.start("north", "demo", "--hosts", "2")

    def start_server(self, folder: Path, ports: dict[str, int]) -> None:
        self.run.secret("push-tokens", f"pushing {PUSH_TOKEN}")
        self.run.secret("vesta-tokens", f"vesta {VESTA_TOKEN}")
        known = self.smi.known_hosts.read_text() + self.forced.known_hosts.read_text()
        (folder / "known_hosts").write_text(known)
        public = (folder / "smi" / "client.pub").read_text()
        (folder / "forced" / "client.pub").write_text(public)
        self.allow_forced()
        self.run.home(
            "server",
            f"""
web_port: {ports["web"]}
rpc_timeout: 8
poll_interval: 2
token_file: ../agent-token
{self.tls["server"]}
ssh: {{user: {USER}, key_file: ../smi/client, known_hosts: ../known_hosts}}
agent: {{sample_interval: 1}}
hosts:
  - {{name: plain, address: "http://127.0.0.1:{ports["plain"]}", labels: {{room: b12}}}}
  - {{name: mutual, address: "https://127.0.0.1:{ports["mutual"]}"}}
  - {{name: gpumonitor, address: "http://127.0.0.1:{ports["gpumonitor"]}"}}
  - {{name: nvgpu, address: "nvgpu+http://127.0.0.1:{ports["nvgpu"]}"}}
  - {{name: ssh-smi, address: "ssh://127.0.0.1:{self.smi.port}"}}
  - {{name: ssh-forced, address: "ssh://127.0.0.1:{self.forced.port}"}}
  - push://pushing
  - push://vesta
  - {{name: north, address: "gpumon+http://127.0.0.1:{ports["north"]}"}}
  - self
web: {{push_token_file: ../push-tokens, vesta_token_file: ../vesta-tokens}}
""",
        )
        self.run.start("server", "web", scenario=gpus_of("self", 2))

    def allow_forced(self) -> None:
        """Let the server's key do one thing on that host."""
        self.forced.authorize("client", f'restrict,command="{self.forced_command}"')

    def _post_as_vesta(self) -> None:
        while not self.silent.wait(1):
            try:
                self.vesta.send(vesta_gpu())
            except OSError:
                continue  # the server is not there yet

    def all_fresh(self) -> dict[str, dict[str, Any]]:
        """Wait until every host is fresh; return them by name."""

        def fresh() -> bool:
            totals = self.page.status()["totals"]
            return bool(totals["hosts"] == 11 and totals["hosts_fresh"] == 11)

        wait_until(fresh, "every kind of host is fresh")
        return self.page.hosts()

    def reasons(self) -> dict[str, str | None]:
        """Return why hosts are not fresh, for all that are not."""
        hosts = self.page.hosts().values()
        return {host["name"]: host["reason_kind"] for host in hosts if host["state"] != "fresh"}

    def break_seven(self) -> None:
        """Break a host of each kind, but for three that are to go on undisturbed."""
        for name in ("plain", "pushing", "north"):
            assert self.run.stop(name) == 0
        self.stats = _broken
        self.report = (500, b"Internal Server Error")
        for host in (self.smi, self.forced):
            host.authorize("other")
            for pid in host.sessions():
                kill(pid)

    def mend_seven(self) -> None:
        self.start_plain()
        self.start_pushing()
        self.start_north()
        self.stats = lambda: gpumonitor_stats(gpumonitor_gpu())
        self.report = (200, NVGPU)
        self.smi.authorize("client")
        self.allow_forced()


def _broken() -> str:
    raise ValueError("process no longer exists (pid=1)")


def _odd_machine() -> Scenario:
    """A machine with a held GPU, one in MIG mode and one that is lost."""
    scenario = gpus_of("plain", 3)
    mig(scenario.gpus[1], "3g.40gb", "1g.10gb")
    scenario.process(0, pid=os.getpid(), memory_mib=2048, sm=70)
    scenario.lose(2)
    return scenario


def _snapshot_command(folder: Path) -> str:
    variables = gpu_environment(gpus_of("forced"), folder)
    told = " ".join(f"{name}={value}" for name, value in variables.items())
    return f"env {told} {sys.executable} -m gpumon snapshot --json"


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _tls(made: Path) -> str:
    return f"tls: {{cert: {made}/cert.pem, key: {made}/key.pem, ca: {made}/ca.pem}}\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path_factory.mktemp("mixed"), stack)


def described(page: Page, answer: Any, schema: str) -> None:
    """Fail unless `answer` is what the server's own description says."""
    document = json.loads(page.get("/openapi.json"))
    whole = {"$ref": f"#/components/schemas/{schema}", **document}
    jsonschema.Draft202012Validator(whole).validate(answer)


def test_every_kind_of_host_is_in_one_status_json_with_the_same_shape(cluster: Cluster) -> None:
    hosts = cluster.all_fresh()
    assert tuple(hosts) == KINDS
    described(cluster.page, cluster.page.status(), "ClusterStatus")
    assert len({tuple(host) for host in hosts.values()}) == 1
    gpus = [gpu for host in hosts.values() for gpu in host["gpus"]]
    assert len({tuple(gpu) for gpu in gpus}) == 1
    holders = [holder for gpu in gpus for holder in gpu["holders"]]
    assert len({tuple(holder) for holder in holders}) == 1
    assert all(host["errors"] == host["notes"] == [] for host in hosts.values())
    assert [host["gpu_count"] for host in hosts.values()] == [
        len(h["gpus"]) for h in hosts.values()
    ]
    assert {name for name, host in hosts.items() if host["simulated"]} == set(RELAYED)
    assert {name for name, host in hosts.items() if host["via"]} == set(RELAYED)
    assert all(0 <= host["age_seconds"] < 20 for host in hosts.values())
    unasked = {name for name, host in hosts.items() if host["next_poll_seconds"] is None}
    assert unasked == {"pushing", "vesta"}


def test_states_and_owners_of_every_kind_are_told_in_the_same_words(cluster: Cluster) -> None:
    hosts = cluster.all_fresh()
    found = {name: [gpu["state"] for gpu in hosts[name]["gpus"]] for name in (*OURS, *OTHERS)}
    assert found == {
        "plain": ["busy", "free", "fault"],
        "mutual": ["free"],
        "pushing": ["free"],
        "ssh-forced": ["free"],
        "self": ["free", "free"],
        "gpumonitor": ["free"],
        "nvgpu": ["free"],
        "ssh-smi": ["busy"],
        "vesta": ["busy"],
    }
    owners = {
        (name, holder["user"])
        for name in (*OURS, *OTHERS)
        for gpu in hosts[name]["gpus"]
        for holder in gpu["holders"]
    }
    assert owners == {("plain", USER), ("ssh-smi", USER), ("vesta", "alice")}
    assert hosts["plain"]["labels"] == {"room": "b12"}


def test_what_a_kind_does_not_tell_is_null_and_its_reason_stands_in_the_detail(
    cluster: Cluster,
) -> None:
    hosts = cluster.all_fresh()
    for name in OTHERS:
        [gpu] = hosts[name]["gpus"]
        assert {field for field in READINGS if gpu[field] is None} == UNTOLD[name], name
    lost = hosts["plain"]["gpus"][2]
    assert all(lost[field] is None for field in READINGS)
    for name in (*OURS, *OTHERS):
        answer = json.loads(cluster.page.get(f"/host/{name}.json"))
        described(cluster.page, answer, "HostAnswer")
        for gpu in answer["detail"]["gpus"]:
            for field in (*READINGS, "memory_free_mib", "sm_clock_mhz", "processes"):
                if gpu[field] is None and gpu["error"] is None and not gpu["mig"]:
                    assert gpu["unknown"].get(field), (name, field)


@pytest.mark.parametrize("form", ["page", "text"])
def test_every_kind_of_host_has_its_row_and_a_page_of_its_own(cluster: Cluster, form: str) -> None:
    cluster.all_fresh()
    if form == "text":
        text = cluster.page.get("/status.txt")
        assert all(any(line.split()[:1] == [name] for line in text.splitlines()) for name in KINDS)
        for name in KINDS:
            told = cluster.page.get(f"/host/{name}")
            assert any(line.startswith(f"{name}  fresh, reading ") for line in told.splitlines())
        return
    front = Html(cluster.page.get("/", BROWSER))
    for name in KINDS:
        assert front.row(name), name
        page = Html(cluster.page.get(f"/host/{name}", BROWSER))
        assert f"{name} fresh, reading " in page.words
    assert "not told by an agent of gpumonitor" in cluster.page.get("/host/gpumonitor", BROWSER)
    assert "does not tell" in cluster.page.get("/host/vesta", BROWSER)


def test_each_kind_that_breaks_costs_its_own_row_only(cluster: Cluster) -> None:
    cluster.all_fresh()
    with Watcher(cluster.page, ["mutual", "vesta", "self"]) as others:
        cluster.break_seven()
        wait_until(lambda: set(cluster.reasons()) == set(BROKEN), "each is seen")
        hosts = cluster.page.hosts()
        assert cluster.reasons() == BROKEN
        text = " ".join(Html(cluster.page.get("/", BROWSER)).words.split())
        for name in BROKEN:
            host = hosts[name]
            assert len(host["reason"]) > 40
            assert " ".join(host["reason"].split()) in text
            assert {gpu["state"] for gpu in host["gpus"]} == {"unknown"}, (
                "old values are not of now"
            )
        free = json.loads(cluster.page.get("/status.json"))["totals"]["gpus"]["free"]
        assert free == 3, "of the hosts that answer alone"
        cluster.mend_seven()
        cluster.all_fresh()
    assert others.looks > 20
    assert others.seen == set()
