"""Which port an agent and the page have, in every later run and for every host of it."""

from __future__ import annotations

import http.server
import re
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.plugins.filter.core import FilterModule
from install.healthy_page import HealthyPage
from install.install_module import run_module
from jinja2 import ChainableUndefined, Environment, FileSystemLoader

TEMPLATES = Path(__file__).parents[2] / "ansible-install/roles/gpumon/templates"


def looked_at(tmp_path: Path, **ports: Any) -> dict[str, Any]:
    told = run_module(
        "gpumon_preflight",
        ports=ports,
        etc=str(tmp_path),
        old_config=str(tmp_path / "old.yml"),
    )
    host: dict[str, Any] = told["host"]
    return host


def written(inventory: dict[str, dict[str, Any]], **variables: Any) -> str:
    """Return the config.yml of the server `page`, with `inventory` as [rpcservers]."""
    jinja = Environment(
        loader=FileSystemLoader(TEMPLATES), trim_blocks=True, undefined=ChainableUndefined
    )
    jinja.filters = {**FilterModule().filters(), **jinja.filters}
    told: str = jinja.get_template("config.yml.j2").render(
        {
            "groups": {"webserver": ["page"], "rpcservers": list(inventory)},
            "hostvars": inventory,
            "gpumon_is_server": True,
            "gpumon_host": {"ports": {"gpumon-web": 8042}},
            "gpumon_rpc_timeout": 2,
            "gpumon_agent_bind": "0.0.0.0",
            "gpumon_web_bind": "127.0.0.1",
            "gpumon_more_hosts": [],
            "gpumon_config": {},
            **variables,
        }
    )
    return told


def addresses(config: str) -> dict[str, str]:
    return {entry["name"]: entry["address"] for entry in yaml.safe_load(config)["hosts"]}


def test_a_port_kept_from_gpumonitor_is_found_again_when_its_configuration_is_gone(
    tmp_path: Path,
) -> None:
    (tmp_path / "old.yml").write_text("web_port: 9042\nrpc_port: 9043  # as ever\n")
    asked = {"gpumon-agent": "", "gpumon-web": ""}
    kept = {"gpumon-agent": 9043, "gpumon-web": 9042}
    assert looked_at(tmp_path, **asked)["ports"] == kept
    (tmp_path / "config.yml").write_text("web_port: 9042\nrpc_port: 9043\n")
    (tmp_path / "old.yml").unlink()
    assert looked_at(tmp_path, **asked)["ports"] == kept


def test_a_port_that_is_asked_for_wins_over_the_one_of_the_last_run(tmp_path: Path) -> None:
    (tmp_path / "config.yml").write_text("rpc_port: 9043\n")
    assert looked_at(tmp_path, **{"gpumon-agent": "7043"})["ports"] == {"gpumon-agent": 7043}


def test_without_any_word_the_usual_ports_hold(tmp_path: Path) -> None:
    found = looked_at(tmp_path, **{"gpumon-agent": "", "gpumon-web": ""})
    assert found["ports"] == {"gpumon-agent": 8043, "gpumon-web": 8042}
    assert found["known_ports"] == {}


def test_a_server_keeps_the_ports_of_hosts_that_a_later_run_leaves_out(tmp_path: Path) -> None:
    """A run with --limit has not looked at them, as little as at one that is unreachable."""
    everybody: dict[str, dict[str, Any]] = {
        "gpu-01": {"gpumon_host": {"ports": {"gpumon-agent": 9043}}, "ansible_host": "10.0.0.1"},
        "10": {"gpumon_host": {"ports": {"gpumon-agent": 9044}}, "ansible_host": "fd00::7"},
        "on": {"gpumon_host": {"ports": {"gpumon-agent": 9045}}},
    }
    first = written(everybody)
    (tmp_path / "config.yml").write_text(first)
    known = looked_at(tmp_path)["known_ports"]
    assert known == {"gpu-01": 9043, "10": 9044, "on": 9045}
    limited = {
        name: {key: value for key, value in its.items() if key != "gpumon_host"}
        for name, its in everybody.items()
    }
    limited["gpu-02"] = {}
    again = written(limited, gpumon_host={"ports": {"gpumon-web": 8042}, "known_ports": known})
    assert addresses(again) == {**addresses(first), "gpu-02": "gpu-02:8043"}
    assert addresses(again)["10"] == "[fd00::7]:9044"


def test_a_port_on_a_hosts_line_wins_over_what_the_server_knew() -> None:
    host = {"ports": {}, "known_ports": {"gpu-01": 9043}}
    told = written({"gpu-01": {"gpumon_rpc_port": 7043}}, gpumon_host=host)
    assert addresses(told) == {"gpu-01": "gpu-01:7043"}


def test_a_host_that_pushes_stands_among_the_hosts_as_such() -> None:
    told = written({"gpu-09": {"gpumon_entry": "push://gpu-09", "ansible_host": "10.0.0.9"}})
    assert addresses(told) == {"gpu-09": "push://gpu-09"}


@pytest.mark.parametrize("name", ["agent", "web"])
def test_the_check_asks_on_the_port_of_the_hosts_own_configuration(
    tmp_path: Path, name: str
) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), HealthyPage) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        port = server.server_address[1]
        key = {"agent": "rpc_port", "web": "web_port"}[name]
        (tmp_path / "config.yml").write_text(f"{key}: {port}\n")
        (tmp_path / "release/bin").mkdir(parents=True)
        (tmp_path / name).symlink_to("release")
        told = run_module(
            "gpumon_service", name=name, state="reported", etc=str(tmp_path), root=str(tmp_path),
            path_first=stub(tmp_path),
        )  # fmt: skip
        server.shutdown()
    assert told["report"]["well"] == "yes"


def test_a_stranger_on_the_proxys_port_is_told_before_anything_is_changed() -> None:
    with socket.create_server(("0.0.0.0", 0)) as other:
        port = other.getsockname()[1]
        told = run_module("gpumon_preflight", proxy="nginx", proxy_ports=[port])
        without = run_module("gpumon_preflight", proxy_ports=[port])
    [fault] = [fault for fault in told["faults"] if f"port {port}" in fault]
    assert re.search(r"which nginx needs, is taken by \w+ \(process \d+", fault)
    assert "gpumon_proxy_program" in fault
    assert not [fault for fault in without["faults"] if f"port {port}" in fault]


def stub(tmp_path: Path) -> Path:
    """Return a folder with a systemctl that agrees to everything."""
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "systemctl").write_text("#!/bin/sh\nexit 0\n")
    (folder / "systemctl").chmod(0o755)
    return folder


class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"hosts_fresh": 1}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
