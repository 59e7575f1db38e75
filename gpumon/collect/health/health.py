"""Brings the sources of health together: events of the driver, kernel log, readings, memory.

In each sample `begin` comes before the driver is touched, `driver_event` as it tells of events, and
`finish` with what was read. What must outlive the sampler is handed to the state file at once when
it changes, at most once a minute after that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

import msgspec

from gpumon.collect.health import kept, xids
from gpumon.collect.health.conditions import ECC_ADVICE, conditions, hints
from gpumon.collect.health.kept import State
from gpumon.collect.health.kernel_log import Bus, KernelLog, LoggedXid
from gpumon.collect.health.known import KnownGpu, KnownGpus
from gpumon.collect.health.ledger import DAY, DRIVER, HOUR, KERNEL_LOG, Ledger
from gpumon.collect.health.state import StateFile
from gpumon.collect.health.times import Shift
from gpumon.collect.moment import Moment
from gpumon.model import Gpu, encode
from gpumon.units import clock

_WRITES_AT_ONCE = 5.0
_WRITES_A_SECOND = 1 / 60
_MOST_UNPLACED = 256
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class DriverEvent(msgspec.Struct, frozen=True):
    """What the driver's event set told: an XID, or (None) an uncorrectable memory error."""

    uuid: str
    xid: int | None


class Health:
    """The health of all GPUs of this host, kept between samples.

    `kernel_log` and `state_path` None: there is no such source, or no memory beyond this process.
    """

    def __init__(
        self,
        *,
        kernel_log: str | None = None,
        state_path: str | None = None,
        log: Callable[[str], None],
        now: Moment,
    ) -> None:
        self._state_path = state_path
        self._heard = log
        self._boot_id = _read_boot_id()
        self._boot_wall = now.wall - now.boot
        self._now = now
        self._known = KnownGpus()
        self._ledgers: dict[str, Ledger] = {}
        self._unplaced: deque[LoggedXid] = deque(maxlen=_MOST_UNPLACED)
        self._writes = _WRITES_AT_ONCE
        self._refilled = now.monotonic
        self._file = None if state_path is None else StateFile(state_path, log)
        after = self._take_in(None if self._file is None else self._file.load())
        self._log = None if kernel_log is None else KernelLog(kernel_log, after=after)
        self._saved = self._news()

    def begin(self, now: Moment) -> None:
        """Read the kernel log; nothing here can be held up by the driver."""
        self._now = now = msgspec.structs.replace(now, wall=round(now.wall, 3))
        self._follow_the_clock()
        if self._file is not None:
            arrived = self._file.arrived()
            if arrived is not None:
                self._take_in(arrived)
                self._saved = b""
            if self._file.was_removed():
                self._known.forget_missing()
                for ledger in self._ledgers.values():
                    ledger.forget_unread()
                self._saved = b""
        self._place([] if self._log is None else self._log.read(now))
        self._save()

    def driver_event(self, event: DriverEvent) -> None:
        """Note an event, and keep it: the next call to the driver may never return."""
        if event.xid is not None:
            self._xid(event.uuid, event.xid, self._now.wall, DRIVER)
        else:
            text = "an uncorrectable memory error"
            self._ledger(event.uuid).happened(
                "ecc", None, "fault", text, ECC_ADVICE, at=self._now.wall, source=DRIVER
            )
        self._save()

    def finish(
        self,
        count: int | None,
        gpus: list[Gpu],
        no_events: Mapping[int, str],
        errors: list[str],
    ) -> None:
        """Fill in `health` and `hints` of the rows, and add a row for each GPU that is missing.

        `count` is how many GPUs the driver counts, `no_events` why it tells no XIDs of a GPU, by
        index. What concerns no row is added to `errors`.
        """
        now = self._now.wall
        untold = self._known.update(count, gpus, now)
        if untold:
            errors.append(
                f"The driver counts {count} GPU{'' if count == 1 else 's'}, {untold} fewer than "
                "before. Which one is missing "
                "can't be told as long as not every GPU tells its UUID. Look at lspci and dmesg."
            )
        self._place([])
        self._tell_unplaced(errors)
        for gpu in gpus:
            gpu.hints = hints(gpu)
            self._say_what_is_unseen(gpu, no_events)
        gpus += self._known.missing(gpus, now, self._boot_wall)
        for gpu in gpus:
            if gpu.uuid is not None:
                self._judge(gpu.uuid, gpu, now)
        self._ledgers = {
            uuid: ledger for uuid, ledger in self._ledgers.items() if uuid in self._known.gpus
        }
        self._save()

    def close(self) -> None:
        """Keep what is not kept yet."""
        self._writes = _WRITES_AT_ONCE
        self._save()
        if self._file is not None:
            self._file.finish()
        if self._log is not None:
            self._log.close()

    def _judge(self, uuid: str, gpu: Gpu, now: float) -> None:
        ledger = self._ledger(uuid)
        if gpu.missing_since is None:
            for it in conditions(gpu):
                if it.holds:
                    ledger.holds(it.kind, it.level, it.text, it.advice, now=now, count=it.count)
                elif it.holds is False:
                    ledger.over(it.kind, now)
                else:
                    ledger.unread(it.kind, now)
            ledger.over("missing", now)
        else:
            advice = f"{_MISSING}; {self._how_to_forget()}"
            ledger.holds("missing", "fault", gpu.error or "missing", advice, now=gpu.missing_since)
        ledger.tidy(now)
        gpu.health = ledger.events(now)

    def _how_to_forget(self) -> str:
        if self._state_path is None:
            return "if it was taken out on purpose, restart the agent"
        return f"if it was taken out on purpose: rm {self._state_path}"

    def _say_what_is_unseen(self, gpu: Gpu, no_events: Mapping[int, str]) -> None:
        """Say why a list of health can't hold XIDs, where neither source tells them."""
        why = no_events.get(gpu.index)
        log_error = "not read" if self._log is None else self._log.error
        if why is not None and log_error is not None:
            gpu.unknown["health"] = f"no XIDs: events of the driver: {why}; kernel log: {log_error}"

    def _place(self, new: list[LoggedXid]) -> None:
        """Give each XID of the kernel log to the GPU at its address, once that is known."""
        waiting = [*self._unplaced, *new]
        self._unplaced.clear()
        places = self._known.places() if waiting else {}
        for xid in waiting:
            uuid = places.get(xid.bus)
            if uuid is not None:
                self._xid(uuid, xid.code, xid.at, KERNEL_LOG)
            elif self._now.wall - xid.at < DAY:
                self._unplaced.append(xid)

    def _tell_unplaced(self, errors: list[str]) -> None:
        """Tell of broken GPUs that the driver does not list."""
        told: dict[tuple[Bus, int], float] = {}
        for xid in self._unplaced:
            recent = self._now.wall - xid.at < HOUR
            if recent and xids.describe(xid.code).level == "fault":
                told[xid.bus, xid.code] = xid.at
        for (bus, code), at in told.items():
            what = xids.describe(code)
            errors.append(
                f"A GPU that is not listed here, at PCI {bus[0]:04x}:{bus[1]:02x}:{bus[2]:02x}: "
                f"XID {code} at {clock(at, self._now.wall)}, {what.text}. {what.advice}."
            )

    def _xid(self, uuid: str, code: int, at: float, source: str) -> None:
        what = xids.describe(code)
        self._ledger(uuid).happened(
            "xid", code, what.level, f"XID {code}: {what.text}", what.advice, at=at, source=source
        )

    def _ledger(self, uuid: str) -> Ledger:
        return self._ledgers.setdefault(uuid, Ledger())

    def _take_in(self, data: bytes | None) -> int | None:
        """Add what the state file holds; return the number of the last known record of the log.

        What a sampler before this one has kept, at the start or whenever a slow disk gives it.
        """
        state = kept.read(data, self._state_path or "", self._heard) if data else State()
        ledgers = {uuid: Ledger(entries) for uuid, entries in state.entries.items()}
        same_boot = state.boot_id is not None and state.boot_id == self._boot_id
        if not same_boot:
            for ledger in ledgers.values():
                ledger.reset(self._boot_wall)
            state.unplaced.clear()
            state.log_sequence = None
        elif state.boot_wall is not None:
            shift = Shift.between(state.boot_wall, self._boot_wall, self._now.boot)
            _shift(shift, state.gpus.values(), ledgers.values(), state.unplaced)
        self._known.merge(state.gpus)
        for uuid, ledger in ledgers.items():
            self._ledger(uuid).merge(ledger)
        self._unplaced.extend(xid for xid in state.unplaced if xid not in self._unplaced)
        return state.log_sequence

    def _follow_the_clock(self) -> None:
        """Move all times of this boot with the clock, where that was set: their age is the same."""
        boot_wall = self._now.wall - self._now.boot
        shift = Shift.between(self._boot_wall, boot_wall, self._now.boot)
        if shift is not None:
            self._boot_wall = boot_wall
            unplaced = list(self._unplaced)
            _shift(shift, self._known.gpus.values(), self._ledgers.values(), unplaced)
            self._unplaced = deque(unplaced, maxlen=_MOST_UNPLACED)

    def _news(self) -> bytes:
        """Return what is worth a write when it has changed."""
        entries = {uuid: ledger.entries() for uuid, ledger in self._ledgers.items()}
        return encode([self._known.gpus, entries, list(self._unplaced)])

    def _save(self) -> None:
        """Hand over what has changed: a few times at once, then once a minute."""
        now = self._now.monotonic
        self._writes += (now - self._refilled) * _WRITES_A_SECOND
        self._writes, self._refilled = min(self._writes, _WRITES_AT_ONCE), now
        if self._file is None or self._writes < 1:
            return
        news = self._news()
        if news == self._saved:
            return
        self._saved = news
        self._writes -= 1
        state = State(
            boot_id=self._boot_id,
            boot_wall=self._boot_wall,
            log_sequence=None if self._log is None else self._log.sequence,
            unplaced=list(self._unplaced),
            gpus=self._known.gpus,
            entries={uuid: ledger.entries() for uuid, ledger in self._ledgers.items()},
        )
        self._file.save(encode(state))


def _shift(
    shift: Shift | None,
    gpus: Iterable[KnownGpu],
    ledgers: Iterable[Ledger],
    unplaced: list[LoggedXid],
) -> None:
    if shift is None:
        return
    for gpu in gpus:
        if gpu.missing_since is not None:
            gpu.missing_since = shift(gpu.missing_since)
    for ledger in ledgers:
        ledger.shift(shift)
    unplaced[:] = [msgspec.structs.replace(xid, at=shift(xid.at)) for xid in unplaced]


_MISSING = (
    "Look for NVRM and Xid lines in the kernel log (dmesg) and at lspci; power-cycle the host; "
    "check the GPU's seat, power and cooling"
)


def _read_boot_id() -> str | None:
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip() or None
    except (OSError, ValueError):
        return None
