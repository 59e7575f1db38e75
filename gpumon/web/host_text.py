"""A host as plain text: what curl gets from its address."""

from __future__ import annotations

from gpumon.cluster.status import ClusterStatus, GpuStatus, HostStatus, MigStatus
from gpumon.model import HostSnapshot
from gpumon.states import earliest, on_gpu_since
from gpumon.summary import Holder
from gpumon.units import UNKNOWN, duration, mib
from gpumon.web import front as words
from gpumon.web.ages import short_since
from gpumon.web.gpus import memory, percent, temperature, watts
from gpumon.web.holding import holders, seen_at
from gpumon.web.host_page import HostPage, host_page
from gpumon.web.hosts import host_row
from gpumon.web.text import plain, table, user_words, wrapped
from gpumon.web.words import numbers, sentence


def render(status: ClusterStatus, host: HostStatus, detail: HostSnapshot | None) -> str:
    """Return the host as text; every line ends in a line feed and fits into 100 columns."""
    page = host_page(host, detail, status.time)
    blocks = [
        _head(status, host, page),
        wrapped(plain("  ".join(f"{name}: {value}" for name, value in page.facts), 800)),
        _gpus(host, page, status.time),
        _health(page),
        _processes(page, detail),
        [words.BY_RULE] if page.starred else [],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _head(status: ClusterStatus, host: HostStatus, page: HostPage) -> list[str]:
    lines = [words.SIMULATED] if status.simulated else []
    age = "no reading yet"
    if host.age_seconds is not None:
        age = f"reading {duration(host.age_seconds)} old"
    lines.append(f"{plain(host.name, 60)}  {host.state}, {age}")
    if host.gpus:
        lines += wrapped(plain(sentence(host.gpus), 400))
    elif (instead := host_row(host).instead) is not None and instead not in page.problems:
        lines += wrapped(plain(instead, 400))
    for said in [*page.problems, *host.notes]:
        lines += wrapped(plain(said, 400))
    if host.state != "fresh" and host.gpus:
        lines.append("All values below are the last ones known.")
    return lines


def _gpus(host: HostStatus, page: HostPage, now: float) -> list[str]:
    rows = []
    for gpu in host.gpus:
        pieces: list[GpuStatus | MigStatus] = [gpu, *gpu.mig]
        for part in pieces:
            whole = part is gpu
            held = ", ".join(
                f"{user_words(one.user, one.user_by is not None)} "
                f"{one.program + ' ' if one.program else ''}"
                f"{mib(one.gpu_memory_used_mib)} {_held_since(one, seen_at(host, now))}"
                for one in holders(part)
            )
            reason = part.reason if part.state != "idle" and part.reason != host.reason else None
            why = page.clocks.get(gpu.index, UNKNOWN)
            slow = f"clocks: {why}" if whole and why not in (UNKNOWN, "none", "gpu idle") else None
            rows.append(
                [
                    str(gpu.index) if whole else f"MIG {part.index}",
                    plain(gpu.model if whole else part.name or UNKNOWN),
                    f"{part.state} "
                    + short_since(now, part.since, part.since_at_least, part.since_at_most),
                    percent(gpu.utilization_percent) if whole else UNKNOWN,
                    plain(memory(part)),
                    temperature(gpu.temperature_celsius).replace(" °", "") if whole else "",
                    watts(gpu.power_draw_watts, gpu.enforced_power_limit_watts) if whole else "",
                    plain("; ".join(text for text in (held, reason, slow) if text), 300),
                ]
            )
    headings = ["GPU", "MODEL", "STATE", ">UTIL", ">MEMORY", ">TEMP", ">POWER", "HELD BY"]
    return table(headings, rows, [6, 14, 14, 5, 16, 4, 12]) if rows else []


def _held_since(holder: Holder, now: float) -> str:
    since, at_most = earliest([on_gpu_since(holder)])
    return short_since(now, since, at_most=at_most)


def _health(page: HostPage) -> list[str]:
    lines = []
    for trouble in page.troubles:
        said = f"GPU {trouble.gpu} {trouble.level}: {trouble.text} ({trouble.over})"
        lines += wrapped(plain(f"{said}. {trouble.advice}".rstrip(". ") + ".", 400))
    for hint in page.hints:
        lines += wrapped(plain(f"GPU {numbers(hint.gpus)} hint: {hint.text}", 400))
    return lines


def _processes(page: HostPage, detail: HostSnapshot | None) -> list[str]:
    if detail is None or (not detail.gpus and detail.gpu_count is None):
        return ["The processes of this host are not known: there is no reading of it."]
    lines = []
    for gpu, why in page.hidden:
        lines += wrapped(plain(f"The processes of GPU {gpu} are not known: {why}.", 400))
    rows = [
        [
            line.gpu,
            user_words(line.process.user, line.process.user_by is not None),
            mib(line.process.gpu_memory_used_mib),
            duration(line.process.runtime_seconds),
            str(line.process.pid),
            plain(
                "; ".join(
                    text
                    for text in (
                        line.process.command or line.process.program or UNKNOWN,
                        line.remark,
                    )
                    if text
                ),
                300,
            ),
        ]
        for line in page.processes
    ]
    if rows:
        headings = ["GPU", "USER", ">MEMORY", ">TIME", ">PID", "PROGRAM"]
        return [*lines, *table(headings, rows, [8, 20, 7, 6, 10])]
    return lines or ["No process on any GPU."]
