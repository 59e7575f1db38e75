"""All GPUs of the host: opening NVML, opening it anew, and one row per GPU whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from gpumon.collect import nvml
from gpumon.collect.events import EventSets
from gpumon.collect.gpu import GpuReader
from gpumon.collect.health.health import DriverEvent
from gpumon.collect.moment import Moment, Round
from gpumon.collect.nvml import Unknown
from gpumon.collect.questions import MINUTE, GpuLost
from gpumon.errors import CollectError
from gpumon.model import Gpu
from gpumon.states import RESET_WANTED
from gpumon.text import clean

_PHASE_SECONDS = 5.0
_LOST_ACCESS = (
    " The GPUs answered before: this host or container has lost access to them. "
    "If nvidia-smi works, restart the agent (and its container)."
)
_KERNEL_LOG = "look for NVRM and Xid lines in the kernel log: dmesg"


class Skipped(msgspec.Struct, frozen=True):
    """A GPU that must not be touched: it hung or crashed the sampler before."""

    error: str
    uuid: str | None = None
    name: str | None = None


class Devices:
    """NVML's state between samples. `progress` hears the index of the GPU that is touched next.

    `heard` hears what the driver tells of events, before any GPU is touched.
    """

    def __init__(
        self,
        *,
        skip: Mapping[int, Skipped] | None = None,
        progress: Callable[[int], None],
        heard: Callable[[DriverEvent], None],
    ) -> None:
        self._skip = skip or {}
        self._progress = progress
        self._heard = heard
        self._events = EventSets()
        self._open = False
        self._readers: dict[int, GpuReader] = {}
        self._known: dict[int, Gpu] = {}
        self._answered = False
        self._reopen_due = 0.0
        self._suspects: list[Gpu] = []
        self._last: float | None = None
        self.driver_version: str | None = None
        self.cuda_version: str | None = None
        self.error_kind: str | None = None
        """Why the driver could not be used in the last reading, of CollectError.KINDS."""

    def read(self, now: Moment, pid_max: int, errors: list[str]) -> tuple[int | None, list[Gpu]]:
        """Return the number of GPUs (None: not known) and their rows, by index; never raises.

        What went wrong with the driver as a whole is added to `errors`. When all GPUs fail at once
        that answered before, NVML is opened anew, at most once a minute.
        """
        elapsed = None if self._last is None else now.monotonic - self._last
        self._last = now.monotonic
        this = Round(now, elapsed, pid_max)
        count, rows, trouble = self._read_once(this)
        if trouble is not None and self._answered and now.monotonic >= self._reopen_due:
            self._reopen_due = now.monotonic + MINUTE
            self.close()
            before = trouble
            count, rows, trouble = self._read_once(this)
            if trouble is None:
                errors.append(f"{before} NVML was opened anew, and GPUs answer again.")
        if trouble is not None:
            lost_access = self._answered and self.error_kind in (None, "failed")
            errors.append(trouble + (_LOST_ACCESS if lost_access else ""))
        return count, rows

    def close(self) -> None:
        """Close NVML; the next reading opens it."""
        self._readers.clear()
        self._events.close()
        if self._open:
            self._open = False
            nvml.stop()

    def no_events(self) -> Mapping[int, str]:
        """Return why the driver tells no XIDs, by the index of the GPU."""
        return self._events.refused

    def _read_once(self, this: Round) -> tuple[int | None, list[Gpu], str | None]:
        """Return count, rows and what is wrong with all of them, as a sentence."""
        self.error_kind = None
        if not self._open:
            self.driver_version = self.cuda_version = None
            try:
                nvml.start()
            except CollectError as error:
                self.error_kind = error.kind
                return None, self._remembered(str(error)), str(error)
            self._open = True
            self._read_versions()
        for index, xid in self._events.drain(this.now.monotonic):
            known = self._known.get(index)
            if known is not None and known.uuid is not None:
                self._heard(DriverEvent(known.uuid, xid))
        count = nvml.call("nvmlDeviceGetCount")
        if isinstance(count, Unknown):
            trouble = (
                f"The driver does not say how many GPUs there are: {count.reason}. "
                "Check: nvidia-smi"
            )
            self.error_kind = "failed"
            self.close()
            return None, self._remembered(trouble), trouble
        if count != len(self._known):
            # GPUs came or went: every index may mean another GPU now.
            self._readers.clear()
            self._events.close()
            self._known = {index: Gpu(index=index) for index in range(count)}
        if count == 0:
            # The driver counts its GPUs when it is opened.
            self.close()
        rows = self._rows(count, this)
        tried = [row for row in rows if row.index not in self._skip]
        if any(row.error is None for row in tried):
            self._answered = True
            return count, rows, None
        return count, rows, f"No GPU answers: {tried[0].error}." if tried else None

    def _read_versions(self) -> None:
        driver = nvml.text("nvmlSystemGetDriverVersion")
        self.driver_version = None if isinstance(driver, Unknown) else driver
        cuda = nvml.call("nvmlSystemGetCudaDriverVersion")
        self.cuda_version = (
            None if isinstance(cuda, Unknown) else f"{cuda // 1000}.{cuda % 1000 // 10}"
        )

    def _rows(self, count: int, this: Round) -> list[Gpu]:
        rows: list[Gpu] = []
        self._suspects = []
        for index in range(count):
            skipped = self._skip.get(index)
            if skipped is not None:
                rows.append(
                    Gpu(index=index, uuid=skipped.uuid, name=skipped.name, error=skipped.error)
                )
                continue
            self._progress(index)
            try:
                rows.append(self._row(index, this))
            except Exception as error:  # one GPU's oddity costs its own row only
                words = clean(f"reading it failed: {type(error).__name__}: {error}", 200)
                rows.append(_with_error(self._known[index], words))
        self._progress(-1)
        if any(row.error is None for row in rows):
            # The others can be opened, so it is these GPUs and not the access to all of them.
            for row in self._suspects:
                row.lost = True
        return rows

    def _row(self, index: int, this: Round) -> Gpu:
        # Looked up each time: this call finds a lost GPU, where a getter with an old handle of it
        # crashes in some drivers.
        handle = nvml.call("nvmlDeviceGetHandleByIndex", index)
        if isinstance(handle, Unknown):
            row = _unopened(self._known[index], handle)
            if handle.code == nvml.UNKNOWN:
                self._suspects.append(row)
            return row
        reader = self._readers.get(index)
        if reader is None:
            reader = self._readers[index] = GpuReader(index, phase=index % 12 * _PHASE_SECONDS)
        try:
            row = reader.read(handle, this)
        except GpuLost as lost:
            row = _lost(reader.known, lost.answer)
        if reader.known.uuid is not None:
            self._known[index] = reader.known
        if row.error is None:
            self._events.watch(index, handle, this.now.monotonic)
            return row
        return _with_error(self._known[index], row.error, row.lost)

    def _remembered(self, error: str) -> list[Gpu]:
        return [_with_error(gpu, error) for gpu in self._known.values()]


def _with_error(known: Gpu, error: str, lost: bool = False) -> Gpu:
    return Gpu(
        index=known.index,
        uuid=known.uuid,
        pci_bus_id=known.pci_bus_id,
        name=known.name,
        error=error,
        lost=lost,
    )


def _lost(known: Gpu, answer: Unknown) -> Gpu:
    if answer.code == nvml.RESET_REQUIRED:
        return _with_error(known, f"{answer.reason}: {RESET_WANTED}", lost=True)
    words = f"{answer.reason}: it has fallen off the bus; {_KERNEL_LOG}"
    return _with_error(known, words, lost=True)


def _unopened(known: Gpu, answer: Unknown) -> Gpu:
    """Return the row of a GPU for which the driver gave no handle."""
    if answer.code in (nvml.GPU_IS_LOST, nvml.RESET_REQUIRED):
        return _lost(known, answer)
    cure = _KERNEL_LOG
    if answer.code == nvml.NO_PERMISSION:
        cure = "check the rights on its /dev/nvidia* file and the DeviceAllow= lines of the service"
    return _with_error(known, f"the driver can't open this GPU ({answer.reason}); {cure}")
