"""A user as plain text: what curl gets from the user's address."""

from __future__ import annotations

from gpumon.cluster.status import ClusterStatus
from gpumon.units import UNKNOWN, mib
from gpumon.web import front as words
from gpumon.web.ages import short_since
from gpumon.web.gpus import percent
from gpumon.web.text import plain, table, wrapped
from gpumon.web.user_page import UserAnswer, UserGpu, summary_words


def render(answer: UserAnswer, status: ClusterStatus) -> str:
    """Return what the user holds as text; every line fits into 100 columns."""
    lines = [words.SIMULATED] if status.simulated else []
    lines += wrapped(plain(summary_words(answer), 300))
    if answer.gpus:
        rows = [_row(held, answer.time) for held in answer.gpus]
        headings = ["HOST", "GPU", "MODEL", "STATE", ">HELD", ">UTIL", ">MEMORY", "PROGRAM, PIDS"]
        lines += ["", *table(headings, rows, [18, 8, 14, 15, 8, 5, 16])]
    return "\n".join(lines) + "\n"


def _row(held: UserGpu, now: float) -> list[str]:
    silent = "" if held.host_state == "fresh" else f" ({held.host_state})"
    pids = ", ".join(map(str, held.pids))
    rule = f", owner by {held.user_by}" if held.user_by else ""
    return [
        plain(held.host + silent),
        str(held.gpu) if held.mig is None else f"{held.gpu} MIG {held.mig}",
        plain(held.model),
        f"{held.state} " + short_since(now, held.since, held.since_at_least, held.since_at_most),
        short_since(now, held.held_since, at_most=held.held_since_at_most),
        percent(held.utilization_percent),
        f"{mib(held.gpu_memory_used_mib)} of {mib(held.memory_total_mib)}",
        plain(f"{held.program or UNKNOWN}{rule}: {pids}".rstrip(": "), 300),
    ]
