"""The MIG instances of one GPU."""

from __future__ import annotations

import re
from typing import Any

from gpumon.collect import memory, nvml, nvml_processes
from gpumon.collect.memory import mib
from gpumon.collect.nvml import Unknown
from gpumon.collect.questions import FOREVER, MINUTE, Questions
from gpumon.model import MigInstance

_PROFILE = re.compile(r"(?:\d+c\.)?\d+g\.\d+gb(?:\+[\w.]+)*", re.IGNORECASE)
_MOST_INSTANCES = 64
_GONE = nvml.NOT_FOUND


class MigReader:
    """Reads the instances of one GPU; what belongs to an instance is kept under its UUID."""

    def __init__(self) -> None:
        self._questions: dict[str, Questions] = {}

    def read(
        self, questions: Questions, parent: object, *, most_bytes: int, pid_max: int
    ) -> list[MigInstance] | Unknown:
        """Return the instances there are now, or Unknown where they can't be listed.

        The driver goes on handing out handles of deleted instances: one whose getters say "not
        found" is left out. One that fails otherwise keeps its row, with the error.
        """
        count = questions.ask(
            "mig count", nvml.call, "nvmlDeviceGetMaxMigDeviceCount", parent, keep=MINUTE
        )
        if isinstance(count, Unknown):
            return count
        found: list[MigInstance] = []
        before, self._questions = self._questions, {}
        for index in range(min(count, _MOST_INSTANCES)):
            handle = questions.ask(
                f"mig {index}", nvml.call, "nvmlDeviceGetMigDeviceHandleByIndex", parent, index
            )
            uuid = handle
            if not isinstance(handle, Unknown):
                uuid = questions.ask(f"mig {index} uuid", nvml.text, "nvmlDeviceGetUUID", handle)
            if isinstance(uuid, Unknown):
                if uuid.code != _GONE:
                    found.append(MigInstance(index=index, error=uuid.reason))
                continue
            own = self._questions[uuid] = before.get(uuid) or Questions()
            own.begin(questions.now)
            instance = MigInstance(index=index, uuid=uuid)
            if _fill(instance, own, handle, most_bytes, pid_max):
                found.append(instance)
        return found


def _fill(
    instance: MigInstance, questions: Questions, handle: object, most_bytes: int, pid_max: int
) -> bool:
    """Set the fields of an instance; return False when it is no longer there."""
    amounts = memory.read(questions, handle, None)
    if isinstance(amounts.total, Unknown) and amounts.total.code == _GONE:
        return False
    instance.memory_total_mib = mib(amounts.total)
    instance.memory_used_mib = mib(amounts.used)
    instance.memory_reserved_mib = mib(amounts.reserved)
    instance.memory_free_mib = mib(amounts.free)
    instance.processes, why = nvml_processes.read(
        questions, handle, most_bytes=most_bytes, pid_max=pid_max
    )
    if isinstance(amounts.total, Unknown) and instance.processes is None:
        instance.error = (
            f"neither memory ({amounts.total.reason}) nor processes ({why}) could be read"
        )
    for field, function in (
        ("gpu_instance_id", "nvmlDeviceGetGpuInstanceId"),
        ("compute_instance_id", "nvmlDeviceGetComputeInstanceId"),
    ):
        number = questions.ask(field, nvml.call, function, handle, keep=FOREVER)
        if not isinstance(number, Unknown) and number < nvml.NO_INSTANCE:
            setattr(instance, field, number)
    instance.name = questions.ask("profile", _profile, handle, keep=FOREVER)
    return True


def _profile(handle: object) -> str | None:
    """Return the profile, such as "1g.10gb": from the name, else put together from its parts."""
    name = nvml.text("nvmlDeviceGetName", handle)
    found = None if isinstance(name, Unknown) else _PROFILE.search(name)
    if found is not None:
        return found[0]
    parts: Any = nvml.call("nvmlDeviceGetAttributes_v2", handle)
    if isinstance(parts, Unknown):
        return None
    gpu_slices, compute_slices = parts.gpuInstanceSliceCount, parts.computeInstanceSliceCount
    memory_gb = round(parts.memorySizeMB / 1024)
    compute = "" if compute_slices == gpu_slices else f"{compute_slices}c."
    return f"{compute}{gpu_slices}g.{memory_gb}gb"
