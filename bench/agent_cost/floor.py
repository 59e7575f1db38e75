"""The floor: the same reading as the agent's, in as little straight code as it takes.

One process, the NVML binding as it comes, plain reads of /proc, the standard library's JSON. No
error is handled and nothing is checked, so nobody should run it. What could cost less still: it
opens each file anew, as other tools do, while the sampler keeps those of known processes open. For
each line "s" on standard input: one sample, and its JSON as one line.
"""

import json
import os
import sys
import time
from typing import Any

import pynvml as n

CALLS = (
    n.nvmlDeviceGetUtilizationRates,
    n.nvmlDeviceGetEncoderUtilization,
    n.nvmlDeviceGetDecoderUtilization,
    n.nvmlDeviceGetPowerUsage,
    n.nvmlDeviceGetPerformanceState,
    n.nvmlDeviceGetCurrentClocksEventReasons,
)
LISTS = (
    n.nvmlDeviceGetComputeRunningProcesses,
    n.nvmlDeviceGetGraphicsRunningProcesses,
    n.nvmlDeviceGetMPSComputeRunningProcesses,
)
ECC = [n.NVML_FI_DEV_ECC_SBE_VOL_TOTAL, n.NVML_FI_DEV_ECC_DBE_VOL_TOTAL]
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    data = os.read(fd, 16384)
    os.close(fd)
    return data


def process(pid: int, known: dict[int, Any], now: float) -> dict[str, Any]:
    rest = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    ticks, start = int(rest[11]) + int(rest[12]), rest[19]
    kept = known.get(pid)
    if kept is None or kept[0] != start:
        status = read(f"/proc/{pid}/status")
        uid = int(status[status.index(b"Uid:") + 4 :].split(None, 1)[0])
        command = read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode()
        boot = time.clock_gettime(time.CLOCK_BOOTTIME)
        started_at = time.time() - boot + int(start) / TICKS
        kept = (start, uid, command, started_at, ticks, now)
    percent = 100 * (ticks - kept[4]) / TICKS / (now - kept[5]) if now > kept[5] else None
    known[pid] = (*kept[:4], ticks, now)
    return {
        "pid": pid,
        "uid": kept[1],
        "command": kept[2],
        "started_at": kept[3],
        "state": rest[0].decode(),
        "cpu_percent": percent,
        "memory_used_mib": int(rest[21]) * PAGE >> 20,
    }


def gpu(handle: Any, known: dict[int, Any]) -> dict[str, Any]:
    now = time.monotonic()
    values = [call(handle) for call in CALLS]
    memory = n.nvmlDeviceGetMemoryInfo(handle, n.nvmlMemory_v2)
    ecc = n.nvmlDeviceGetFieldValues(handle, ECC)
    rows = {
        entry.pid: entry.usedGpuMemory >> 20 for processes in LISTS for entry in processes(handle)
    }
    since = int((time.time() - 2) * 1e6)
    samples = n.nvmlDeviceGetProcessUtilization(handle, since)
    shares = {sample.pid: sample.smUtil for sample in samples}
    return {
        "utilization": [values[0].gpu, values[0].memory],
        "encoder": values[1][0],
        "decoder": values[2][0],
        "power": values[3],
        "state": values[4],
        "reasons": values[5],
        "memory": [memory.total, memory.used, memory.reserved, memory.free],
        "temperature": n.nvmlDeviceGetTemperature(handle, 0),
        "sm_clock": n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_SM),
        "memory_clock": n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_MEM),
        "ecc": [value.value.ullVal for value in ecc],
        "processes": [
            {"gpu_memory": held, "sm": shares.get(pid), **process(pid, known, now)}
            for pid, held in rows.items()
        ],
    }


def main() -> None:
    n.nvmlInit()
    handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
    names = [[n.nvmlDeviceGetUUID(handle), n.nvmlDeviceGetName(handle)] for handle in handles]
    known: dict[int, Any] = {}
    for _ in sys.stdin.buffer:
        n.nvmlDeviceGetCount()
        gpus = [gpu(handle, known) for handle in handles]
        sys.stdout.write(json.dumps({"names": names, "gpus": gpus}) + "\n")
        sys.stdout.flush()


main()
