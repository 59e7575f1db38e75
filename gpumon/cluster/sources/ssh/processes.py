"""The processes on the GPUs, and what ps knows of them: owner, start, program.

nvidia-smi lists compute processes only. A wrong owner is worse than none: pids of another pid
namespace are never looked up, nor is a process believed that began after the list was made.
"""

from __future__ import annotations

import re

import msgspec

from gpumon.cluster.sources.foreign import MOST_MIB, MOST_PID, MOST_PROCESSES
from gpumon.cluster.sources.ssh.table import Table, number, read_table, why_not
from gpumon.model import Process
from gpumon.text import clean

COLUMNS = frozenset({"gpu_uuid", "pid", "used_memory", "used_gpu_memory", "process_name", "name"})

GONE = "ps does not show it: it ended, or is hidden from this login (hidepid)"
YOUNGER = "began after the list was made, so it may be another process of this number"
NOT_OURS = "owner not visible from this container"

_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "disk sleep",
    "T": "stopped",
    "t": "tracing stop",
    "Z": "zombie",
    "X": "dead",
    "I": "idle",
}
_CODE = re.compile(r"\n?code (\d{1,3})\Z")
_PS = re.compile(r"\s*(\d{1,10})\s+(\d{1,10})\s+(\d{1,12})\s+(\S{1,16})\s+(\S{1,64})\s?(.*)\Z")


class Listed(msgspec.Struct, kw_only=True):
    """The lists of processes, by UUID of GPU or MIG instance."""

    by_uuid: dict[str, list[Process]] = {}
    unreadable: dict[str, str] = {}
    """UUID -> why the list of that one is not known."""
    error: str | None = None
    """Why no list is known at all."""


_MOST_SECONDS = 1_000_000_000
"""ps counts below zero, which it writes as thousands of millions, for a process that seems to begin
in the future; it began just now."""


class Seen(msgspec.Struct, frozen=True):
    """One process as ps has it."""

    uid: int
    user: str
    runtime_seconds: float | None
    state: str
    program: str


def listed(text: str) -> Listed:
    """Return what the part "processes" says: CSV, then "code N" with the exit code."""
    text = text.strip("\n")
    match = _CODE.search(text)
    if match is None:
        return Listed(error="it is longer than any list of processes")
    table = read_table(text[: match.start()], COLUMNS, "process_name")
    code = int(match[1])
    if code != 0 or table.lines or not (table.header or table.says_none):
        words = "; ".join(table.lines[:2]) or "no words"
        # What is in a list that broke off is true, but it is not all.
        return Listed(
            error=f"nvidia-smi gave no whole list (exit code {code}): {clean(words, 160)}"
        )
    return _sorted(table)


def _sorted(table: Table) -> Listed:
    found = Listed()
    known: set[tuple[str, int]] = set()
    for row in table.rows:
        uuid = row.get("gpu_uuid", "")
        if not uuid.startswith(("GPU-", "MIG-")):
            found.error = f"nvidia-smi named no GPU for a process ({why_not(uuid)})"
            break
        pid = number(row.get("pid", ""))
        if pid is None or not 0 < pid <= MOST_PID:
            found.unreadable[uuid] = f"nvidia-smi tells no pids ({why_not(row.get('pid', ''))})"
            continue
        processes = found.by_uuid.setdefault(uuid, [])
        if len(processes) >= MOST_PROCESSES:
            found.unreadable[uuid] = f"more than {MOST_PROCESSES} processes"
        elif (uuid, int(pid)) not in known:
            known.add((uuid, int(pid)))
            processes.append(_process(int(pid), row))
    return found


def _process(pid: int, row: dict[str, str]) -> Process:
    process = Process(pid=pid, kinds=["compute"], program=_program(row.get("process_name", "")))
    memory = number(row.get("used_memory", row.get("used_gpu_memory", "")))
    # 0 is what some drivers say when they do not know: no process on a GPU holds nothing.
    if memory is not None and 0 < memory <= MOST_MIB:
        process.gpu_memory_used_mib = round(memory)
    return process


def _program(name: str) -> str | None:
    """Return the program without path and arguments, which are nobody else's business."""
    words = name.split()
    if not words or words[0].startswith("["):
        return None
    return clean(words[0].rpartition("/")[2], 64) or None


def seen(text: str) -> dict[int, Seen]:
    """Return what ps says, by pid. Its columns: pid, uid, seconds since the start, state, user,
    name of the program."""
    found = {}
    for line in text.split("\n"):
        match = _PS.match(line)
        if match:
            pid, uid, seconds, state, user, name = match.groups()
            found[int(pid)] = Seen(
                uid=int(uid),
                user=user,
                runtime_seconds=float(seconds) if int(seconds) < _MOST_SECONDS else None,
                state=_STATES.get(state[0], state[0]),
                program=clean(name.strip(), 64),
            )
    return found


def enrich(
    processes: list[Process], known: dict[int, Seen], *, listed_at: float, seen_at: float
) -> None:
    """Fill the rows with what ps knows.

    The host's clock (epoch seconds) said `listed_at` before the list was made, `seen_at` before ps.
    """
    for process in processes:
        by_ps = known.get(process.pid)
        if by_ps is None:
            process.note = GONE
            continue
        runtime = by_ps.runtime_seconds
        started_at = None if runtime is None else seen_at - runtime
        if started_at is None or started_at > listed_at + 1.0:  # both are whole seconds
            process.note = YOUNGER
            continue
        process.uid = by_ps.uid
        process.user = f"uid:{by_ps.uid}" if by_ps.user == str(by_ps.uid) else clean(by_ps.user)
        process.state = by_ps.state
        process.program = by_ps.program or process.program
        process.runtime_seconds = runtime
        process.started_at = started_at
