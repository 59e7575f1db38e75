"""The same on Debian 13 in short: other systemd, other Python, the server has GPUs too."""

from __future__ import annotations

import pytest
from e2e.e2e_cluster import Cluster, break_the_agent, install_old_tool
from e2e.e2e_page import assert_links_work
from e2e.e2e_traces import mentions

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SUITE = "trixie"
HOSTS = ["web1", "rpc1"]


def test_a_cluster_on_debian_13_is_installed_stays_as_it_is_and_goes_without_trace(
    cluster: Cluster,
) -> None:
    cluster.give_gpus(cluster.web)
    cluster.agents["web1"] = cluster.web
    cluster.write_inventory()
    host = cluster.agents["rpc1"]
    install_old_tool(host, "gpumonitor-rpc", 8043)
    broken = str(cluster.source("broken", break_the_agent))
    played = cluster.play("main.yml", gpumon_source=broken, gpumon_agent_patience=5)
    assert not played.ok
    assert "gpumonitor-rpc.service runs again" in played.output, played.output
    assert host.ask("systemctl", "is-active", "gpumonitor-rpc") == "active"
    assert host.ask("systemctl", "is-enabled", "gpumonitor-rpc") == "enabled"
    assert host.run("systemctl", "is-active", "gpumon-agent").stdout.strip() == "inactive"

    played = cluster.play("main.yml", gpumon_proxy_path="/gpus/")  # and this run repairs it
    assert played.ok, played.output
    cluster.path = "/gpus/"
    assert_links_work(cluster)
    cluster.set_jobs(host, {1: [cluster.start_job(host, "alice")]})
    cluster.wait_until_fresh("web1", "rpc1")
    cluster.wait_for(
        "alice on rpc1",
        lambda hosts: [h["user"] for h in hosts["rpc1"]["gpus"][1]["holders"]] == ["alice"],
    )
    again = cluster.play("main.yml", gpumon_proxy_path="/gpus/")
    assert again.ok, again.output
    assert set(again.count("changed").values()) == {0}, again.output
    host.ask(
        "kill", "-9", host.ask("systemctl", "show", "--value", "-p", "MainPID", "gpumon-agent")
    )
    cluster.wait_for(
        "the agent anew",
        lambda _: host.run("systemctl", "is-active", "gpumon-agent").returncode == 0,
    )
    cluster.wait_until_fresh("rpc1")
    assert cluster.play("uninstall.yml", gpumon_uninstall="all").ok
    for machine in cluster.lab.hosts.values():
        assert mentions(machine) == []
