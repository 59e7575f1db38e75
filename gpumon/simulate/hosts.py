"""SimulatedHost: puts the parts together into a HostSnapshot."""

from __future__ import annotations

import math

from gpumon.model import Gpu, HostInfo, HostSnapshot
from gpumon.simulate.kinds import plan
from gpumon.simulate.lanes import LONGEST_TURN, generator
from gpumon.simulate.readings import Reader
from gpumon.version import __version__

SAMPLE_INTERVAL = 5.0
REBOOT_EVERY = 60 * 86400.0

NO_DRIVER = (
    "The NVIDIA driver does not answer: driver and library have different versions "
    "(570.124.06 and 570.133.20). Reboot this host, or unload and load the nvidia modules."
)
STUCK = (
    "No new sample for {minutes} min: a call to the driver on GPU 3 does not return. "
    "Look for XID messages in the kernel log of this host."
)


def host_names(count: int) -> list[str]:
    """Return readable names for `count` hosts: gpu-01, gpu-02, ..."""
    digits = max(2, len(str(count)))
    return [f"gpu-{number:0{digits}}" for number in range(1, count + 1)]


class SimulatedHost:
    """An invented GPU host. What it shows depends on (number, seed, now) and on nothing else."""

    def __init__(self, name: str, number: int, seed: int = 0) -> None:
        """`number` counts from 0; the first seven hosts show every case that matters."""
        self.name = name
        self._plan = plan(number, seed)
        rng = generator(f"{seed}/{number}/body")
        self._sample_phase = rng.uniform(0.0, SAMPLE_INTERVAL)
        self._boot_phase = rng.uniform(0.0, REBOOT_EVERY)
        self._disk_used = rng.uniform(0.3, 0.9)
        self._reader = Reader(self._plan, rng)

    @property
    def answers(self) -> bool:
        """False for a host that nobody can reach; `snapshot` tells what goes on there unseen."""
        return self._plan.kind != "silent"

    def snapshot(self, now: float) -> HostSnapshot:
        """Return the reading that an agent on this host would send at `now` (epoch seconds)."""
        kind, machine = self._plan.kind, self._plan.machine
        age = (now + self._sample_phase) % SAMPLE_INTERVAL
        sampler_error = None
        if kind == "stuck":
            # Its last sample is older than 15 min; every four hours one succeeds.
            age += 900.0 + (now - age) % (4 * 3600.0)
            sampler_error = STUCK.format(minutes=int(age // 60))
        at = now - age
        # So long before the first moment that is shown that no job is older than its host.
        boots = (at + self._boot_phase) // REBOOT_EVERY
        boot = boots * REBOOT_EVERY - self._boot_phase - LONGEST_TURN
        snapshot = HostSnapshot(
            hostname=self.name,
            simulated=True,
            time=at,
            sample_age_seconds=round(age, 3),
            sampler_error=sampler_error,
            sample_interval_seconds=SAMPLE_INTERVAL,
            agent_version=__version__,
        )
        if kind == "no driver":
            snapshot.errors = [NO_DRIVER]
            snapshot.error_kind = "version mismatch"
        else:
            count = machine.gpu_count
            snapshot.driver_version = machine.driver_version
            snapshot.cuda_version = machine.cuda_version
            snapshot.gpu_count = count
            snapshot.gpus = [self._reader.gpu(index, at, boot) for index in range(count)]
        snapshot.host = self._host_info(snapshot.gpus, at, boot)
        return snapshot

    def _host_info(self, gpus: list[Gpu], at: float, boot: float) -> HostInfo:
        """Return CPU, memory and disk in keeping with the processes on the GPUs."""
        machine = self._plan.machine
        processes = {
            process.pid: process
            for gpu in gpus
            for rows in (gpu.processes, *(instance.processes for instance in gpu.mig))
            for process in rows or []
        }.values()
        cpu = sum(process.cpu_percent or 0.0 for process in processes) / machine.cpu_count
        cpu = min(100.0, cpu + 3.0 + 2.0 * math.sin(at / 61.0 + self._boot_phase))
        memory = sum(process.memory_used_mib or 0 for process in processes)
        if machine.model.unified:
            memory += sum(process.gpu_memory_used_mib or 0 for process in processes)
        load = cpu * machine.cpu_count / 100.0
        return HostInfo(
            cpu_percent=round(cpu, 1),
            cpu_count=machine.cpu_count,
            load_1m=round(load * 1.05, 2),
            load_5m=round(load, 2),
            load_15m=round(load * 0.97, 2),
            memory_total_mib=machine.memory_mib,
            memory_available_mib=int(machine.memory_mib * 0.96) - memory,
            disk_total_mib=machine.disk_mib,
            disk_free_mib=int(machine.disk_mib * (1.0 - self._disk_used)),
            uptime_seconds=at - boot,
        )
