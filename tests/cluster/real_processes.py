"""gpumon's own commands as real processes, each with a folder, GPUs and a log file of its own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from commands.running import Command, get, wait_until
from fake_nvml.scenario import Scenario, environment, h100


class Processes:
    """Starts gpumon's commands. The log of each can be read while it runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._clean = Command(folder).env
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def home(self, name: str, config: str) -> Path:
        """Make the folder of a process, with its config.yml; return it."""
        home = self.folder / name
        home.mkdir(exist_ok=True)
        (home / "config.yml").write_text(config)
        return home

    def secret(self, name: str, *lines: str) -> Path:
        """Write a file that only its owner may read."""
        path = self.folder / name
        path.write_text("".join(f"{line}\n" for line in lines))
        path.chmod(0o600)
        return path

    def start(self, name: str, *arguments: str, scenario: Scenario | None = None) -> int:
        """Start `gpumon ARGUMENTS` in the folder of `name`; return its pid."""
        home, env = self.folder / name, dict(self._clean)
        if scenario is not None:
            env |= gpu_environment(scenario, home)
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "gpumon", *arguments],
                cwd=home,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._running[name] = process
        return process.pid

    def log(self, name: str) -> list[str]:
        """Return the lines that a process has logged so far."""
        return (self.folder / f"{name}.log").read_text().splitlines()

    def stop(self, name: str) -> int:
        """End a process as systemd does; return its exit code."""
        process = self._running.pop(name)
        process.terminate()
        return process.wait(15)

    def end(self) -> None:
        """End all that still run, however they are."""
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait(15)
        self._running.clear()


def gpu_environment(scenario: Scenario, home: Path) -> dict[str, str]:
    """Return what a process needs in its environment to have these GPUs."""
    found = environment(scenario.write(home / "scenario"))
    return {name: found[name] for name in ("LD_LIBRARY_PATH", "FAKE_NVML_SCENARIO")}


def gpus_of(machine: str, count: int = 1) -> Scenario:
    """Return a machine with `count` empty H100s that no other machine has."""
    scenario = Scenario(gpus=[h100(number) for number in range(count)])
    for number, gpu in enumerate(scenario.gpus):
        gpu["uuid"] = f"GPU-{machine}-{number}"
    return scenario


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Page:
    """The faces of a running server."""

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}"

    def get(self, path: str, accept: str = "*/*") -> str:
        return get(f"{self.base}{path}", accept)

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self.get("/status.json"))
        return status

    def hosts(self) -> dict[str, dict[str, Any]]:
        """The hosts of /status.json by name, in their order."""
        return {host["name"]: host for host in self.status()["hosts"]}

    def wait_until_fresh(self, names: Iterable[str]) -> None:
        """Wait until all of these hosts are fresh."""

        def fresh() -> bool:
            hosts = self.hosts()
            return all(hosts.get(name, {}).get("state") == "fresh" for name in names)

        wait_until(fresh, f"these are fresh: {', '.join(names)}")


class Watcher:
    """Looks at a page again and again, and notes each host of `names` that was not fresh."""

    def __init__(self, page: Page, names: list[str]) -> None:
        self._page, self._names = page, names
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.looks = 0
        self.seen: set[tuple[str, str, str | None]] = set()
        """(host, state, reason) of each time that one was not fresh."""

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(15)
        assert not self._thread.is_alive()

    def _watch(self) -> None:
        while not self._ended.is_set():
            hosts = self._page.hosts()
            for name in self._names:
                host = hosts[name]
                if host["state"] != "fresh":
                    self.seen.add((name, host["state"], host["reason"]))
            self.looks += 1
            time.sleep(0.2)
