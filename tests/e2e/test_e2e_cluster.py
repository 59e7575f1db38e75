"""A cluster of one server and five agents on Debian 12: from bare hosts to no trace.

The tests follow each other, on the same hosts: each begins where the one before it ended.
"""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest
from e2e.e2e_cluster import Cluster, Played, break_the_agent, install_old_tool
from e2e.e2e_lab import Host
from e2e.e2e_traces import mentions, paths

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SUITE = "bookworm"
HOSTS = ["web1", "rpc1", "rpc2", "rpc3", "rpc4", "rpc5"]
ERRNO = """
import os, sys
for path in sys.argv[1:]:
    try:
        os.close(os.open(path, os.O_RDWR))
        print("open")
    except OSError as error:
        print(error.errno)
"""
EPERM, ENXIO = "1", "6"
OLD_CONFIG = """web_port: 8042
rpc_port: 8043
rpc_timeout: 3.5
hosts:
  - rpc1
  - veteran
"""

bare: dict[str, set[str]] = {}
"""What the disks of the hosts held before."""


def unchanged(played: Played) -> bool:
    return played.ok and set(played.count("changed").values()) == {0}


def main_pids(cluster: Cluster) -> dict[str, str]:
    """Return the process of each service: another one was restarted."""
    units = dict.fromkeys(cluster.agents, "gpumon-agent") | {"web1": "gpumon-web"}
    return {
        name: cluster.lab.hosts[name].ask("systemctl", "show", "--value", "-p", "MainPID", unit)
        for name, unit in units.items()
    }


def reloads(host: Host) -> int:
    """Return how often systemd has read its units anew since the boot."""
    return host.run("journalctl", "-b", "-o", "cat", "_PID=1", "-g", "Reloading").stdout.count(
        "Reloading"
    )


def test_check_mode_on_bare_hosts_passes_and_changes_nothing(cluster: Cluster) -> None:
    install_old_tool(cluster.lab.hosts["rpc1"], "gpumonitor-rpc", 8043)
    install_old_tool(cluster.lab.hosts["rpc2"], "nvgpu-agent", 1080)
    install_old_tool(cluster.web, "gpumonitor-web", 8042)
    cluster.web.write("/home/gpumonitor/config.yml", OLD_CONFIG)
    bare.update({name: paths(host) for name, host in cluster.lab.hosts.items()})
    played = cluster.play("main.yml", "--check", "--diff")
    assert played.ok, played.output
    assert "+User=gpumon-web" in played.output, "the difference is shown"
    for name, host in cluster.lab.hosts.items():
        assert paths(host) == bare[name]
        assert mentions(host) == []
    assert not (cluster.folder / "gpumon-secrets").exists()


def test_one_command_makes_a_cluster_of_bare_hosts(cluster: Cluster) -> None:
    before = {name: reloads(host) for name, host in cluster.lab.hosts.items()}
    played = cluster.play("main.yml", "--diff", "-vv")
    assert played.ok, played.output
    assert "veteran" in played.output, "a host that only the old config.yml knows is named"
    for secret in (cluster.folder / "gpumon-secrets").rglob("*"):
        if secret.is_file() and (secret.name == "token" or secret.suffix == ".key"):
            for line in secret.read_text().splitlines():
                assert line.startswith("-----") or line not in played.output, "a secret is shown"
    cluster.wait_until_fresh()
    for name, host in cluster.agents.items():
        assert reloads(host) == before[name], "containers may run there: nothing is read anew"


def test_the_page_shows_each_gpu_with_its_owner_over_https(cluster: Cluster) -> None:
    for name, users in {"rpc1": ["alice", "bob"], "rpc2": ["bob"]}.items():
        host = cluster.agents[name]
        cluster.set_jobs(
            host, {gpu: cluster.start_job(host, user) for gpu, user in enumerate(users)}
        )
    cluster.wait_for(
        "alice and bob on rpc1, bob on rpc2",
        lambda hosts: (
            [[h["user"] for h in gpu["holders"]] for gpu in hosts["rpc1"]["gpus"]]
            == [["alice"], ["bob"]]
            and [[h["user"] for h in gpu["holders"]] for gpu in hosts["rpc2"]["gpus"]]
            == [["bob"], []]
        ),
    )
    states = [gpu["state"] for gpu in cluster.status()["rpc2"]["gpus"]]
    assert states == ["busy", "free"]
    page = cluster.curl("/", "--header", "Accept: text/html").stdout
    assert "<html" in page
    assert "alice" in page
    assert "rpc5" in page
    plain = cluster.lab.inside(
        "curl", "-sI", f"http://{cluster.web.address}/healthz", "-H", "Host: gpus.lab"
    )
    assert "301" in plain.stdout.splitlines()[0], "HTTP leads to HTTPS"


def test_earlier_tools_are_retired_only_after_the_new_services_answer(cluster: Cluster) -> None:
    for name, old, new in (
        ("rpc1", "gpumonitor-rpc", "gpumon-agent"),
        ("rpc2", "nvgpu-agent", "gpumon-agent"),
        ("web1", "gpumonitor-web", "gpumon-web"),
    ):
        host = cluster.lab.hosts[name]
        told = host.ask(
            "journalctl", "-b", "-o", "cat", "_PID=1", "-u", old, "-u", new, "-u", f"{new}-trial"
        )
        words = [f"Started {new}-trial", f"Stopped {old}", f"Started {new}.service"]
        places = [told.find(word) for word in words]
        assert -1 not in places, told
        assert places == sorted(places), told
        assert host.run("systemctl", "is-enabled", old).stdout.strip() == "disabled"
        assert (host.root / "etc/systemd/system" / f"{old}.service").exists(), "it is kept"
    assert (cluster.web.root / "home/gpumonitor/config.yml").read_text() == OLD_CONFIG
    assert "rpc_timeout: 3.5" in cluster.web.ask("cat", "/etc/gpumon/config.yml")


def test_the_services_are_as_closed_as_their_units_say(cluster: Cluster) -> None:
    host = cluster.agents["rpc1"]
    pid = main_pids(cluster)["rpc1"]
    told = dict(
        line.split(":\t", 1) for line in host.ask("cat", f"/proc/{pid}/status").splitlines()
    )
    assert told["NoNewPrivs"] == "1"
    assert told["Seccomp"] == "2"
    assert int(told["CapEff"], 16) == 1 << 19 | 1 << 34, "to see processes and the kernel log only"
    group = "/sys/fs/cgroup/devices/system.slice/gpumon-agent.service/cgroup.procs"
    if host.run("test", "-e", group).returncode == 0:  # cgroups v1 have a list of devices
        host.ask("mknod", "-m", "666", "/dev/stranger", "c", "10", "229")
        nodes = "/dev/nvidiactl /dev/nvidia1 /dev/stranger"
        command = f"echo $$ > {group}; exec python3 -c '{ERRNO}' {nodes}"
        assert host.ask("sh", "-c", command).split() == [ENXIO, ENXIO, EPERM]
    limits = host.ask("systemctl", "show", "-p", "MemoryMax,TasksMax", "gpumon-agent")
    assert limits.splitlines() == ["MemoryMax=1073741824", "TasksMax=128"]
    for machine, unit, most in ((host, "gpumon-agent", 2.2), (cluster.web, "gpumon-web", 1.1)):
        said = machine.ask("systemd-analyze", "security", "--no-pager", unit).splitlines()[-1]
        assert float(said.partition(": ")[2].split()[0]) <= most
    for path, mode in {"token": 0o640, "host.key": 0o640, "host.crt": 0o644}.items():
        status = (host.root / "etc/gpumon" / path).stat()
        assert (stat.S_IMODE(status.st_mode), status.st_uid) == (mode, 0)


def test_the_wire_is_closed_to_who_has_no_certificate_or_no_token(cluster: Cluster) -> None:
    secrets = cluster.folder / "gpumon-secrets"
    url = f"https://{cluster.agents['rpc1'].address}:8043/snapshot.json"
    trusting = ["curl", "-sS", "-m", "5", "--cacert", str(secrets / "ca.crt")]
    shown = ["--cert", f"{secrets}/hosts/web1.crt", "--key", f"{secrets}/hosts/web1.key"]
    page = ["--cert", f"{secrets}/hosts/page-web1.crt", "--key", f"{secrets}/hosts/page-web1.key"]
    token = (secrets / "token").read_text().strip()
    with_token = ["-H", f"Authorization: Bearer {token}"]
    assert cluster.lab.inside(*trusting, *with_token, url).returncode != 0
    assert cluster.lab.inside(*trusting, *page, *with_token, url).returncode != 0
    assert "a token is needed" in cluster.lab.inside(*trusting, *shown, url).stdout
    assert '"gpus"' in cluster.lab.inside(*trusting, *shown, *with_token, url).stdout


def test_a_second_run_changes_nothing_and_restarts_nothing(cluster: Cluster) -> None:
    pids, before = main_pids(cluster), reloads(cluster.web)
    played = cluster.play("main.yml")
    assert unchanged(played), played.output
    assert main_pids(cluster) == pids
    assert reloads(cluster.web) == before
    assert unchanged(cluster.play("main.yml", "--check", "--diff"))


def test_a_changed_setting_restarts_its_service_and_no_other(cluster: Cluster) -> None:
    before = main_pids(cluster)
    cluster.write_inventory(rpc5='gpumon_config=\'{"agent": {"sample_interval": 3}}\'')
    played = cluster.play("main.yml", "--limit", "localhost,rpc5,rpc1")
    cluster.write_inventory()
    assert played.ok, played.output
    assert played.count("changed")["rpc5"] == 2, "the file, and the restart"
    assert played.count("changed")["rpc1"] == 0
    assert [name for name, pid in main_pids(cluster).items() if pid != before[name]] == ["rpc5"]


def test_a_killed_agent_is_back_by_itself(cluster: Cluster) -> None:
    host = cluster.agents["rpc3"]
    host.ask("kill", "-9", main_pids(cluster)["rpc3"])
    cluster.wait_for("the agent of rpc3 anew", lambda _: main_pids(cluster)["rpc3"] != "0")
    assert host.ask("systemctl", "show", "--value", "-p", "NRestarts", "gpumon-agent") == "1"
    cluster.wait_until_fresh("rpc3")


def test_hosts_that_are_cut_off_or_hang_are_seen_and_come_back(cluster: Cluster) -> None:
    cut, hung = cluster.agents["rpc3"], cluster.agents["rpc4"]
    cut.cut()
    hung.freeze()
    try:
        cluster.wait_until_not_fresh("rpc3")
        reason = cluster.wait_until_not_fresh("rpc4")
        assert "no answer" in reason or "timed out" in reason or "seconds" in reason, reason
        seen = cluster.status()
        for name in ("rpc3", "rpc4"):
            assert {gpu["state"] for gpu in seen[name]["gpus"]} == {"unknown"}
        for name in ("rpc1", "rpc2", "rpc5"):
            assert seen[name]["state"] == "fresh", "the others do not notice"
    finally:
        cut.heal()
        hung.thaw()
    cluster.wait_until_fresh()


def test_a_host_that_boots_anew_is_back_without_help(cluster: Cluster) -> None:
    host = cluster.agents["rpc2"]
    boot = host.ask("cat", "/proc/sys/kernel/random/boot_id"), host.leader()
    host.run("systemctl", "reboot")
    end = time.monotonic() + 30
    while host.leader() in (boot[1], None) and time.monotonic() < end:
        time.sleep(0.1)
    host.wait_until_up()
    cluster.set_jobs(host, {})
    cluster.wait_until_fresh()


def test_hosts_with_trouble_fail_alone_and_a_later_run_repairs_them(cluster: Cluster) -> None:
    """One of them old, one unreachable, one with a stranger on the port, one half done."""
    host = cluster.agents
    host["rpc2"].write(
        "/usr/local/bin/python3.9", "#!/bin/sh\necho '[[3, 9], \"x86_64\"]'\n", 0o755
    )
    host["rpc3"].cut()
    host["rpc4"].ask("systemctl", "stop", "gpumon-agent")
    host["rpc4"].ask("systemd-run", "--unit=stranger", "python3", "-m", "http.server", "8043")
    host["rpc5"].ask("sh", "-c", "rm /opt/gpumon/agent && rm /etc/gpumon/host.key")
    cluster.write_inventory(rpc2="gpumon_python=/usr/local/bin/python3.9")
    try:
        played = cluster.play("main.yml", gpumon_web_verify_retries=1)
    finally:
        host["rpc3"].heal()
        cluster.write_inventory()
    assert not played.ok
    failed, unreachable = played.count("failed"), played.count("unreachable")
    assert [name for name in failed if failed[name]] == ["rpc2", "rpc4"], played.output
    assert [name for name in unreachable if unreachable[name]] == ["rpc3"]
    assert "is Python 3.9, and gpumon needs 3.10 or newer" in played.output
    assert "stranger.service" in played.output
    cluster.wait_until_fresh("rpc1", "rpc2", "rpc3", "rpc5")
    host["rpc4"].ask("systemctl", "stop", "stranger")
    played = cluster.play("main.yml")
    assert played.ok, played.output
    assert played.count("changed")["rpc4"] == 1, "started, and nothing else"
    host["rpc2"].ask("rm", "/usr/local/bin/python3.9")
    cluster.wait_until_fresh()


def test_a_venv_whose_python_is_gone_is_made_anew(cluster: Cluster) -> None:
    host = cluster.agents["rpc1"]
    release = Path(host.ask("readlink", "-f", "/opt/gpumon/agent"))
    host.ask("sh", "-c", f"ln -sf /usr/bin/python3.0 {release}/bin/python3")
    host.ask("systemctl", "kill", "-s", "KILL", "gpumon-agent")
    played = cluster.play("main.yml", "--limit", "localhost,rpc1")
    assert played.ok, played.output
    cluster.wait_until_fresh("rpc1")


def test_an_upgrade_goes_host_by_host_and_keeps_the_old_release(cluster: Cluster) -> None:
    def newer(folder: Path) -> None:
        (folder / "gpumon/version.py").write_text('__version__ = "99.1.0"\n')

    old = cluster.agents["rpc1"].ask("readlink", "-f", "/opt/gpumon/agent")
    played = cluster.play(
        "main.yml", gpumon_source=str(cluster.source("newer", newer)), gpumon_serial=None
    )
    assert played.ok, played.output
    cluster.wait_for(
        "the newer agents",
        lambda hosts: {host["agent_version"] for host in hosts.values()} == {"99.1.0"},
    )
    for host in cluster.agents.values():
        assert host.ask("readlink", "-f", "/opt/gpumon/agent.previous") == old
    told = cluster.play("check.yml")
    assert "rpc1: agent 99.1.0" in told.output, told.output
    assert "one version everywhere" in told.output


def test_a_release_that_is_not_well_goes_back_and_stops_at_the_first_host(
    cluster: Cluster,
) -> None:
    before = main_pids(cluster)
    played = cluster.play(
        "main.yml",
        gpumon_source=str(cluster.source("broken", break_the_agent)),
        gpumon_serial=None,
        gpumon_agent_patience=10,
    )
    assert not played.ok
    assert "as before" in played.output, played.output
    assert "sick" in played.output, "the last words of the service are told"
    cluster.wait_until_fresh()
    assert {host["agent_version"] for host in cluster.status().values()} == {"99.1.0"}
    touched = [name for name, pid in main_pids(cluster).items() if pid != before[name]]
    assert touched == ["rpc1"], "the first host came back, the others were never touched"


def test_the_page_works_through_caddy_as_well(cluster: Cluster) -> None:
    cluster.web.ask("systemctl", "disable", "--now", "nginx")
    newer = str(cluster.folder / "newer")
    played = cluster.play(
        "main.yml", "--limit", "localhost,web1", gpumon_proxy_program="caddy", gpumon_source=newer
    )
    assert played.ok, played.output
    cluster.wait_until_fresh()
    again = cluster.play(
        "main.yml", "--limit", "localhost,web1", gpumon_proxy_program="caddy", gpumon_source=newer
    )
    assert unchanged(again), again.output
    assert cluster.web.ask("systemctl", "is-active", "caddy") == "active"


def test_after_uninstall_there_is_no_trace(cluster: Cluster) -> None:
    played = cluster.play("uninstall.yml")
    assert played.ok, played.output
    for name, host in cluster.lab.hosts.items():
        new = paths(host) - bare[name]
        assert {path for path in new if "gpumonitor" not in path and "nvgpu" not in path} == set()
        assert mentions(host) == []
    assert unchanged(cluster.play("uninstall.yml"))
