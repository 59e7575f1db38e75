"""One HostSnapshot after another, from NVML and /proc."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from gpumon.collect import moment, procfs
from gpumon.collect.devices import Devices, Skipped
from gpumon.collect.host import HostReader
from gpumon.collect.moment import Moment
from gpumon.collect.processes import Enricher
from gpumon.model import HostSnapshot
from gpumon.text import clean
from gpumon.version import __version__


def _nowhere(index: int) -> None:
    """Progress for which nobody waits."""


class Collector:
    """Takes samples of this host; keeps NVML open and remembers the sample before.

    `interval`: seconds between samples, told in the snapshot. `skip`: GPUs by index that are not
    touched. `progress` hears the index of the GPU that is touched next, -1 when none is.
    """

    def __init__(
        self,
        *,
        interval: float,
        skip: Mapping[int, Skipped] | None = None,
        progress: Callable[[int], None] = _nowhere,
        clock: Callable[[], Moment] = moment.now,
    ) -> None:
        self._interval = interval
        self._clock = clock
        self._devices = Devices(skip=skip, progress=progress)
        self._in_host_namespace = procfs.in_initial_pid_namespace()
        self._enricher = Enricher(
            pids_are_ours=self._in_host_namespace or os.environ.get("GPUMON_PIDS_ARE_MINE") == "1"
        )
        self._host = HostReader()

    def sample(self) -> HostSnapshot:
        """Return a reading of this moment.

        Nothing that the driver does raises; it is said in `errors`, and `gpu_count` is None then.
        """
        now = self._clock()
        errors: list[str] = []
        # A pid namespace can have a limit of its own, while the driver speaks of the host's pids.
        pid_max = procfs.pid_max() if self._in_host_namespace else procfs.PID_MAX_LIMIT
        count, gpus = self._devices.read(now, pid_max, errors)
        # NVML may have taken its time: processes are measured by the clock after it.
        self._enricher.enrich(gpus, self._clock(), errors)
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
        """Close NVML. Not while `sample` runs."""
        self._devices.close()
