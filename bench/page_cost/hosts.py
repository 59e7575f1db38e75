"""The invented hosts as every tool wants to find them: one process, on loopback addresses.

`python hosts.py` prints {"http": port, "ssh": port} as JSON and serves until its input ends. Host
number n is the address of `fleet_cost.agents.address(n)`, on both ports. All forms tell of the same
8 GPUs a host, at once and without a driver: what real hosts take for an answer is not in it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import asyncssh

sys.path.insert(0, str(Path(__file__).parents[1]))

from fleet_cost.agents import VARIANTS, Healthy, loopback_socket, number_of
from fleet_cost.answers import Agent, a_snapshot

from gpumon.agent.nvgpu import gpu_status
from gpumon.model import Gpu, HostSnapshot, Process, encode

HOT, WARM = 75, 50


class Forms:
    """One reading in the forms of gpuview, nvgpu and gpustat."""

    def __init__(self, snapshot: HostSnapshot) -> None:
        self.gpustat = json.dumps(_gpustat(snapshot)).encode()
        self.nvgpu = encode(gpu_status(snapshot))
        self.text = "\n".join([snapshot.hostname, *map(_line, snapshot.gpus)]) + "\n"


class Host(Healthy):
    """Our agent's XML-RPC and, for GET, what gpuview's and nvgpu's servers fetch."""

    forms: list[Forms] = []  # noqa: RUF012  shared by all connections, made once

    def data_received(self, data: bytes) -> None:
        if not data.startswith(b"GET "):
            super().data_received(data)
            return
        forms = self.forms[self.host % len(self.forms)]
        body = forms.gpustat if data.startswith(b"GET /gpustat") else forms.nvgpu
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        self.transport.write(f"{head}\r\n\r\n".encode() + body)


class Open(asyncssh.SSHServer):
    """Lets everybody in: only this machine gets here, and there is nothing but invented text."""

    def begin_auth(self, username: str) -> bool:
        return False


def _run(process: asyncssh.SSHServerProcess[str]) -> None:
    number = number_of(process.get_extra_info("sockname")[0])
    process.stdout.write(Host.forms[number % len(Host.forms)].text)
    process.exit(0)


def _processes(gpu: Gpu) -> list[Process]:
    return gpu.processes or []


def _gpustat(snapshot: HostSnapshot) -> dict[str, object]:
    """Return what gpuview's `/gpustat` gives, without names, as it does by default."""
    gpus = []
    for gpu in snapshot.gpus:
        used, total = gpu.memory_used_mib or 0, gpu.memory_total_mib or 1
        users = len({process.user for process in _processes(gpu)})
        warmth = gpu.temperature_celsius or 0
        gpus.append(
            {
                "index": gpu.index,
                "name": gpu.name,
                "temperature.gpu": warmth,
                "fan.speed": None,
                "utilization.gpu": gpu.utilization_percent,
                "power.draw": round(gpu.power_draw_watts or 0),
                "enforced.power.limit": round(gpu.enforced_power_limit_watts or 0),
                "memory.used": used,
                "memory.total": total,
                "memory": round(100 * used / total),
                "users": users,
                "user_processes": f"{users}/{len(_processes(gpu))}",
                "flag": "bg-danger" if warmth > HOT else "bg-warning" if warmth > WARM else "",
            }
        )
    return {"hostname": snapshot.hostname, "query_time": "2026-01-05T08:02:03", "gpus": gpus}


def _line(gpu: Gpu) -> str:
    """Return a line as `gpustat --color` writes it."""
    held = " ".join(f"{one.user}({one.gpu_memory_used_mib}M)" for one in _processes(gpu))
    return (
        f"\x1b[36m[{gpu.index}]\x1b[m \x1b[34m{gpu.name}\x1b[m | "
        f"\x1b[31m{gpu.temperature_celsius}'C\x1b[m, \x1b[1m{gpu.utilization_percent:3d} %\x1b[m | "
        f"\x1b[33m{gpu.memory_used_mib}\x1b[m / {gpu.memory_total_mib} MB | {held}"
    )


async def serve() -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    http, ssh = loopback_socket(4096), loopback_socket(4096)
    server = await loop.create_server(Host, sock=http, backlog=4096)
    shell = await asyncssh.listen(
        sock=ssh,
        server_factory=Open,
        process_factory=_run,
        server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
    )
    ports = {"http": http.getsockname()[1], "ssh": ssh.getsockname()[1]}
    print(json.dumps(ports), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()
    shell.close()


if __name__ == "__main__":
    Healthy.agents = [Agent(seed) for seed in range(VARIANTS)]
    Host.forms = [Forms(a_snapshot(seed)) for seed in range(VARIANTS)]
    asyncio.run(serve())
