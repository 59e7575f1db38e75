"""The host that is measured: fake GPUs, and real processes that the fake NVML lists on them."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from fake_nvml.scenario import Scenario, h100

from agent_cost.children import die_with_parent, end

GPUS = 8
_SCRIPT = "read line\n"
_ARGUMENTS = [
    "--config=configs/resnet50.yaml",
    "--data=/datasets/imagenet",
    "--batch-size=256",
    "--epochs=90",
    "--seed",
]


class World:
    """Eight busy H100s, each with the same number of processes."""

    def __init__(self, folder: Path, per_gpu: int) -> None:
        self.folder = folder
        self.per_gpu = per_gpu
        self.scenario = folder / "gpus.scenario"
        (folder / "train.py").write_text(_SCRIPT)
        self._serial = 0
        # The processes read from it; they end when its other end is closed.
        self._reader, self._writer = os.pipe()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def name(self) -> str:
        """The size as the tables have it."""
        return f"{GPUS} x {self.per_gpu}"

    def command_bytes(self) -> int:
        """Return the length of one command line."""
        return len(" ".join(self._command()))

    def replace(self, count: int) -> None:
        """End the `count` oldest processes, start as many, and tell the fake driver."""
        for process in self._processes[:count]:
            end(process)
        del self._processes[:count]
        while len(self._processes) < GPUS * self.per_gpu:
            self._processes.append(self._start())
        self._write()

    def close(self) -> None:
        """End all processes."""
        os.close(self._writer)
        os.close(self._reader)
        for process in self._processes:
            end(process)

    def _start(self) -> subprocess.Popen[bytes]:
        # A shell that waits for a line, under the name and with the arguments of a training run.
        self._serial += 1
        return subprocess.Popen(
            self._command(),
            executable="/bin/sh",
            cwd=self.folder,
            stdin=self._reader,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=die_with_parent,
        )

    def _command(self) -> list[str]:
        return ["python3", "train.py", *_ARGUMENTS, f"{self._serial:04}"]

    def _write(self) -> None:
        scenario = Scenario(gpus=[h100(index) for index in range(GPUS)])
        for index, gpu in enumerate(scenario.gpus):
            gpu["utilization.gpu"] = 90 + index
            gpu["utilization.memory"] = 40 + index
            gpu["power_usage"] = f"{600 + index}.5W"
            gpu["temperature"] = 60 + index
            gpu["clock.graphics"] = gpu["clock.sm"] = 1980
            gpu["clocks_event_reasons"] = 0
        for number, process in enumerate(self._processes):
            memory_mib = 75_000 // self.per_gpu + number
            scenario.process(number % GPUS, process.pid, memory_mib, sm=90 // self.per_gpu)
        scenario.write(self.scenario)


@contextlib.contextmanager
def world(folder: Path, per_gpu: int) -> Iterator[World]:
    """Make a world in a folder of its own below `folder`; it ends with the block."""
    own = folder / f"world-{per_gpu}"
    own.mkdir(exist_ok=True)
    made = World(own, per_gpu)
    try:
        made.replace(0)
        yield made
    finally:
        made.close()
