"""One HostSnapshot after another, from NVML and /proc."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from gpumon.collect import moment, odd, procfs
from gpumon.collect.accounts import Accounts
from gpumon.collect.devices import Devices, Skipped
from gpumon.collect.health.health import Health
from gpumon.collect.host import HostReader
from gpumon.collect.in_use import OpenGpus
from gpumon.collect.moment import Moment
from gpumon.collect.owners import OwnerOptions, Owners
from gpumon.collect.processes import Enricher
from gpumon.collect.unattributed import unattributed
from gpumon.model import HostSnapshot
from gpumon.text import clean
from gpumon.version import __version__


def _nowhere(index: int) -> None:
    """Progress for which nobody waits."""


def _unheard(text: str) -> None:
    """Log lines that nobody reads."""


class Collector:
    """Takes samples of this host; keeps NVML open and remembers the sample before.

    `interval`: seconds between samples, told in the snapshot. `skip`: GPUs by index that are not
    touched. `progress` hears the index of the GPU that is touched next, -1 when none is. `owners`:
    how a container of root's becomes a person's. `kernel_log` and `state_path`: where XIDs are read
    and what must outlive the process is kept. `log` hears what has no place in a snapshot.
    """

    def __init__(
        self,
        *,
        interval: float,
        skip: Mapping[int, Skipped] | None = None,
        progress: Callable[[int], None] = _nowhere,
        owners: OwnerOptions | None = None,
        kernel_log: str | None = None,
        state_path: str | None = None,
        log: Callable[[str], None] = _unheard,
        clock: Callable[[], Moment] = moment.now,
    ) -> None:
        self._interval = interval
        self._clock = clock
        self._health = Health(kernel_log=kernel_log, state_path=state_path, log=log, now=clock())
        self._devices = Devices(skip=skip, progress=progress, heard=self._health.driver_event)
        self._in_host_namespace = procfs.in_initial_pid_namespace()
        accounts = Accounts()
        mine = os.environ.get("GPUMON_PIDS_ARE_MINE") == "1"
        self._pids_are_ours = self._in_host_namespace or mine
        self._enricher = Enricher(
            pids_are_ours=self._pids_are_ours,
            accounts=accounts,
            owners=Owners(accounts, owners),
        )
        self._open_gpus = OpenGpus(lambda uid: accounts.name(uid)[0])
        self._host = HostReader()

    def sample(self) -> HostSnapshot:
        """Return a reading of this moment.

        Nothing that the driver does raises; it is said in `errors`, and `gpu_count` is None then.
        """
        now = self._clock()
        errors: list[str] = []
        # A pid namespace can have a limit of its own, while the driver speaks of the host's pids.
        pid_max = procfs.pid_max() if self._in_host_namespace else procfs.PID_MAX_LIMIT
        self._health.begin(now)
        count, gpus = self._devices.read(now, pid_max, errors)
        for gpu in gpus:
            gpu.unattributed_mib = unattributed(gpu)  # before long lists of processes are cut
        # NVML may have taken its time: processes are measured by the clock after it.
        self._enricher.enrich(gpus, self._clock(), errors)
        odd.tell(gpus, errors)
        if self._devices.error_kind == "version mismatch" and self._pids_are_ours:
            self._open_gpus.tell(now.monotonic, errors)
        self._health.finish(count, gpus, self._devices.no_events(), errors)
        return HostSnapshot(
            hostname=clean(os.uname().nodename),
            time=round(now.wall, 3),
            sample_interval_seconds=self._interval,
            agent_version=__version__,
            driver_version=self._devices.driver_version,
            cuda_version=self._devices.cuda_version,
            gpu_count=count,
            errors=errors,
            error_kind=self._devices.error_kind,
            host=self._host.read(now, errors),
            gpus=gpus,
        )

    def close(self) -> None:
        """Close NVML, and keep what is not kept yet. Not while `sample` runs."""
        self._health.close()
        self._devices.close()
