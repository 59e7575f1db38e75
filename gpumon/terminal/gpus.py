"""The GPUs of one snapshot as lines: GPU, its MIG instances, what is wrong, and the processes."""

from __future__ import annotations

from gpumon.cluster.models import short_model
from gpumon.config import Limits
from gpumon.model import Gpu, HostSnapshot, MigInstance, Process
from gpumon.states import HostState, Named, gpu_state, is_held, mig_state, occupants, whole_gpu
from gpumon.summary import GpuSummary, MigSummary, summarize
from gpumon.terminal.table import Column, flow, table
from gpumon.text import clean
from gpumon.units import UNKNOWN, cut, duration, mib
from gpumon.windows import advance, gpu_key, mig_key

NARROW = 60
"""Below this many columns the processes are indented less, to keep their programs."""
LONGEST_NOTE = 500
GHOST = "look for a container or a process that does not end"
MOST_DIGITS = 8
"""A broken number must not push the others off the line."""

_GPU_COLUMNS = (
    Column("GPU", right=True),
    Column("NAME", least=11, leaves=2),
    Column("TEMP", right=True, leaves=3),
    Column("USE", right=True),
    Column("POWER", right=True, leaves=4),
    Column("MEMORY", right=True),
    Column("STATE"),
)
_PROCESS_COLUMNS = (
    Column("PID", right=True),
    Column("USER", least=6),
    Column("KIND", leaves=4),
    Column("MEMORY", right=True),
    Column("SM", right=True, leaves=3),
    Column("CPU", right=True, leaves=5),
    Column("TIME", right=True),
    Column("PROGRAM", least=6, leaves=1),
)
_KINDS = {"compute": "C", "graphics": "G", "mps": "M"}
_SHOWN = {
    "utilization_percent": "use",
    "temperature_celsius": "temperature",
    "power_draw_watts": "power",
    "memory_used_mib": "memory",
    "processes": "processes",
}
"""Fields with a place on these lines, as the notes call them."""


class GpuRows:
    """Puts the lines together; the two tables are aligned over all GPUs."""

    def __init__(
        self, snapshot: HostSnapshot, *, host: HostState, limits: Limits, now: float, width: int
    ) -> None:
        self._snapshot = snapshot
        self._host = host
        self._limits = limits
        self._width = width
        # Everything on these lines is as of the moment of the reading, by the host's clock.
        self._at = now if snapshot.time is None else snapshot.time
        self._summary = summarize(snapshot)
        self._watch = advance(
            None, self._summary, sampled=self._at, limits=self._limits, longest_gap=0.0
        )

    def lines(self) -> list[str]:
        """Return the titles and all GPUs; nothing where there are none."""
        if not self._snapshot.gpus:
            return []
        rows: list[list[str]] = []
        below: list[tuple[list[str], list[Process]]] = []
        for gpu, summary in zip(self._snapshot.gpus, self._summary.gpus, strict=True):
            named, parts = self._named(summary)
            rows.append(_gpu_cells(gpu, self._state_cell(named)))
            notes = self._trouble(gpu, summary, named) + _remarks(gpu)
            below.append((notes, gpu.processes or []))
            for instance, part, named in zip(gpu.mig, summary.mig, parts, strict=True):
                rows.append(_mig_cells(gpu, instance, self._state_cell(named)))
                notes = self._trouble(instance, part, named)
                below.append((notes, instance.processes or []))
        return self._woven(rows, below)

    def _woven(
        self, rows: list[list[str]], below: list[tuple[list[str], list[Process]]]
    ) -> list[str]:
        processes = [_process_cells(p) for _, owned in below for p in sorted(owned, key=_order)]
        title, *gpu_lines = table(_GPU_COLUMNS, rows, self._width)
        indent = " " * (2 if self._width < NARROW else 5)
        inner = max(1, self._width - len(indent))
        under, *process_lines = table(_PROCESS_COLUMNS, processes, inner)
        lines = [title]
        if process_lines:
            lines.append(indent + under)
        left = iter(process_lines)
        for line, (notes, owned) in zip(gpu_lines, below, strict=True):
            lines.append(line)
            for note in notes:
                words = clean(note, LONGEST_NOTE).split()
                lines += [indent + part for part in flow(words, inner, indent="  ")]
            lines += [indent + next(left) for _ in owned]
        ways = _ways([process for _, owned in below for process in owned])
        if ways:
            lines += flow(f"* owner by {', '.join(ways)}".split(), self._width, indent="  ")
        return lines

    def _named(self, gpu: GpuSummary) -> tuple[Named, list[Named]]:
        """Return the state of a GPU and those of its MIG instances."""
        window, limits, at = self._watch.window(gpu_key(gpu), self._at), self._limits, self._at
        whole = whole_gpu(gpu, window, host=self._host, host_reason=None, drained=False, now=at)
        instances = [
            mig_state(
                part, self._watch.window(mig_key(gpu, part), at), whole, limits=limits, now=at
            )
            for part in gpu.mig
        ]
        return gpu_state(gpu, window, whole, limits=limits, now=at), instances

    def _trouble(
        self, place: Gpu | MigInstance, summary: GpuSummary | MigSummary, named: Named
    ) -> list[str]:
        """Return what is wrong with a GPU or an instance, or odd about it."""
        if named.state == "fault" and named.reason is not None:
            return [f"! {named.reason}"]
        if place.error is not None:
            return [f"! {place.error}"]
        if self._host != "fresh":
            return []  # said once, above
        if named.state in ("unknown", "drained") and named.reason is not None:
            return [named.reason]
        if is_held(summary) and summary.processes_known and not occupants(summary):
            held = mib(place.memory_used_mib)
            return [f"{held} held, but no process is visible: {GHOST}"]
        return []

    def _state_cell(self, named: Named) -> str:
        # A run that begins with this very reading is one that nobody watched before.
        if named.since is None or named.since >= self._at:
            return named.state
        bound = "<=" if named.since_at_most else ">=" if named.since_at_least else ""
        return f"{named.state} {bound}{duration(self._at - named.since)}"


def _gpu_cells(gpu: Gpu, state: str) -> list[str]:
    name = short_model(clean(gpu.name), None if gpu.unified_memory else gpu.memory_total_mib)
    if gpu.unified_memory:
        memory = "unified"
    else:
        memory = _of(mib(gpu.memory_used_mib), mib(gpu.memory_total_mib))
    return [
        str(gpu.index),
        name if gpu.name else UNKNOWN,
        _with_unit(gpu.temperature_celsius, "C"),
        _with_unit(gpu.utilization_percent, "%"),
        _of(
            _with_unit(gpu.power_draw_watts, ""),
            _with_unit(gpu.enforced_power_limit_watts, ""),
            "W",
        ),
        memory,
        state,
    ]


def _mig_cells(gpu: Gpu, instance: MigInstance, state: str) -> list[str]:
    memory = _of(mib(instance.memory_used_mib), mib(instance.memory_total_mib))
    name = f"MIG {clean(instance.name) or UNKNOWN}"
    return [f"{gpu.index}.{instance.index}", name, "", "", "", memory, state]


def _process_cells(process: Process) -> list[str]:
    program = clean(process.program) or UNKNOWN
    told = (process.container, process.job, process.started_from, process.note)
    extras = [clean(extra) for extra in told if extra]
    if process.state == "zombie":
        extras.append("zombie")
    if extras:
        program += f" ({', '.join(extras)})"
    user = clean(process.user)
    if user and process.user_by is not None:
        user += "*"
    return [
        str(process.pid),
        user or UNKNOWN,
        "+".join(_KINDS.get(kind, "?") for kind in process.kinds) or UNKNOWN,
        mib(process.gpu_memory_used_mib),
        _with_unit(process.sm_utilization_percent, "%"),
        _with_unit(process.cpu_percent, "%"),
        duration(process.runtime_seconds),
        program,
    ]


def _ways(processes: list[Process]) -> list[str]:
    """Return how owners were found out where it took more than the uid, each way once."""
    found = (p.user_by for p in processes if clean(p.user) and p.user_by is not None)
    return [clean(way) for way in dict.fromkeys(found)]


def _order(process: Process) -> tuple[bool, int, int]:
    """Sort those who compute before displays, then by memory, most first."""
    memory = process.gpu_memory_used_mib
    return process.kinds == ["graphics"], -1 if memory is None else -memory, process.pid


def _remarks(gpu: Gpu) -> list[str]:
    """Return what else there is to know: memory, a pending change, why something is unknown."""
    notes = []
    if gpu.unattributed_mib is not None and gpu.unattributed_mib > 0:
        notes.append(f"unattributed {mib(gpu.unattributed_mib)}")
    if gpu.mig_mode_pending is not None:
        notes.append(f"MIG will be {'on' if gpu.mig_mode_pending else 'off'} after the next reset")
    if gpu.error is not None:
        return notes
    by_reason: dict[str, list[str]] = {}
    for field, name in _SHOWN.items():
        told = field in gpu.unknown and not (gpu.unified_memory and field == "memory_used_mib")
        if told and getattr(gpu, field) is None:
            by_reason.setdefault(gpu.unknown[field], []).append(name)
    return notes + [f"{', '.join(names)}: {why}" for why, names in by_reason.items()]


def _with_unit(value: float | None, unit: str) -> str:
    return UNKNOWN if value is None else cut(f"{value:.0f}{unit}", MOST_DIGITS)


def _of(part: str, whole: str, unit: str = "") -> str:
    """Return "3/8W"; plain "-" where neither is known."""
    return UNKNOWN if part == whole == UNKNOWN else f"{part}/{whole}{unit}"
