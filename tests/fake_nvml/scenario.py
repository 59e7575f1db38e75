"""Scenario files for the fake NVML, from Python. The language itself is in README.md.

    scenario = Scenario(gpus=[h100(0), h100(1)])
    scenario.process(0, pid=os.getpid(), memory_mib=2048, sm=70)
    scenario.lose(1)
    scenario.write(path)
    subprocess.run(command, env=environment(path))

A changed scenario takes effect with the next `write`, also in processes that run already.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import struct
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fake_nvml.devices import MIB, Device, Gpu, Mig, Value, gb10, h100, mig, rtx, written

__all__ = [
    "MIB",
    "Device",
    "Gpu",
    "Mig",
    "Scenario",
    "calls",
    "environment",
    "gb10",
    "h100",
    "library",
    "mig",
    "rtx",
]

FOLDER = Path(__file__).resolve().parent
DRIVERS = ("470", "525", "535", "550", "575", "all")
NOT_AVAILABLE = "not_available"
"""NVML's own "unknown" in a record, all bits set: a value, unlike an absent key."""


@dataclass
class Scenario:
    """What the fake driver says, until the next `write`."""

    gpus: list[Gpu] = field(default_factory=list)
    values: dict[str, Value] = field(
        default_factory=lambda: {
            "driver_version": "550.54.15",
            "nvml_version": "12.550.54.15",
            "cuda_version": 12040,
        }
    )
    """Keys of the driver section."""
    rules: list[str] = field(default_factory=list)
    """Rules for all calls."""

    # ---- What goes wrong. `gpu` None: every call; `mig`: an instance of `gpu`. ----

    def fail(
        self,
        function: str,
        code: int | str,
        gpu: int | None = None,
        *,
        mig: int | None = None,
        times: int | None = None,
        after: int | None = None,
        on: str | None = None,
    ) -> None:
        """Let `function` answer `code`: from call `after` + 1 on, `times` times (None: for ever).

        `on` "size" or "fill" picks one of the two calls that read a list.
        """
        self._rule("fail", f"{function} {code}", gpu, mig, times=times, after=after, on=on)

    def slow(
        self, function: str, ms: int, gpu: int | None = None, *, mig: int | None = None
    ) -> None:
        """Let `function` take `ms` milliseconds longer."""
        self._rule("slow", f"{function} {ms}ms", gpu, mig)

    def hang(
        self,
        function: str,
        gpu: int | None = None,
        *,
        mig: int | None = None,
        forever: bool = False,
        after: int | None = None,
    ) -> None:
        """Let `function` not return until a written scenario no longer says so; or never."""
        self._rule("hang", function + (" forever" if forever else ""), gpu, mig, after=after)

    def crash(
        self,
        function: str,
        gpu: int | None = None,
        *,
        mig: int | None = None,
        segv: bool = False,
        after: int | None = None,
    ) -> None:
        """Let `function` end the process by SIGABRT, or by SIGSEGV."""
        self._rule("crash", function + (" segv" if segv else ""), gpu, mig, after=after)

    def lose(self, gpu: int) -> None:
        """Let a GPU fall off the bus: every lookup and getter answers GPU_IS_LOST."""
        self.gpus[gpu].lost = True

    def heal(self) -> None:
        """Take back every rule and every loss; values, processes and events stay."""
        self.rules.clear()
        for device in self._devices():
            device.rules.clear()
            device.lost = False

    # ---- Who uses the GPUs. ----

    def process(
        self,
        gpu: int,
        pid: int,
        memory_mib: int | None,
        kind: str = "compute",
        sm: int | None = None,
        *,
        mig: int | None = None,
        name: str | bytes | None = None,
    ) -> None:
        """Add a process; its memory counts as used on the device, as on a real card.

        `memory_mib` None is NVML's "not available". `kind` joins several by "+". With `sm` there
        is a fresh utilization sample of the process at every call.
        """
        device = self._device(gpu, mig)
        memory = NOT_AVAILABLE if memory_mib is None else f"{memory_mib}MiB"
        line = f"process = {pid} kind={kind} memory={memory}"
        line += "" if sm is None else f" sm={sm}"
        line += "" if name is None else f" name={written(name).replace(' ', chr(92) + 'x20')}"
        device.lines.append(line)
        if memory_mib is not None and "memory.used" in device.values:
            device["memory.used"] = _bytes(device["memory.used"]) + memory_mib * MIB

    def sample(self, gpu: int, pid: int, sm: int, options: str = "") -> None:
        """Add a utilization sample; `options` as in the file: "mem=3 age=600s", "time=0"."""
        self.gpus[gpu].lines.append(f"sample = {pid} sm={sm} {options}".rstrip())

    def event(self, gpu: int, kind: str, data: int = 0) -> None:
        """Let a GPU report an event: "xid" with its number as `data`, "sbe", "dbe"."""
        self.gpus[gpu].lines.append(f"event = {kind} {data}")

    # ---- The file. ----

    def text(self) -> str:
        """Return the scenario file's text."""
        driver = [f"{key} = {written(value)}" for key, value in self.values.items()]
        parts = ["\n".join(["driver", *("  " + line for line in driver + self.rules)])]
        for index, gpu in enumerate(self.gpus):
            parts.append(gpu.text(f"gpu {index}", "  "))
            parts += [gpu.mig[n].text(f"  mig {n}", "    ") for n in sorted(gpu.mig)]
        return "\n\n".join(parts) + "\n"

    def write(self, path: Path) -> Path:
        """Put the scenario in force for all processes that use `path`, in one step."""
        new = path.with_name(f".{path.name}.{os.getpid()}.new")
        new.write_text(self.text())
        new.replace(path)
        return path

    def _devices(self) -> Iterable[Device]:
        for gpu in self.gpus:
            yield gpu
            yield from gpu.mig.values()

    def _device(self, gpu: int, mig: int | None) -> Device:
        return self.gpus[gpu] if mig is None else self.gpus[gpu].mig[mig]

    def _rule(
        self, kind: str, rest: str, gpu: int | None, mig: int | None, **options: int | str | None
    ) -> None:
        words = [f"{name}={value}" for name, value in options.items() if value is not None]
        rules = self.rules if gpu is None else self._device(gpu, mig).rules
        rules.append(" ".join([f"{kind} = {rest}", *words]))


def _bytes(value: Value) -> int:
    if not isinstance(value, int):
        raise TypeError(f"memory.used is {value!r}: give it as a number of bytes to add processes")
    return value


# ---- Running programs against it. ----


@functools.cache
def library(driver: str = "all", missing: tuple[str, ...] = ()) -> Path:
    """Build the library of a driver series and return the folder for LD_LIBRARY_PATH.

    `missing` takes single symbols out of it. Several test runs may do this at once.
    """
    if driver not in DRIVERS:
        raise ValueError(f"driver is one of {', '.join(DRIVERS)}; found {driver!r}")
    build = FOLDER / "build"
    folder = build if driver == "all" else build / driver
    command = ["make", "-s", "--no-print-directory", "-C", str(FOLDER), "all"]
    if missing:
        name = f"{driver}-{hashlib.sha256(' '.join(missing).encode()).hexdigest()[:12]}"
        folder = build / name
        command[-1:] = ["variant", f"NAME={name}", f"DRIVER={driver}"]
        command.append(f"MISSING={' '.join(missing)}")
    build.mkdir(exist_ok=True)
    with (build / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(command, check=True)
    return folder


def environment(
    scenario: Path,
    calls: Path | None = None,
    driver: str = "all",
    missing: tuple[str, ...] = (),
) -> dict[str, str]:
    """Return this process's environment, changed so that a child uses the fake NVML."""
    changed = dict(os.environ)
    changed["LD_LIBRARY_PATH"] = str(library(driver, missing))
    changed["FAKE_NVML_SCENARIO"] = str(scenario)
    changed.pop("FAKE_NVML_CALLS", None)
    if calls is not None:
        changed["FAKE_NVML_CALLS"] = str(calls)
    return changed


def calls(path: Path) -> Counter[tuple[str, int | None]]:
    """Return how often each (function, GPU) was called by all processes that count in `path`.

    The GPU is None for calls about no GPU. Two results can be subtracted.
    """
    data = path.read_bytes() if path.exists() else b""
    if len(data) < 16 or data[:7] != b"FNVMLC1":
        return Counter()  # no process has called anything yet
    functions, slots = struct.unpack_from("=II", data, 8)
    names = struct.unpack_from("64s" * functions, data, 16)
    counts = struct.unpack_from(f"={functions * slots}Q", data, 16 + 64 * functions)
    found: Counter[tuple[str, int | None]] = Counter()
    for i, name in enumerate(names):
        symbol = name.rstrip(b"\0").decode()
        for slot, count in enumerate(counts[i * slots : (i + 1) * slots]):
            if count:
                found[symbol, None if slot == 0 else slot - 1] = count
    return found
