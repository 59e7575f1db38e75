"""What a run does to a cluster that runs: reloads, sites of others, parts of a run. Debian 13."""

from __future__ import annotations

import pytest
from e2e.e2e_cluster import Cluster
from e2e.e2e_lab import Host

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SUITE = "trixie"
HOSTS = ["web1", "rpc1"]
WIKI = """server { listen 80; server_name wiki.lab; return 200 wiki; }
server { listen 127.0.0.1:80; server_name here.lab; return 200 here; }
"""


def pid(host: Host, unit: str) -> str:
    return host.ask("systemctl", "show", "--value", "-p", "MainPID", unit)


def asked(host: Host, name: str, place: str) -> str:
    return host.ask("curl", "-s", "-m", "5", "-H", f"Host: {name}", f"http://{place}/")


def test_an_nginx_with_sites_of_its_own_gets_the_page_beside_them(cluster: Cluster) -> None:
    web = cluster.web
    web.write("/etc/nginx/conf.d/wiki.conf", WIKI)
    web.ask("rm", "/etc/nginx/sites-enabled/default")  # it would be what strangers get
    web.ask("systemctl", "enable", "--now", "nginx")
    worker = pid(web, "nginx")
    readers = ["wiki.lab", "here.lab", "elsewhere.lab", web.address]
    places = ["127.0.0.1", web.address]
    before = {(name, place): asked(web, name, place) for name in readers for place in places}
    assert set(before.values()) == {"wiki", "here"}
    played = cluster.play("main.yml")
    assert played.ok, played.output
    cluster.wait_until_fresh()
    assert pid(web, "nginx") == worker, "its readers lose nothing"
    after = {(name, place): asked(web, name, place) for name in readers for place in places}
    assert after == before
    for place in places:
        assert "301" in asked(web, "gpus.lab", place), "also where a site listens on loopback alone"
    again = cluster.play("main.yml")
    assert set(again.count("changed").values()) == {0}, again.output


def test_a_drained_host_reloads_the_server_and_check_mode_says_so_before(cluster: Cluster) -> None:
    before = pid(cluster.web, "gpumon-web"), pid(cluster.agents["rpc1"], "gpumon-agent")
    cluster.write_inventory(rpc1="gpumon_drained=true")
    limit = ("--limit", "localhost,web1")
    told = cluster.play("main.yml", *limit, "--check", "--diff")
    assert told.ok, told.output
    assert "+reload: /etc/gpumon/config.yml: hosts changed" in told.output
    played = cluster.play("main.yml", *limit)
    assert played.ok, played.output
    assert played.count("changed")["web1"] == 2, "the file, and the reload"
    cluster.wait_for(
        "drained GPUs of rpc1",
        lambda hosts: {gpu["state"] for gpu in hosts["rpc1"]["gpus"]} == {"drained"},
    )
    after = pid(cluster.web, "gpumon-web"), pid(cluster.agents["rpc1"], "gpumon-agent")
    assert after == before
    cluster.write_inventory()
    assert cluster.play("main.yml").ok


@pytest.mark.parametrize("tag", ["preflight", "install", "configure", "verify"])
def test_a_part_of_a_run_works_alone(cluster: Cluster, tag: str) -> None:
    played = cluster.play("main.yml", "--tags", tag)
    assert played.ok, played.output
    assert set(played.count("changed").values()) == {0}


def test_a_fault_in_a_setting_is_told_with_its_line_and_the_services_run_on(
    cluster: Cluster,
) -> None:
    before = pid(cluster.web, "gpumon-web")
    cluster.write_inventory(web1='gpumon_config=\'{"web": {"titel": "x"}}\'')
    played = cluster.play("main.yml")
    cluster.write_inventory()
    assert not played.ok
    assert {name for name, count in played.count("failed").items() if count} == {"web1"}
    assert "web.titel: unknown key. Did you mean" in played.output, played.output
    assert pid(cluster.web, "gpumon-web") == before
    cluster.wait_until_fresh()


def test_a_site_with_the_pages_name_stops_the_web_server_before_it_is_changed(
    cluster: Cluster,
) -> None:
    cluster.web.write(
        "/etc/nginx/conf.d/other.conf", "server { listen 80; server_name gpus.lab; return 404; }\n"
    )
    played = cluster.play("main.yml")
    assert {name for name, count in played.count("failed").items() if count} == {"web1"}
    assert "nginx has a site for gpus.lab already (/etc/nginx/conf.d/other.conf" in played.output
    cluster.web.ask("rm", "/etc/nginx/conf.d/other.conf")
    assert cluster.play("main.yml").ok


def test_what_the_doctor_finds_fails_that_host_with_the_cure(cluster: Cluster) -> None:
    host = cluster.agents["rpc1"]
    host.ask("mv", "/opt/fake-nvml/libnvidia-ml.so.1", "/opt/fake-nvml/gone")
    played = cluster.play("main.yml", "--tags", "verify")
    host.ask("mv", "/opt/fake-nvml/gone", "/opt/fake-nvml/libnvidia-ml.so.1")
    assert {name for name, count in played.count("failed").items() if count} == {"rpc1"}
    assert "driver: " in played.output
    assert "-> Install or repair the NVIDIA driver" in played.output
    assert cluster.play("main.yml", "--tags", "verify").ok
