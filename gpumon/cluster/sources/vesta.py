"""What vesta's unchanged senders post -> our model. Hostile until read; nothing is unpickled.

A sender lists GPUs as nvidia-smi does and says nothing of MIG, health, power or clocks: those are
unknown here, with that reason. Its time stamps are local times without a zone, so that a reading is
as old as its arrival.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gpumon.model import Gpu, HostSnapshot, Process
from gpumon.text import clean

EVERY_SECONDS = 60.0
"""Its senders run from cron, once a minute at most."""
MOST_GPUS = 64
MOST_PROCESSES = 1000
"""Of one GPU."""
_NOT_TOLD = "vesta's sender does not tell it"
_NEVER_TOLD = (
    "power_draw_watts",
    "enforced_power_limit_watts",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "clock_event_reasons",
    "ecc_volatile_uncorrected",
    "performance_state",
    "mig_mode",
    "unattributed_mib",
)
_KEY = re.compile(r"gpu:[0-9]{1,3}\Z")
_WHOLE = re.compile(r"\s*-?[0-9]{1,15}\s*\Z")
_MOST_MIB = 16 * 1024 * 1024


class Unreadable(ValueError):
    """The body is none of vesta's. `str()` says what was expected and found."""


def vesta_snapshot(body: bytes, machine: str) -> HostSnapshot:
    """Return the reading that `machine` posted just now. Raises Unreadable."""
    try:
        data = msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:
        raise Unreadable(
            f"expected JSON, found something else ({clean(str(error), 80)})"
        ) from error
    found = data.get("gpu_data", data) if isinstance(data, dict) else None
    if not isinstance(found, dict):
        raise Unreadable("expected an object with gpu_data, found something else")
    listed = {key: value for key, value in found.items() if _KEY.match(key)}
    if not listed or len(listed) > MOST_GPUS:
        raise Unreadable(f'expected 1 to {MOST_GPUS} keys "gpu:N", found {len(listed)}')
    gpus = [_gpu(int(key.removeprefix("gpu:")), value) for key, value in listed.items()]
    gpus.sort(key=lambda gpu: gpu.index)
    if len({gpu.index for gpu in gpus}) < len(gpus):
        raise Unreadable("expected every GPU once, found one twice")
    return HostSnapshot(
        hostname=clean(machine, 64),
        sample_age_seconds=0.0,
        sample_interval_seconds=EVERY_SECONDS,
        agent_version="vesta's sender",
        gpu_count=len(gpus),
        gpus=gpus,
    )


def _gpu(index: int, told: object) -> Gpu:
    if not isinstance(told, dict):
        return Gpu(index=index, error="vesta's sender told something that is no GPU")
    unknown = dict.fromkeys(_NEVER_TOLD, _NOT_TOLD)

    def number(field: str, key: str, most: int) -> int | None:
        value = _number(told.get(key))
        if value is not None and 0 <= value <= most:
            return value
        found = "nothing" if key not in told else clean(str(told[key])[:200], 40)
        unknown[field] = f"vesta's sender told {found}"
        return None

    return Gpu(
        index=index,
        uuid=_text(told.get("uuid"), 96),
        name=_text(told.get("gpu_name"), 96),
        utilization_percent=number("utilization_percent", "gpu_volatile", 100),
        memory_total_mib=number("memory_total_mib", "total_memory", _MOST_MIB),
        memory_used_mib=number("memory_used_mib", "used_memory", _MOST_MIB),
        memory_free_mib=number("memory_free_mib", "available_memory", _MOST_MIB),
        temperature_celsius=number("temperature_celsius", "temperature", 200),
        processes=_processes(told.get("processes"), unknown),
        unknown=unknown,
    )


def _processes(told: object, unknown: dict[str, str]) -> list[Process] | None:
    """Return the processes; None, and never an empty list, where one of them can't be read."""
    if not isinstance(told, list) or len(told) > MOST_PROCESSES:
        unknown["processes"] = "vesta's sender told no list of processes"
        return None
    found: dict[int, Process] = {}
    for row in told:
        pid = _number(row.get("pid")) if isinstance(row, dict) else None
        if pid is None or not 0 < pid < 2**31:
            unknown["processes"] = "vesta's sender told a process without a number"
            return None
        memory = _number(row.get("used_memory"))
        found[pid] = Process(
            pid=pid,
            user=_text(row.get("user"), 64),
            program=_program(row.get("name")),
            gpu_memory_used_mib=memory if memory is not None and 0 <= memory <= _MOST_MIB else None,
            note=_NO_START,
        )
    return list(found.values())


_NO_START = "start, arguments and container are not told by vesta's sender"


def _number(value: Any) -> int | None:
    """Return a whole number, also where it stands as text; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and _WHOLE.match(value) else None


def _program(name: object) -> str | None:
    """Return the name without its folder; nvidia-smi adds arguments to some, which are nobody's."""
    words = name.split() if isinstance(name, str) else []
    return _text(words[0].rpartition("/")[2], 64) if words else None


def _text(value: object, limit: int) -> str | None:
    return clean(value, limit) or None if isinstance(value, str) else None
