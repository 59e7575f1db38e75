"""Two real agents and the real server that asks them, each a process that can be ended."""

from __future__ import annotations

import getpass
import json
import subprocess
from pathlib import Path
from typing import Any

from commands.running import Command, get, wait_until
from fake_nvml.scenario import Scenario, environment, h100
from proxy.proxies import free_port

REFRESH_SECONDS = 3
HOSTS = ("left", "right")


class RealSite:
    """Hosts "left" and "right": one GPU held by whoever runs the tests, one free, on each."""

    def __init__(self, folder: Path) -> None:
        self._command = Command(folder)
        self._drivers: dict[str, dict[str, str]] = {}
        self.job = subprocess.Popen(["sleep", "600"], cwd="/")
        self.user = getpass.getuser()
        ports = {name: free_port() for name in HOSTS}
        web = free_port()
        self.url = f"http://127.0.0.1:{web}/"
        self._config(
            folder / "web.yml",
            web_port=web,
            poll_interval=1,
            rpc_timeout=1,
            web={"refresh_seconds": REFRESH_SECONDS},
            hosts=[{"name": name, "address": f"127.0.0.1:{ports[name]}"} for name in HOSTS],
        )
        for place, name in enumerate(HOSTS):
            agent = {"bind": "127.0.0.1", "sample_interval": 1}
            self._config(folder / f"{name}.yml", rpc_port=ports[name], agent=agent)
            # Cards of their own: the same ones would be one machine under two names.
            scenario = Scenario(gpus=[h100(2 * place), h100(2 * place + 1)])
            scenario.process(0, self.job.pid, memory_mib=4096, sm=50)
            scenario.gpus[0]["utilization.gpu"] = 50
            self._drivers[name] = environment(scenario.write(folder / f"{name}.scenario"))
        self._running: dict[str, subprocess.Popen[str]] = {}

    @staticmethod
    def _config(path: Path, **values: Any) -> None:
        path.write_text(json.dumps(values))  # JSON is YAML, too

    def start(self, name: str) -> None:
        """Start the agent of a host, or the server ("web"), unless it runs."""
        if name not in self._running:
            what = "web" if name == "web" else "agent"
            self._command.env.update(self._drivers.get(name, {}))
            self._running[name] = self._command.start(what, "--config", f"{name}.yml")

    def stop(self, name: str) -> None:
        """End it as systemd does."""
        code, said = self._command.stop(self._running.pop(name))
        assert code == 0, said

    def start_all(self) -> None:
        """Start what does not run, and wait until both hosts are fresh."""
        for name in (*HOSTS, "web"):
            self.start(name)
        wait_until(lambda: self._states() == ["fresh", "fresh"], "both hosts are fresh")

    def _states(self) -> list[str]:
        return [host["state"] for host in json.loads(get(f"{self.url}status.json"))["hosts"]]

    def end(self) -> None:
        self._command.end_all()
        self.job.kill()
        self.job.wait()
