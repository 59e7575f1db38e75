"""A stand-in for nvidia-smi that asks the (fake) driver by itself, as the real one does.

Knows what `check.py` asks: `-L` and `--query-gpu=FIELDS --format=csv,noheader[,nounits]`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import pynvml as n

MIB = 1024 * 1024


def _ecc(kind: int, counter: int) -> Callable[[Any], int]:
    return lambda gpu: n.nvmlDeviceGetTotalEccErrors(gpu, kind, counter)


def _on(value: int) -> str:
    return "Enabled" if value else "Disabled"


def _memory(gpu: Any) -> Any:
    return n.nvmlDeviceGetMemoryInfo(gpu, version=n.nvmlMemory_v2)


ASK: dict[str, Callable[[Any], object]] = {
    "uuid": n.nvmlDeviceGetUUID,
    "name": n.nvmlDeviceGetName,
    "driver_version": lambda gpu: n.nvmlSystemGetDriverVersion(),
    "pci.bus_id": lambda gpu: n.nvmlDeviceGetPciInfo(gpu).busId,
    "utilization.gpu": lambda gpu: n.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "utilization.memory": lambda gpu: n.nvmlDeviceGetUtilizationRates(gpu).memory,
    "memory.total": lambda gpu: _memory(gpu).total // MIB,
    "memory.used": lambda gpu: _memory(gpu).used // MIB,
    "memory.reserved": lambda gpu: _memory(gpu).reserved // MIB,
    "memory.free": lambda gpu: _memory(gpu).free // MIB,
    "temperature.gpu": lambda gpu: n.nvmlDeviceGetTemperature(gpu, 0),
    "power.draw": lambda gpu: f"{n.nvmlDeviceGetPowerUsage(gpu) / 1000:.2f}",
    "enforced.power.limit": lambda gpu: f"{n.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000:.2f}",
    "clocks.sm": lambda gpu: n.nvmlDeviceGetClockInfo(gpu, n.NVML_CLOCK_SM),
    "clocks.mem": lambda gpu: n.nvmlDeviceGetClockInfo(gpu, n.NVML_CLOCK_MEM),
    "fan.speed": n.nvmlDeviceGetFanSpeed,
    "clocks_event_reasons.active": lambda gpu: (
        f"0x{n.nvmlDeviceGetCurrentClocksEventReasons(gpu):016X}"
    ),
    "pstate": lambda gpu: f"P{n.nvmlDeviceGetPerformanceState(gpu)}",
    "ecc.mode.current": lambda gpu: _on(n.nvmlDeviceGetEccMode(gpu)[0]),
    "ecc.errors.corrected.volatile.total": _ecc(0, 0),
    "ecc.errors.uncorrected.volatile.total": _ecc(1, 0),
    "ecc.errors.corrected.aggregate.total": _ecc(0, 1),
    "ecc.errors.uncorrected.aggregate.total": _ecc(1, 1),
    "compute_mode": lambda gpu: ("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process")[
        n.nvmlDeviceGetComputeMode(gpu)
    ],
    "persistence_mode": lambda gpu: _on(n.nvmlDeviceGetPersistenceMode(gpu)),
    "pcie.link.gen.current": n.nvmlDeviceGetCurrPcieLinkGeneration,
    "pcie.link.width.current": n.nvmlDeviceGetCurrPcieLinkWidth,
    "mig.mode.current": lambda gpu: _on(n.nvmlDeviceGetMigMode(gpu)[0]),
}


def answer(field: str, gpu: Any) -> str:
    with contextlib.suppress(n.NVMLError):
        return str(ASK[field](gpu))
    return "[N/A]"


def main(arguments: list[str]) -> int:
    n.nvmlInit()
    gpus = [n.nvmlDeviceGetHandleByIndex(index) for index in range(n.nvmlDeviceGetCount())]
    if arguments == ["-L"]:
        for index, gpu in enumerate(gpus):
            print(f"GPU {index}: {answer('name', gpu)} (UUID: {answer('uuid', gpu)})")
        return 0
    fields = arguments[0].removeprefix("--query-gpu=").split(",")
    for field in fields:
        if field not in ASK:
            print(f'Field "{field}" is not a valid field to query.')
            return 2
    for gpu in gpus:
        print(", ".join(answer(field, gpu) for field in fields))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
