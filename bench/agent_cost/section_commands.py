"""Commands that run once: from start to exit."""

from __future__ import annotations

import os
import resource
import select
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass, field

from agent_cost import children
from agent_cost.settings import Settings
from agent_cost.table import Budget, Result, Table, ratio, spread
from agent_cost.world import GPUS, World, world

OWN = "gpumon snapshot"
NVITOP = "nvitop -1"
COMMAND_SECONDS = 60.0


@dataclass
class Command:
    """A command line and what its runs have cost."""

    name: str
    line: list[str]
    wall_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    """With the children that it has waited for."""
    peak_mib: float = 0.0
    size: int = 0
    trouble: str | None = None

    def run(self, host: World) -> None:
        """Run it once, its output into a file."""
        if self.trouble is not None:
            return
        with tempfile.TemporaryFile(dir=host.folder) as output:
            begin = time.perf_counter()
            process = subprocess.Popen(
                self.line,
                env=children.child_environment(host.scenario),
                cwd=host.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                preexec_fn=children.die_with_parent,
            )
            code, used = _wait(process)
            wall = time.perf_counter() - begin
            if code != 0:
                self.trouble = f"exit code {code}"
                return
            self.wall_ms.append(1000 * wall)
            self.cpu_ms.append(1000 * (used.ru_utime + used.ru_stime))
            self.peak_mib = used.ru_maxrss / 1024
            self.size = os.fstat(output.fileno()).st_size


def run(settings: Settings) -> Result:
    """Run all commands in turn, at every size."""
    result = Result()
    for size in settings.sizes:
        settings.say(f"commands: {GPUS} x {size}")
        commands = _commands(settings)
        with world(settings.folder, size) as host:
            for number in range(settings.command_rounds + 1):
                for command in commands:
                    command.run(host)
                    if number == 0:  # fills the caches of the file system
                        command.wall_ms.clear()
                        command.cpu_ms.clear()
        result.tables.append(_table(host, commands))
        result.budgets += _budgets(host, commands)
    return result


def _commands(settings: Settings) -> list[Command]:
    python, own = settings.own.python, settings.own.gpumon
    commands = [
        Command("python -c pass", [python, "-I", "-c", "pass"]),
        Command("python -c 'import pynvml'", [python, "-I", "-c", "import pynvml"]),
        Command(OWN, [own, "snapshot"]),
        Command(f"{OWN} --json", [own, "snapshot", "--json"]),
    ]
    arguments = {"nvitop": ("-1",), "gpustat": ("--json",)}
    commands += [
        Command(" ".join([peer.name, *arguments[peer.name]]), peer.command(*arguments[peer.name]))
        for peer in settings.peers
        if peer.name in arguments
    ]
    return commands


def _table(host: World, commands: list[Command]) -> Table:
    table = Table(
        f"Commands, {host.name} processes",
        ["command", "wall ms", "CPU ms", f"wall, of {OWN}", f"CPU, of {OWN}", "peak MB", "bytes"],
        notes=["CPU has the children in it, peak memory is the largest single process's."],
    )
    own = next(command for command in commands if command.name == OWN)
    for command in commands:
        if command.trouble is not None:
            table.add(command.name, f"failed: {command.trouble}", None, None, None, None, None)
            continue
        table.add(
            command.name,
            spread(command.wall_ms, 0),
            spread(command.cpu_ms, 0),
            ratio(command.wall_ms, own.wall_ms),
            ratio(command.cpu_ms, own.cpu_ms),
            f"{command.peak_mib:.0f}",
            command.size,
        )
    return table


def _budgets(host: World, commands: list[Command]) -> list[Budget]:
    by_name = {command.name: command for command in commands}
    own, other = by_name[OWN], by_name.get(NVITOP)
    if other is None or not own.wall_ms or not other.wall_ms:
        return []
    mine, theirs = statistics.median(own.wall_ms), statistics.median(other.wall_ms)
    return [
        Budget(
            f"{OWN}, {host.name}", f"<= {NVITOP}, {theirs:.0f} ms", f"{mine:.0f} ms", mine <= theirs
        )
    ]


def _wait(process: subprocess.Popen[bytes]) -> tuple[int, resource.struct_rusage]:
    """Wait for the end; return the exit code and what the process has used, children included."""
    watched = os.pidfd_open(process.pid)
    try:
        ended, _, _ = select.select([watched], [], [], COMMAND_SECONDS)
    finally:
        os.close(watched)
    if not ended:
        process.kill()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used
