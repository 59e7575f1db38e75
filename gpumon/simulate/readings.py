"""The GPU rows of one invented host at one moment, as an agent there would read them."""

from __future__ import annotations

import random
import uuid
from typing import NamedTuple

from gpumon.model import Gpu, MigInstance, Process
from gpumon.simulate.hardware import MIG_MEMORY_MIB, describe, mark_unknown
from gpumon.simulate.jobs import Job
from gpumon.simulate.kinds import HostPlan
from gpumon.simulate.lanes import Lane, Place

FALLEN_OFF = "fallen off the bus (XID 79)"
IDLE_MIB = 4
"""What a driver counts as used on a GPU without any process."""
_DISPLAY = (("Xorg", "/usr/lib/xorg/Xorg vt2", 148), ("gnome-shell", "gnome-shell", 63))
"""Program, command, MiB on the first GPU."""

_BUS_NUMBERS = (0x19, 0x3B, 0x4C, 0x5D, 0x9B, 0xBB, 0xCB, 0xDB)

_NOT_ON_LOST = (
    "utilization_percent",
    "memory_total_mib",
    "memory_used_mib",
    "temperature_celsius",
    "power_draw_watts",
    "processes",
)
_NOT_UNDER_MIG = ("utilization_percent", "memory_utilization_percent")


class Occupant(NamedTuple):
    """A job on one of its places."""

    job: Job
    rank: int
    memory_share: float

    def utilization(self, at: float) -> float:
        return self.job.utilization(at, self.rank)


class Reader:
    """Gives the GPU rows of one host. Times are epoch seconds; `boot` is when the host came up."""

    def __init__(self, host: HostPlan, rng: random.Random) -> None:
        self._host = host
        self._wear = [rng.random() for _ in range(host.machine.gpu_count)]
        self._uuids: dict[Place, str] = {}
        for index in range(host.machine.gpu_count):
            for instance in (None, *range(len(host.mig.get(index, ())))):
                number = uuid.UUID(int=rng.getrandbits(128), version=4)
                prefix = "GPU" if instance is None else "MIG"
                self._uuids[index, instance] = f"{prefix}-{number}"
        self._lanes: dict[Place, list[tuple[Lane, int]]] = {}
        for lane in host.lanes:
            for rank, place in enumerate(lane.places):
                self._lanes.setdefault(place, []).append((lane, rank))

    def gpu(self, index: int, at: float, boot: float) -> Gpu:
        """Return the row of one GPU."""
        gpu = Gpu(
            index=index,
            uuid=self._uuids[index, None],
            pci_bus_id=f"00000000:{_BUS_NUMBERS[index]:02X}:00.0",
            name=self._host.machine.model.name,
            watched_since=boot,
        )
        defect = self._host.defects.get(index)
        if defect == "lost":
            gpu.lost = True
            gpu.error = FALLEN_OFF
            mark_unknown(gpu, _NOT_ON_LOST, "the GPU is lost")
            return gpu
        if index in self._host.mig:
            self._read_mig(gpu, at, boot)
        else:
            self._read_whole(gpu, at, boot)
        if defect == "ecc":
            gpu.ecc_volatile_uncorrected, gpu.ecc_aggregate_uncorrected = 2, 5
        if defect == "hot":
            gpu.clock_event_reasons = ["hw_slowdown", "hw_thermal_slowdown"]
            gpu.temperature_celsius = 91
        return gpu

    def _read_whole(self, gpu: Gpu, at: float, boot: float) -> None:
        model = self._host.machine.model
        place = (gpu.index, None)
        occupants = self._occupants(place, at)
        use = min(100.0, sum(occupant.utilization(at) for occupant in occupants))
        describe(gpu, model, use=use, held=bool(occupants), wear=self._wear[gpu.index])
        gpu.utilization_percent = round(use)
        gpu.memory_utilization_percent = round(0.55 * use)
        capacity = model.memory_total_mib - model.memory_reserved_mib
        gpu.processes, used = _processes(occupants, at, capacity)
        if self._host.machine.display:
            display = _display(gpu.index, at, boot)
            gpu.processes = display + gpu.processes
            used += sum(process.gpu_memory_used_mib or 0 for process in display)
        if not model.unified:
            gpu.memory_total_mib = model.memory_total_mib
            gpu.memory_reserved_mib = model.memory_reserved_mib
            gpu.memory_used_mib = used + IDLE_MIB
            gpu.memory_free_mib = capacity - gpu.memory_used_mib
        gpu.unused_since = self._unused_since(place, at, boot)
        gpu.free_since = None if occupants else self._free_since(place, at, boot)
        gpu.held_since = _held_since(occupants, boot)

    def _read_mig(self, gpu: Gpu, at: float, boot: float) -> None:
        model = self._host.machine.model
        gpu.mig = [
            self._instance(gpu.index, position, profile, at, boot)
            for position, profile in enumerate(self._host.mig[gpu.index])
        ]
        held = sum(1 for instance in gpu.mig if instance.free_since is None)
        use = 90.0 * held / len(gpu.mig)
        describe(gpu, model, use=use, held=held > 0, wear=self._wear[gpu.index])
        gpu.mig_mode = True
        mark_unknown(gpu, _NOT_UNDER_MIG, "not available under MIG")
        gpu.processes = []
        gpu.memory_total_mib = model.memory_total_mib
        gpu.memory_reserved_mib = model.memory_reserved_mib
        gpu.memory_used_mib = sum(instance.memory_used_mib or 0 for instance in gpu.mig)
        gpu.memory_free_mib = (
            model.memory_total_mib - model.memory_reserved_mib - gpu.memory_used_mib
        )
        if not held:
            gpu.free_since = max(instance.free_since or at for instance in gpu.mig)
        gpu.held_since = min(
            (one.held_since for one in gpu.mig if one.held_since is not None), default=None
        )

    def _instance(
        self, gpu: int, position: int, profile: str, at: float, boot: float
    ) -> MigInstance:
        place = (gpu, position)
        total = MIG_MEMORY_MIB[profile]
        occupants = self._occupants(place, at)
        processes, used = _processes(occupants, at, total)
        for process in processes:
            process.sm_utilization_percent = None  # the driver gives none under MIG
        return MigInstance(
            index=position,
            uuid=self._uuids[place],
            name=profile,
            gpu_instance_id=position + 1,
            compute_instance_id=0,
            memory_total_mib=total,
            memory_used_mib=used,
            memory_reserved_mib=0,
            memory_free_mib=total - used,
            processes=processes,
            free_since=None if occupants else self._free_since(place, at, boot),
            held_since=_held_since(occupants, boot),
            watched_since=boot,
        )

    def _occupants(self, place: Place, at: float) -> list[Occupant]:
        found = []
        for lane, rank in self._lanes[place]:
            job = lane.job(at)
            if job is not None:
                found.append(Occupant(job, rank, lane.share))
        return found

    def _free_since(self, place: Place, at: float, boot: float) -> float:
        return max(lane.free_since(at, boot) for lane, _ in self._lanes[place])

    def _unused_since(self, place: Place, at: float, boot: float) -> float | None:
        """Return since when nobody uses the place, held or not; None while somebody does."""
        since = [lane.unused_since(at, boot) for lane, _ in self._lanes[place]]
        known = [moment for moment in since if moment is not None]
        return max(known) if len(known) == len(since) else None


def _held_since(occupants: list[Occupant], boot: float) -> float | None:
    """Return since when those who hold a place do so, as an agent that began with the host saw."""
    return min((max(one.job.start, boot) for one in occupants), default=None)


def _processes(
    occupants: list[Occupant], at: float, capacity_mib: int
) -> tuple[list[Process], int]:
    """Return the processes of a place, and the MiB that they and unseen ones hold there."""
    uses = [occupant.utilization(at) for occupant in occupants]
    scale = min(1.0, 100.0 / sum(uses)) if any(uses) else 1.0
    processes, used = [], 0
    for (job, rank, share), use in zip(occupants, uses, strict=True):
        held = job.memory_mib(at, capacity_mib * share)
        used += held
        if not job.work.visible:
            continue
        processes.append(
            Process(
                pid=job.pids[rank],
                kinds=["compute"],
                user=job.user,
                uid=job.uid,
                program=job.work.program,
                command=job.work.command,
                gpu_memory_used_mib=held,
                sm_utilization_percent=round(use * scale, 1),
                started_at=job.start,
                runtime_seconds=at - job.start,
                cpu_percent=job.cpu_percent(at),
                memory_used_mib=job.rss_mib,
                state="running" if use else "sleeping",
                container=job.work.container,
            )
        )
    return processes, used


def _display(index: int, at: float, boot: float) -> list[Process]:
    """Return what a desktop runs on its GPUs: all of it on the first, a bit on the others."""
    started = boot + 30.0
    return [
        Process(
            pid=1800 + 412 * position,
            kinds=["graphics"],
            user="root" if program == "Xorg" else "gdm",
            uid=0 if program == "Xorg" else 120,
            program=program,
            command=command,
            gpu_memory_used_mib=memory if index == 0 else 4,
            sm_utilization_percent=0.0,
            started_at=started,
            runtime_seconds=at - started,
            cpu_percent=0.3,
            memory_used_mib=90 + 60 * position,
            state="sleeping",
        )
        for position, (program, command, memory) in enumerate(_DISPLAY)
        if index == 0 or program == "Xorg"
    ]
