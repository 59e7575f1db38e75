"""Who is behind a pid: owner, program, command, start, CPU and memory, from /proc.

What does not change is kept under the identity of the process, (pid, start time), so that a known
process costs one small read. A process that ended meanwhile or can't be seen keeps its row.
"""

from __future__ import annotations

import os

import msgspec

from gpumon.collect import procfs
from gpumon.collect.accounts import Accounts
from gpumon.collect.command import command_line
from gpumon.collect.memory import MIB
from gpumon.collect.moment import Moment
from gpumon.collect.mps import hide_owner_of_mps
from gpumon.collect.owners import Owners, Traces
from gpumon.collect.program import program
from gpumon.model import Gpu, Process
from gpumon.text import clean

MOST_ROWS = 2000

ENDED = "ended, but the driver still lists it"
HIDDEN = "hidden by the host (hidepid)"
DENIED = "access denied by the host"
OWNER_DENIED = "owner hidden by the host"
COMMAND_DENIED = "command line hidden by the host"
COMMAND_STUCK = "its memory does not answer: command line unknown"
ZOMBIE = "ended, but not yet collected by its parent: it holds its GPU memory until then"
NOT_OURS = "owner not visible from this container"
NOT_OURS_ERROR = (
    "This agent runs in a pid namespace of its own, so it can't tell whose the processes are. "
    "Give its container the host's pids (docker run --pid=host). In a system container whose "
    "driver speaks of the container's own pids, set GPUMON_PIDS_ARE_MINE=1."
)

_REFRESH_SECONDS = 60.0


class _Known(msgspec.Struct):
    """What is kept about one process."""

    start_ticks: int
    ended: bool = False
    """It was gone while the driver listed it, and has been listed ever since."""
    refresh_due: float = 0.0
    comm: bytes = b""
    uid: int | None = None
    program: str | None = None
    command: str | None = None
    started_at: float | None = None
    traces: Traces | None = None
    denied: str | None = None
    cpu_ticks: int | None = None
    cpu_time: float = 0.0


class Enricher:
    """Fills the rows of processes; keeps what it knows between samples.

    `pids_are_ours`: whether the driver's pids mean processes of this pid namespace. A wrong owner
    is worse than none, so nothing is looked up otherwise. `owners` must share the `accounts`.
    """

    def __init__(
        self,
        *,
        pids_are_ours: bool,
        accounts: Accounts | None = None,
        owners: Owners | None = None,
        proc: str = procfs.PROC,
    ) -> None:
        self._ours = pids_are_ours
        self._accounts = accounts or Accounts()
        self._owners = owners or Owners(self._accounts, proc=proc)
        self._proc = proc
        self._known: dict[int, _Known] = {}
        self._lasting: set[int] = set()
        """Pids of those that were there in the sample before, too."""

    def enrich(self, gpus: list[Gpu], now: Moment, errors: list[str]) -> None:
        """Fill the processes of all GPUs and instances; say in `errors` what holds for all."""
        lists = [gpu.processes for gpu in gpus]
        lists += [instance.processes for gpu in gpus for instance in gpu.mig]
        rows = _cut([rows for rows in lists if rows], errors)
        if not self._ours:
            errors.append(NOT_OURS_ERROR)
            for row in rows:
                row.note = NOT_OURS
            return
        self._accounts.begin(now.monotonic)
        self._owners.begin(now.monotonic, errors)
        by_pid: dict[int, list[Process]] = {}
        for row in rows:
            by_pid.setdefault(row.pid, []).append(row)
        before, self._known = self._known, {}
        for pid, same in by_pid.items():
            known = self._describe(same[0], before.get(pid), now)
            if known is not None:
                self._known[pid] = known
            for row in same[1:]:
                _copy(same[0], row)
        lasting = self._known.keys() & before.keys()
        if self._proc == procfs.PROC and lasting != self._lasting:
            self._lasting = lasting
            procfs.keep_open(f"{procfs.PROC}/{pid}/stat" for pid in lasting)
        for shown in lists:
            hide_owner_of_mps(shown or [])

    def _describe(self, row: Process, known: _Known | None, now: Moment) -> _Known | None:
        """Fill one row; return what to keep about its process."""
        folder = f"{self._proc}/{row.pid}"
        try:
            if known is not None and known.ended:
                # The driver lists a pid of the past. A process that has this pid now is another's.
                raise ProcessLookupError
            stat = procfs.read_stat(folder)
            if stat.start_ticks > now.boot * procfs.TICKS_PER_SECOND:
                raise ProcessLookupError("this process began after the driver was asked")
            if known is None or known.start_ticks != stat.start_ticks:
                known = _Known(start_ticks=stat.start_ticks)
            if now.monotonic >= known.refresh_due or known.comm != stat.comm:
                self._refresh(known, row.pid, stat, now)
        except (FileNotFoundError, ProcessLookupError):
            row.note = ENDED
            if not os.path.isdir(folder):
                if procfs.is_alive(row.pid):
                    row.note, known = HIDDEN, None
                else:
                    known = known or _Known(start_ticks=-1)
                    known.ended = True
        except PermissionError:
            row.note, known = DENIED, None
        except (OSError, ValueError, IndexError) as error:
            row.note, known = clean(f"could not be read: {error}", 160), None
        else:
            row.note = ZOMBIE if stat.state == "zombie" else known.denied
            _fill_moment(row, known, stat, now)
        # What lives but can't be seen may be another process by now: nothing kept holds for it.
        if known is not None:
            self._fill_kept(row, known)
        return known

    def _refresh(self, known: _Known, pid: int, stat: procfs.Stat, now: Moment) -> None:
        """Read what seldom changes: a process may run another program or rewrite its title."""
        folder = f"{self._proc}/{pid}"
        uid: int | None = None
        arguments: list[str] = []
        denied = None
        try:
            arguments = procfs.read_arguments(folder)
        except PermissionError:
            denied = COMMAND_DENIED
        except TimeoutError:
            denied = COMMAND_STUCK
        try:
            uid = procfs.read_uid(folder)
        except PermissionError:
            denied = OWNER_DENIED
        name, command = known.program, known.command
        if arguments or name is None:  # a zombie has lost its arguments
            name = program(stat.comm, arguments)
            command = command_line(arguments)
        traces = known.traces
        if traces is None or stat.state != "zombie":  # and what else it showed
            traces = self._owners.read(pid, uid, name, traces)
        if procfs.read_stat(folder).start_ticks != known.start_ticks:
            raise ProcessLookupError("the pid went to another process while it was read")
        known.uid, known.denied, known.comm = uid, denied, stat.comm
        known.program, known.command, known.traces = name, command, traces
        # Without arguments it may just be starting another program: look again with the next one.
        known.refresh_due = now.monotonic + (_REFRESH_SECONDS if arguments else 0.0)

    def _fill_kept(self, row: Process, known: _Known) -> None:
        row.uid = known.uid
        silent = None
        if known.uid is not None:
            row.user, silent = self._accounts.name(known.uid)
            row.note = row.note or silent
        row.program = known.program
        row.command = known.command
        row.started_at = known.started_at
        if known.traces is not None:
            self._owners.fill(row, known.traces, owner_known=silent is None)


def _fill_moment(row: Process, known: _Known, stat: procfs.Stat, now: Moment) -> None:
    """Set what is measured anew in each sample."""
    row.state = stat.state
    row.memory_used_mib = stat.resident_pages * procfs.PAGE_BYTES // MIB
    runtime = max(0.0, now.boot - stat.start_ticks / procfs.TICKS_PER_SECOND)
    row.runtime_seconds = round(runtime, 1)
    started_at = now.wall - runtime
    # The clock readings differ by a little each time, and by much after the wall clock was set.
    if known.started_at is None or abs(started_at - known.started_at) >= 1.0:
        known.started_at = round(started_at, 2)
    passed = now.monotonic - known.cpu_time
    if known.cpu_ticks is not None and passed > 0:
        seconds = (stat.cpu_ticks - known.cpu_ticks) / procfs.TICKS_PER_SECOND
        row.cpu_percent = round(100 * seconds / passed, 1)
    known.cpu_ticks, known.cpu_time = stat.cpu_ticks, now.monotonic


def _copy(source: Process, row: Process) -> None:
    """A process on several GPUs is looked up once; what belongs to the GPU stays its own."""
    for field in (
        "user",
        "user_by",
        "uid",
        "program",
        "command",
        "started_at",
        "runtime_seconds",
        "cpu_percent",
        "memory_used_mib",
        "state",
        "container",
        "job",
        "started_from",
        "note",
    ):
        setattr(row, field, getattr(source, field))


def _cut(lists: list[list[Process]], errors: list[str]) -> list[Process]:
    """Shorten the lists to MOST_ROWS together, none of them to nothing; return all their rows."""
    total = sum(len(rows) for rows in lists)
    if total > MOST_ROWS:
        room = max(1, MOST_ROWS // len(lists))
        for rows in lists:
            rows.sort(key=lambda row: row.gpu_memory_used_mib or 0, reverse=True)
            del rows[room:]
        errors.append(
            f"{total} process rows are more than the {MOST_ROWS} that a host shows: "
            f"of each GPU the {room} with the most memory are listed."
        )
    return [row for rows in lists for row in rows]
