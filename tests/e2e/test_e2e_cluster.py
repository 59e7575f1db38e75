"""A cluster of one server and five agents on Debian 12: from bare hosts to no trace.

The tests follow each other, on the same hosts: each begins where the one before it ended.
"""

from __future__ import annotations

import html
import json
import re
import stat
from pathlib import Path

import pytest
from e2e.e2e_certificates import expire
from e2e.e2e_cluster import (
    DROPIN,
    PAGE,
    Cluster,
    Played,
    break_rpc3_and_the_server,
    install_old_tool,
)
from e2e.e2e_jobs import (
    CONTAINER,
    DEVICES,
    ENXIO,
    EPERM,
    STRANGER,
    has_device_rules,
    opened_in,
    start_container,
)
from e2e.e2e_lab import Host
from e2e.e2e_page import assert_links_work
from e2e.e2e_traces import mentions, paths

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SUITE = "bookworm"
HOSTS = ["web1", "rpc1", "rpc2", "rpc3", "rpc4", "rpc5"]
SPARE = ["rpc6"]
REFUSED = 7
"""So curl ends where nothing listens."""
KEPT_PORT = 9043
"""The one of gpumonitor on rpc1: it is written nowhere but in its old config.yml."""
OLD_CONFIG = f"""web_port: 8042
rpc_port: {KEPT_PORT}
rpc_timeout: 3.5
hosts:
  - rpc1
  - veteran
"""

bare: dict[str, set[str]] = {}
"""What the disks of the hosts held before."""
jobs: dict[str, int] = {}
"""Processes on rpc1 that ran before anything was installed, by who started them."""


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


def assert_jobs_are_undisturbed(host: Host) -> None:
    """They run on, and the container still has its GPUs: systemd has read nothing anew."""
    for user, pid in jobs.items():
        assert host.run("test", "-d", f"/proc/{pid}").returncode == 0, user
    if has_device_rules(host):
        assert opened_in(host, DEVICES, "/dev/nvidia0", STRANGER) == [ENXIO, EPERM]


def users_on(hosts: dict[str, dict[str, object]], name: str) -> list[list[str]]:
    """Return, of each GPU of a host, whose it is as the page says."""
    gpus = hosts[name]["gpus"]
    return [sorted(str(h["user"]) for h in gpu["holders"]) for gpu in gpus]


def test_check_mode_on_bare_hosts_passes_and_changes_nothing(cluster: Cluster) -> None:
    install_old_tool(cluster.lab.hosts["rpc1"], "gpumonitor-rpc", KEPT_PORT)
    cluster.agents["rpc1"].write("/home/gpumonitor/config.yml", OLD_CONFIG)
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
    host = cluster.agents["rpc1"]
    for user in ("alice", "bob", "4711"):  # the last one is a uid without an account
        jobs[user] = cluster.start_job(host, user)
    jobs["container"] = start_container(host)
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
    assert_jobs_are_undisturbed(cluster.agents["rpc1"])


def test_the_page_shows_each_gpu_with_its_owners_over_https(cluster: Cluster) -> None:
    rpc1, rpc2 = cluster.agents["rpc1"], cluster.agents["rpc2"]
    cluster.set_jobs(rpc1, {0: [jobs["alice"], jobs["bob"]], 1: [jobs["4711"], jobs["container"]]})
    cluster.set_jobs(rpc2, {0: [cluster.start_job(rpc2, "bob")]})
    cluster.wait_for(
        "each user's processes",
        lambda hosts: (
            users_on(hosts, "rpc1") == [["alice", "bob"], ["root", "uid:4711"]]
            and users_on(hosts, "rpc2") == [["bob"], []]
        ),
    )
    seen = cluster.status()
    assert [gpu["state"] for gpu in seen["rpc2"]["gpus"]] == ["busy", "free"]
    for name in ("rpc3", "rpc4", "rpc5"):
        assert [gpu["state"] for gpu in seen[name]["gpus"]] == ["free", "free"]
    held = {h["user"]: h["pids"] for gpu in seen["rpc1"]["gpus"] for h in gpu["holders"]}
    assert held["alice"] == [jobs["alice"]]
    assert held["bob"] == [jobs["bob"]]
    assert f"docker {CONTAINER[:12]}" in cluster.curl("/host/rpc1.json").stdout
    page = cluster.curl("/", "--header", "Accept: text/html").stdout
    assert "<html" in page
    assert "alice" in page
    assert "rpc5" in page
    plain = cluster.lab.inside(
        "curl", "-sI", f"http://{cluster.web.address}/healthz", "-H", f"Host: {PAGE}"
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
    group = "/sys/fs/cgroup/devices/system.slice/gpumon-agent.service"
    if has_device_rules(host):
        nodes = ("/dev/nvidiactl", "/dev/nvidia1", STRANGER)
        assert opened_in(host, group, *nodes) == [ENXIO, ENXIO, EPERM]
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
    address = f"{cluster.agents['rpc1'].address}:{KEPT_PORT}/snapshot.json"
    token = (secrets / "token").read_text().strip()
    stranger = cluster.folder / "stranger"
    made = cluster.lab.inside(
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=web1",
        "-keyout", f"{stranger}.key", "-out", f"{stranger}.crt",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr

    def answer(*, shows: Path | None, sends: str | None, scheme: str = "https") -> str | None:
        """Return what a caller is told, None where the connection is refused."""
        command = ["curl", "-sS", "-m", "5", "--cacert", str(secrets / "ca.crt")]
        if shows is not None:
            command += ["--cert", f"{shows}.crt", "--key", f"{shows}.key"]
        if sends is not None:
            command += ["-H", f"Authorization: Bearer {sends}"]
        done = cluster.lab.inside(*command, f"{scheme}://{address}")
        return done.stdout if done.returncode == 0 else None

    hosts = secrets / "hosts"
    assert answer(shows=hosts / "web1", sends=token, scheme="http") is None, "a plain poll"
    assert answer(shows=None, sends=token) is None
    assert answer(shows=stranger, sends=token) is None
    assert answer(shows=hosts / "page-web1", sends=token) is None
    assert "a token is needed" in str(answer(shows=hosts / "web1", sends=None))
    assert '"gpus"' not in str(answer(shows=hosts / "web1", sends=token[:-1] + "x"))
    assert '"gpus"' in str(answer(shows=hosts / "web1", sends=token))
    beside = cluster.lab.inside("curl", "-sS", "-m", "5", f"http://{cluster.web.address}:8042/")
    assert beside.returncode == REFUSED, "the server itself answers on loopback only"


def test_nothing_can_be_read_on_the_wire(cluster: Cluster) -> None:
    token = (cluster.folder / "gpumon-secrets/token").read_text().strip()
    polled = {name: host["answered_at"] for name, host in cluster.status().items()}
    with cluster.lab.overheard() as file:
        cluster.lab.inside("curl", "-s", f"http://{cluster.web.address}/all-hear-this")
        cluster.wait_for(
            "a poll of each host",
            lambda hosts: all(hosts[name]["answered_at"] > polled[name] for name in hosts),
        )
    heard = file.read_bytes()
    assert b"all-hear-this" in heard, "what is not encrypted would have been heard"
    for word in (token.encode(), b"Bearer", b"methodCall", b"alice", b"GeForce"):
        assert word not in heard, word


def test_a_second_run_changes_nothing_and_restarts_nothing(cluster: Cluster) -> None:
    pids, before = main_pids(cluster), reloads(cluster.web)
    played = cluster.play("main.yml")
    assert unchanged(played), played.output
    assert main_pids(cluster) == pids
    assert reloads(cluster.web) == before
    checked = cluster.play("main.yml", "--check", "--diff", "--limit", "localhost,rpc1,web1")
    assert unchanged(checked), checked.output


def test_a_changed_setting_restarts_its_service_and_no_other(cluster: Cluster) -> None:
    before, reads = main_pids(cluster), reloads(cluster.agents["rpc1"])
    faster = DROPIN.replace("[Service]", "[Service]\nWatchdogSec=6")
    own = cluster.folder / "host_vars/rpc5.yml"
    own.parent.mkdir()
    own.write_text(json.dumps({"gpumon_agent_dropin": faster}))
    cluster.write_inventory(rpc5='gpumon_config=\'{"agent": {"sample_interval": 3}}\'')
    played = cluster.play("main.yml", "--limit", "localhost,rpc5,rpc1")
    assert played.ok, played.output
    assert played.count("changed")["rpc5"] == 3, "two files, and the restart"
    assert played.count("changed")["rpc1"] == 0
    assert [name for name, pid in main_pids(cluster).items() if pid != before[name]] == ["rpc5"]
    assert reloads(cluster.agents["rpc1"]) == reads
    own.unlink()
    cluster.write_inventory()


def test_what_is_killed_or_stopped_is_back_by_itself(cluster: Cluster) -> None:
    """An agent and the server are killed, an agent and a sampler are stopped."""
    killed, stopped = cluster.agents["rpc3"], cluster.agents["rpc5"]
    sampler = cluster.agents["rpc2"]
    before = main_pids(cluster)
    killed.ask("kill", "-9", before["rpc3"])
    stopped.ask("kill", "-STOP", before["rpc5"])
    child = sampler.ask("pgrep", "-P", before["rpc2"])
    sampler.ask("kill", "-STOP", child)
    reason = cluster.wait_until_not_fresh("rpc2")
    assert "sampler" in reason or "no sample" in reason, reason
    assert cluster.status()["rpc1"]["state"] == "fresh", "the others do not notice"
    cluster.wait_for(
        "another process on rpc3 and rpc5, another sampler on rpc2",
        lambda _: (
            main_pids(cluster)["rpc3"] not in ("0", before["rpc3"])
            and main_pids(cluster)["rpc5"] not in ("0", before["rpc5"])
            and sampler.run("pgrep", "-P", before["rpc2"]).stdout.strip() not in ("", child)
        ),
    )
    for name in ("rpc3", "rpc5"):
        restarts = ("systemctl", "show", "--value", "-p", "NRestarts", "gpumon-agent")
        assert cluster.agents[name].ask(*restarts) == "1"
    assert main_pids(cluster)["rpc2"] == before["rpc2"], "its sampler is replaced, and no more"
    assert "atchdog" in stopped.ask("journalctl", "-b", "-o", "cat", "-u", "gpumon-agent")
    cluster.web.ask("kill", "-9", before["web1"])
    cluster.wait_for("another server", lambda _: main_pids(cluster)["web1"] != before["web1"])
    cluster.wait_until_fresh()


def test_hosts_that_are_cut_off_hang_or_lose_power_are_seen_and_come_back(
    cluster: Cluster,
) -> None:
    cut, hung, dark = cluster.agents["rpc3"], cluster.agents["rpc4"], cluster.agents["rpc5"]
    since = cluster.status()["rpc2"]["gpus"][0]["holders"][0]["started_at"]
    cut.cut()
    hung.freeze()
    dark.power_cut()
    try:
        reasons = {name: cluster.wait_until_not_fresh(name) for name in ("rpc3", "rpc4", "rpc5")}
        for reason in reasons.values():
            assert re.search("no answer|timed out|seconds|no route|No route", reason), reason
        seen = cluster.status()
        for name in reasons:
            assert {gpu["state"] for gpu in seen[name]["gpus"]} == {"unknown"}
        for name in ("rpc1", "rpc2"):
            assert seen[name]["state"] == "fresh", "the others do not notice"
        page = html.unescape(cluster.curl("/", "--header", "Accept: text/html").stdout)
        for name in reasons:
            assert str(seen[name]["reason"])[:30] in page, page
    finally:
        cut.heal()
        hung.thaw()
        dark.power_on()
    cluster.wait_until_fresh()
    assert cluster.status()["rpc2"]["gpus"][0]["holders"][0]["started_at"] == since


def test_hosts_that_boot_anew_are_back_without_help(cluster: Cluster) -> None:
    rpc2 = cluster.agents["rpc2"]
    before = {host.name: host.leader() for host in (rpc2, cluster.web)}
    for host in (rpc2, cluster.web):
        host.run("systemctl", "reboot")
    for host in (rpc2, cluster.web):
        host.wait_until_booted(before[host.name])
    cluster.set_jobs(rpc2, {})
    cluster.wait_for("nobody on rpc2", lambda hosts: users_on(hosts, "rpc2") == [[], []])
    cluster.wait_until_fresh()


def test_hosts_with_trouble_fail_alone_and_a_later_run_repairs_them(cluster: Cluster) -> None:
    """Expired certificate, no rights, gone on the way, much that stands against it, half done."""
    host = cluster.agents
    secrets = cluster.folder / "gpumon-secrets"
    expired = expire(secrets / "hosts/rpc1.crt", secrets / "ca.key").decode()
    (host["rpc1"].root / "etc/gpumon/host.crt").write_text(expired)
    host["rpc1"].ask("systemctl", "restart", "gpumon-agent")
    host["rpc2"].ask("mv", "/etc/sudoers.d/deploy", "/root/")
    old = "#!/bin/sh\necho '[[3, 9], \"x86_64\"]'\n"
    host["rpc4"].write("/usr/local/bin/python3.9", old, 0o755)
    host["rpc4"].ask("systemctl", "stop", "gpumon-agent")
    host["rpc4"].ask("systemd-run", "--unit=stranger", "python3", "-m", "http.server", "8043")
    host["rpc4"].ask("mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", "/opt/gpumon")
    release = Path(host["rpc5"].ask("readlink", "-f", "/opt/gpumon/agent"))
    host["rpc5"].ask("ln", "-sf", "/usr/bin/python3.0", f"{release}/bin/python3")
    host["rpc5"].ask("rm", "/opt/gpumon/agent", "/etc/gpumon/host.key")
    host["rpc5"].ask("systemctl", "kill", "-s", "KILL", "gpumon-agent")
    assert "expired" in cluster.wait_until_not_fresh("rpc1")
    cluster.write_inventory(rpc4="gpumon_python=/usr/local/bin/python3.9")
    settings = {"gpumon_web_verify_retries": 1, "gpumon_serial": [1, "100%"]}
    with cluster.playing("main.yml", **settings) as running:
        running.wait_until(lambda: "PLAY [Agents on the GPU hosts]" in running.output())
        host["rpc3"].cut()
        try:
            running.process.wait(200)
        finally:
            host["rpc3"].heal()
            cluster.write_inventory()
    played = Played(running)
    assert not played.ok
    failed, unreachable = played.count("failed"), played.count("unreachable")
    assert [name for name in failed if failed[name]] == ["rpc2", "rpc4"], played.output
    assert [name for name in unreachable if unreachable[name]] == ["rpc3"]
    assert "sudo" in played.output
    assert "is Python 3.9, and gpumon needs 3.10 or newer" in played.output
    assert re.search(r"\d+ MiB are free in /opt/gpumon and 200 are needed", played.output)
    assert "stranger.service" in played.output
    cluster.wait_until_fresh("rpc1", "rpc2", "rpc3", "rpc5")
    assert_jobs_are_undisturbed(host["rpc1"])

    host["rpc2"].ask("mv", "/root/deploy", "/etc/sudoers.d/")
    host["rpc4"].ask("systemctl", "stop", "stranger")
    host["rpc4"].ask("umount", "/opt/gpumon")
    host["rpc4"].ask("rm", "/usr/local/bin/python3.9")
    played = cluster.play("main.yml")
    assert played.ok, played.output
    assert played.count("changed")["rpc4"] == 1, "started, and nothing else"
    assert played.count("changed")["rpc2"] == 0
    cluster.wait_until_fresh()


def test_an_upgrade_that_was_killed_is_brought_to_its_end_by_the_next_run(
    cluster: Cluster,
) -> None:
    def newer(folder: Path) -> None:
        (folder / "gpumon/version.py").write_text('__version__ = "99.1.0"\n')

    source = str(cluster.source("newer", newer))
    new = cluster.agents["rpc4"].root / "opt/gpumon"
    with cluster.playing("main.yml", gpumon_source=source) as running:
        running.wait_until(lambda: any(new.glob("99.1.0-*-py3.*")))
    half = next(new.glob("99.1.0-*-py3.*"))
    assert not (half / "gpumon-release.json").exists(), "it was cut off in the middle"
    assert {host["agent_version"] for host in cluster.status().values()} != {"99.1.0"}

    old = cluster.agents["rpc1"].ask("readlink", "-f", "/opt/gpumon/agent")
    reads = reloads(cluster.agents["rpc1"])
    played = cluster.play("main.yml", gpumon_source=source, gpumon_serial=[1, "100%"])
    assert played.ok, played.output
    cluster.wait_for(
        "the newer agents",
        lambda hosts: {host["agent_version"] for host in hosts.values()} == {"99.1.0"},
    )
    for host in cluster.agents.values():
        assert host.ask("readlink", "-f", "/opt/gpumon/agent.previous") == old
    assert reloads(cluster.agents["rpc1"]) == reads
    assert_jobs_are_undisturbed(cluster.agents["rpc1"])
    told = cluster.play("check.yml")
    assert "rpc1: agent 99.1.0" in told.output, told.output
    assert "one version everywhere" in told.output


def test_a_host_is_added_drained_beside_those_that_run(cluster: Cluster) -> None:
    before = main_pids(cluster)
    cluster.agents["rpc6"] = cluster.lab.hosts["rpc6"]
    cluster.write_inventory(rpc6="gpumon_drained=true")
    newer = str(cluster.folder / "newer")
    played = cluster.play("main.yml", "--limit", "localhost,webserver,rpc6", gpumon_source=newer)
    assert played.ok, played.output
    cluster.wait_until_fresh()
    seen = cluster.status()
    assert {gpu["state"] for gpu in seen["rpc6"]["gpus"]} == {"drained"}
    assert seen["rpc1"]["address"].endswith(f":{KEPT_PORT}"), "the port that it kept"
    now = main_pids(cluster)
    assert [name for name in before if name != "web1" and now[name] != before[name]] == []


def test_a_release_that_is_not_well_goes_back_and_stops_at_its_batch(cluster: Cluster) -> None:
    """One of the second batch is not well, which is half of it; then the server."""
    cluster.write_inventory(rpc6="gpumon_drained=true")
    before = main_pids(cluster)
    web = cluster.web.ask("readlink", "-f", "/opt/gpumon/web")
    broken = str(cluster.source("broken", break_rpc3_and_the_server))
    given = {"gpumon_source": broken, "gpumon_agent_patience": 5, "gpumon_web_patience": 5}
    played = cluster.play("main.yml", gpumon_serial=[1, 2], **given)
    assert not played.ok
    assert "as before" in played.output, played.output
    assert "sick" in played.output, "the last words of the service are told"
    cluster.wait_until_fresh()
    versions = {name: host["agent_version"] for name, host in cluster.status().items()}
    assert [name for name in versions if versions[name] == "99.2.0"] == ["rpc1", "rpc2"]
    touched = [name for name, pid in main_pids(cluster).items() if pid != before[name]]
    assert touched == ["rpc1", "rpc2", "rpc3"], "the others and the server were never touched"

    played = cluster.play("main.yml", "--limit", "localhost,web1", **given)
    assert not played.ok
    assert f"It runs from {web} again, as before" in played.output, played.output
    assert cluster.web.ask("readlink", "-f", "/opt/gpumon/web") == web
    cluster.wait_until_fresh()


def test_a_host_is_taken_away_alone(cluster: Cluster) -> None:
    before = main_pids(cluster)
    played = cluster.play("uninstall.yml", "--limit", "rpc6", gpumon_uninstall="yes")
    assert played.ok, played.output
    gone = cluster.agents.pop("rpc6")
    assert mentions(gone) == []
    assert main_pids(cluster).items() <= before.items(), "no other host is touched"
    cluster.write_inventory()


CADDY = {"gpumon_proxy_program": "caddy", "gpumon_proxy_path": "/gpus/"}


def test_the_page_works_through_caddy_under_a_path_as_well(cluster: Cluster) -> None:
    cluster.web.ask("systemctl", "disable", "--now", "nginx")
    newer = str(cluster.folder / "newer")
    played = cluster.play("main.yml", "--limit", "localhost,web1", gpumon_source=newer, **CADDY)
    assert played.ok, played.output
    cluster.path = "/gpus/"
    cluster.wait_until_fresh()
    assert set(cluster.status()) == set(cluster.agents), "the host that was taken away is gone"
    assert_links_work(cluster)
    assert cluster.web.ask("systemctl", "is-active", "caddy") == "active"


def test_a_venv_whose_python_is_gone_is_made_anew(cluster: Cluster) -> None:
    release = cluster.web.ask("readlink", "-f", "/opt/gpumon/web")
    cluster.web.ask("ln", "-sf", "/usr/bin/python3.0", f"{release}/bin/python3")
    cluster.web.ask("systemctl", "kill", "-s", "KILL", "gpumon-web")
    newer = str(cluster.folder / "newer")
    played = cluster.play("main.yml", "--limit", "localhost,web1", gpumon_source=newer, **CADDY)
    assert played.ok, played.output
    assert played.count("changed")["web1"] == 2, "release and service; Caddy is as it was"
    cluster.wait_until_fresh()


def test_after_uninstall_there_is_no_trace(cluster: Cluster) -> None:
    host = cluster.agents["rpc1"]
    played = cluster.play("uninstall.yml", gpumon_uninstall="all")
    assert played.ok, played.output
    for name, machine in cluster.lab.hosts.items():
        new = paths(machine) - bare[name]
        assert {path for path in new if "gpumonitor" not in path and "nvgpu" not in path} == set()
        assert mentions(machine) == []
    assert unchanged(cluster.play("uninstall.yml", gpumon_uninstall="all"))
    assert_jobs_are_undisturbed(host)
    host.ask("systemctl", "daemon-reload")
    if has_device_rules(host):
        nodes = opened_in(host, DEVICES, "/dev/nvidia0")
        assert nodes == [EPERM], "had systemd read anew before, the container would have noticed"
