"""vesta's text: the table of 80 columns, the boxes of `detail=true`, and the short `/gpu_table`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpumon.agent.nvgpu import processes, processes_known
from gpumon.cluster.status import ClusterStatus, HostStatus
from gpumon.model import Gpu
from gpumon.units import UNKNOWN
from gpumon.web.earlier.readings import (
    RUNNING,
    Detail,
    gpus_now,
    word,
    written,
)

WIDTH = 80
PAGE = 8
"""Hosts on one page of vesta's, as it comes."""
_SUMMARY = (18, 24, 16, 7, 6)
_TABLE = (30, 27, 17)
_BAR = 50


def summary(status: ClusterStatus, detail: Detail, page: int | None = None) -> str:
    """Return the table of all hosts, or of page `page` (1 is the first)."""
    head = _row(("host", "gpu", "memory usage", "volat.", "temp."), _SUMMARY)
    lines = [*_simulated(status), head, "=" * WIDTH]
    hosts = status.hosts if page is None else status.hosts[(page - 1) * PAGE : page * PAGE]
    for host in hosts:
        lines += _summary_of(host, detail)
        lines.append("-" * WIDTH)
    if page is not None and not hosts:
        most = -(-len(status.hosts) // PAGE)
        lines.append(f"There is no page {page}: the pages are 1 to {most}.")
    return _text(lines)


def _summary_of(host: HostStatus, detail: Detail) -> Iterator[str]:
    told = word(host)
    if told != RUNNING:
        yield _row((host.name, f"[{told}]", "", "", ""), _SUMMARY)
        yield _cut(f"  {host.address}  last update {written(host.answered_at)}", WIDTH)
        return
    gpus = gpus_now(host, detail)
    for number, gpu in enumerate(gpus):
        yield _row(
            (
                host.name if number == 0 else "",
                f"{gpu.index}:{gpu.name or 'unknown GPU'}",
                f"{_number(gpu.memory_used_mib)} / {_number(gpu.memory_total_mib)}",
                _unit(gpu.utilization_percent, "%"),
                _unit(gpu.temperature_celsius, "C"),
            ),
            _SUMMARY,
        )
    if not gpus:
        yield _row((host.name, _no_gpu(host), "", "", ""), _SUMMARY)


def detailed(status: ClusterStatus, hosts: Iterable[HostStatus], detail: Detail) -> str:
    """Return a box per GPU with its processes, for each of `hosts`."""
    lines = [*_simulated(status)]
    for host in hosts:
        lines += [_cut(f"[{host.name}]  {host.address}  {word(host)}", WIDTH)]
        lines += [f"  last update {written(host.answered_at)}"]
        if word(host) != RUNNING:
            lines += [_cut(f"  {host.reason or 'it has not answered'}", WIDTH)]
        else:
            gpus = gpus_now(host, detail)
            lines += [line for gpu in gpus for line in _box(gpu)] or [f"  {_no_gpu(host)}"]
        lines.append("")
    return _text(lines)


def _box(gpu: Gpu) -> Iterator[str]:
    used, total = gpu.memory_used_mib, gpu.memory_total_mib
    yield "  +" + "-" * (WIDTH - 4) + "+"
    yield _boxed(f"{gpu.index}: {gpu.name or 'unknown GPU'}")
    if gpu.error is not None:
        yield _boxed(gpu.error)
    yield _boxed(
        f"memory {_number(used)} / {_number(total)} MiB"
        f"   free {_number(gpu.memory_free_mib)} MiB"
        f"   volatile {_unit(gpu.utilization_percent, ' %')}"
        f"   {_unit(gpu.temperature_celsius, ' C')}"
    )
    if used is not None and total:
        filled = max(0, min(_BAR, round(_BAR * used / total)))
        yield _boxed(f"[{'/' * filled}{' ' * (_BAR - filled)}] {100 * used // total} %")
    found = list(processes(gpu))
    for number, process in enumerate(found):
        branch = "`-" if number == len(found) - 1 else "|-"
        name = process.program or "?"
        name = name if len(name) <= 25 else f"..{name[-23:]}"
        memory = _unit(process.gpu_memory_used_mib, " MiB")
        yield _boxed(f"{branch} {name}  {memory}  {process.user or '?'}")
    if not processes_known(gpu):
        yield _boxed("its processes are not known")
    yield "  +" + "-" * (WIDTH - 4) + "+"


def table(status: ClusterStatus, detail: Detail) -> str:
    """Return host, GPU and memory of everything, one GPU a line."""
    lines = [*_simulated(status), _row(("host", "gpu", "memory"), _TABLE), "=" * WIDTH]
    for host in status.hosts:
        gpus = gpus_now(host, detail)
        if not gpus:
            told = word(host)
            short = _no_gpu(host) if told == RUNNING else f"[{told}]"
            lines.append(_row((host.name, short, UNKNOWN), _TABLE))
        lines += [
            _row(
                (
                    host.name if number == 0 else "",
                    f"{gpu.index}:{gpu.name or 'unknown GPU'}",
                    f"{_number(gpu.memory_used_mib)} / {_number(gpu.memory_total_mib)}",
                ),
                _TABLE,
            )
            for number, gpu in enumerate(gpus)
        ]
    return _text(lines)


def _no_gpu(host: HostStatus) -> str:
    return "no GPU" if host.gpu_count == 0 else "its GPUs are not known"


def _simulated(status: ClusterStatus) -> list[str]:
    return ["SIMULATED: these hosts and numbers are invented"] if status.simulated else []


def _row(cells: tuple[str, ...], widths: tuple[int, ...]) -> str:
    padded = (f"{_cut(cell, width):<{width}}" for cell, width in zip(cells, widths, strict=True))
    return " ".join(padded).rstrip()


def _boxed(text: str) -> str:
    return f"  | {_cut(text, WIDTH - 6):<{WIDTH - 6}} |"


def _cut(text: str, width: int) -> str:
    """Return `text` in `width` columns of ASCII; foreign text was cleaned where it entered."""
    plain = "".join(sign if " " <= sign <= "~" else "?" for sign in text)
    return plain if len(plain) <= width else f"{plain[: width - 2]}.."


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def _unit(value: int | None, unit: str) -> str:
    return UNKNOWN if value is None else f"{value}{unit}"


def _text(lines: list[str]) -> str:
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"
