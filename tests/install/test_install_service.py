"""What a run does to a service that runs: nothing, a reload, or a new start, and the way back.

The daemons are real; a small systemctl and journalctl stand for systemd.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from install.install_module import run_module

pytestmark = pytest.mark.system

SYSTEMCTL = """#!/bin/sh
cd {folder}
case $1 in
  is-active) test -e pid && kill -0 $(cat pid) 2>/dev/null ;;
  is-enabled) test -e enabled ;;
  enable) echo $1 >> verbs; touch enabled ;;
  disable) echo $1 >> verbs; rm -f enabled; test ! -e pid || kill $(cat pid); rm -f pid ;;
  restart) echo $1 >> verbs; test ! -e pid || kill $(cat pid)
    while test -e pid && kill -0 $(cat pid) 2>/dev/null; do sleep 0.05; done
    setsid {release}/bin/python -I -m gpumon {kind} --config {folder}/etc/config.yml \\
      >/dev/null 2>>log </dev/null & echo $! > pid ;;
  reload) echo $1 >> verbs; {reload} ;;
  show) case "$*" in *MainPID*) cat pid ;; *) echo no ;; esac ;;
esac
"""


class Service:
    """One service of a host that has nothing else."""

    def __init__(self, folder: Path, kind: str, reload: str = "kill -HUP $(cat pid)") -> None:
        self.folder, self.kind = folder, kind
        self.etc, self.programs = folder / "etc", folder / "programs"
        self.release = folder / "0.1.0-py3.11"
        for new in (self.etc, self.programs, self.release / "bin"):
            new.mkdir(parents=True)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        script(self.release / "bin/python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        script(
            self.programs / "systemctl",
            SYSTEMCTL.format(folder=folder, release=self.release, kind=kind, reload=reload),
        )
        script(self.programs / "journalctl", f"#!/bin/sh\ncat {folder}/log\n")
        (self.etc / "token").write_text("a-token-of-sixteen-letters\n")
        self.configure()

    def configure(self, more: str = "") -> None:
        self.etc.joinpath("config.yml").write_text(self.config(more))

    def config(self, more: str) -> str:
        key = {"agent": "rpc_port", "web": "web_port"}[self.kind]
        lines = [f"{key}: {self.port}", f"token_file: {self.etc}/token", more]
        return "\n".join(lines if "hosts:" in more else [*lines, "hosts: []"]) + "\n"

    def run(self, **parameters: Any) -> dict[str, Any]:
        """Let the module see to it."""
        return run_module(
            "gpumon_service",
            path_first=self.programs,
            name=self.kind,
            files=[f"{self.etc}/config.yml", f"{self.etc}/token", f"{self.etc}/host.crt"],
            reloads=[f"{self.etc}/token"],
            port=self.port,
            etc=str(self.etc),
            root=str(self.folder),
            **{"release": str(self.release), "patience": 20, "steady": 0.1, **parameters},
        )

    def verbs(self) -> list[str]:
        """Return what was done to it since the last time."""
        path = self.folder / "verbs"
        told = path.read_text().split() if path.exists() else []
        path.write_text("")
        return told

    def pid(self) -> str:
        return (self.folder / "pid").read_text().strip()


def script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path, *getattr(request, "param", ("web",)))
    told = made.run()
    assert told.get("how") == "restart", told
    made.verbs()
    yield made
    subprocess.run([made.programs / "systemctl", "disable"], timeout=20)


def test_a_second_run_does_nothing(service: Service) -> None:
    told = service.run()
    assert (told["changed"], told["how"], service.verbs()) == (False, "none", [])


def test_another_host_reloads_the_server_and_does_not_restart_it(service: Service) -> None:
    pid = service.pid()
    service.configure("hosts: ['http://127.0.0.1:1']")
    told = service.run()
    assert told.get("how") == "reload", told
    assert told["reasons"] == [f"{service.etc}/config.yml: hosts changed"]
    assert (service.verbs(), service.pid()) == (["reload"], pid)
    assert told["report"]["well"] == "yes"
    assert service.run()["changed"] is False


def test_a_title_restarts_the_server(service: Service) -> None:
    pid = service.pid()
    service.configure("web: {title: Other}")
    told = service.run()
    assert told["reasons"] == [f"{service.etc}/config.yml: web.title changed"]
    assert service.verbs() == ["enable", "restart"]
    assert service.pid() != pid


def test_a_certificate_restarts_it(service: Service) -> None:
    (service.etc / "host.crt").write_text("another one\n")
    assert service.run()["how"] == "restart"


@pytest.mark.parametrize("service", [("agent",)], indirect=True)
def test_an_agent_takes_over_a_token_by_a_reload_and_is_left_alone_where_only_hosts_change(
    service: Service,
) -> None:
    pid = service.pid()
    (service.etc / "token").write_text(
        "another-token-of-many-letters\na-token-of-sixteen-letters\n"
    )
    told = service.run()
    assert (told["how"], service.verbs(), service.pid()) == ("reload", ["reload"], pid), told
    assert told["report"]["gpus"] is not None, "the new token opens it"
    service.configure("hosts: [gpu-01]\nweb: {title: Other}")
    told = service.run()
    assert (told["changed"], told["how"], service.verbs()) == (False, "none", [])
    assert service.run()["reasons"] == []


@pytest.mark.parametrize(
    ("more", "pending", "how", "words"),
    [
        ("hosts: [gpu-01]", ["config.yml"], "reload", "reload: {etc}/config.yml: hosts changed\n"),
        ("web: {title: x}", ["config.yml"], "restart", "start anew: {etc}/config.yml: web.title"),
        ("", ["config.yml"], "none", "leave alone: {etc}/config.yml changed\n"),
        ("", ["token"], "reload", "reload: {etc}/token changed\n"),
        ("", ["host.crt"], "restart", "start anew: {etc}/host.crt changed\n"),
        ("", [], "none", ""),
    ],
)
def test_check_mode_tells_what_the_files_that_it_does_not_write_would_do(
    service: Service, more: str, pending: list[str], how: str, words: str
) -> None:
    told = service.run(
        check=True,
        pending=[f"{service.etc}/{name}" for name in pending],
        config_text=service.config(more),
    )
    assert (told["how"], told["changed"]) == (how, how != "none")
    assert told["diff"]["after"].startswith(words.format(etc=service.etc))
    assert service.verbs() == []


def test_a_reload_that_is_refused_puts_the_files_back_and_the_service_runs_on(
    service: Service,
) -> None:
    pid, good = service.pid(), (service.etc / "config.yml").read_text()
    (service.etc / "token").write_text("\n")
    told = service.run()
    assert told["failed"] is True
    assert "token" in told["msg"]
    assert "The files of before are back, and it runs on as before" in told["msg"]
    assert (service.etc / "token").read_text() == "a-token-of-sixteen-letters\n"
    assert ((service.etc / "config.yml").read_text(), service.pid()) == (good, pid)
    assert service.run()["changed"] is False


def test_a_configuration_with_a_fault_goes_back_to_the_one_of_before(service: Service) -> None:
    good = (service.etc / "config.yml").read_text()
    service.configure("web: {titel: x}")
    told = service.run(patience=1)
    assert "titel" in told["msg"]
    assert "as before" in told["msg"]
    assert (service.etc / "config.yml").read_text() == good
    assert service.run()["report"]["well"] == "yes"


@pytest.mark.parametrize("service", [("web", "true")], indirect=True)
def test_a_service_that_does_not_say_that_it_has_reloaded_is_restarted(service: Service) -> None:
    """The signal may be lost on a service that has just begun."""
    pid = service.pid()
    service.configure("hosts: ['http://127.0.0.1:1']")
    told = service.run(reload_seconds=1)
    assert told["how"] == "restart", told
    assert service.verbs() == ["reload", "enable", "restart"]
    assert service.pid() != pid


def test_a_release_that_is_not_there_is_told_before_anything_is_touched(service: Service) -> None:
    told = service.run(release=f"{service.folder}/0.2.0-py3.11")
    assert "0.2.0-py3.11 is not installed here" in told["msg"]
    assert "--tags" in told["msg"]
    assert (service.verbs(), os.readlink(service.folder / "web")) == ([], str(service.release))
