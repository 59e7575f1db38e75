"""`gpumon snapshot`: one host at one moment, a line a GPU and its processes beneath.

Unknown is "-", as everywhere. Only ASCII marks; names are shown as they are, cleaned and cut
with "~". No line is wider than asked for: columns go, then names are cut, sentences wrap.
"""

from __future__ import annotations

from gpumon.config import Config
from gpumon.model import HostSnapshot
from gpumon.states import HostState, host_state
from gpumon.terminal.gpus import GpuRows
from gpumon.terminal.table import flow
from gpumon.text import clean
from gpumon.units import UNKNOWN, cut, duration, mib

SIMULATED = "SIMULATED: this host and its numbers are invented"
NO_READING = "There is no reading yet."
OLD_READING = "This reading is old. What the GPUs do now is not known; below is what they did then."
NO_DRIVER = (
    "How many GPUs there are is not known: the driver could not be asked. "
    "Run nvidia-smi on this host to see what it says."
)
NO_GPU = (
    "The driver works and counts no GPU on this host. If there should be one: look for it with "
    "lspci, and for NVRM or XID messages in the kernel log."
)
LONGEST_SENTENCE = 1000


def render(snapshot: HostSnapshot, *, width: int, now: float) -> str:
    """Return the host as lines of at most `width` columns, without a line feed at the end.

    `now` (epoch seconds, by the host's clock) tells the age where the snapshot does not.
    """
    width = max(width, 1)
    age = _age(snapshot, now)
    lines = flow(_host(snapshot, age), width, gap="  ", indent="  ")
    if snapshot.simulated:
        lines = flow(SIMULATED.split(), width) + lines
    defaults = Config()
    host = host_state(
        None if age is None else 0.0,
        age,
        poll_interval=defaults.poll_interval,
        rpc_timeout=defaults.rpc_timeout,
        sample_interval=snapshot.sample_interval_seconds,
    )
    for sentence in _sentences(snapshot, host):
        lines += flow(clean(sentence, LONGEST_SENTENCE).split(), width)
    gpus = GpuRows(snapshot, host=host, limits=defaults.limits, now=now, width=width)
    rows = gpus.lines()
    if rows:
        lines += ["", *rows]
    return "\n".join(cut(line, width).rstrip() for line in lines)


def _age(snapshot: HostSnapshot, now: float) -> float | None:
    """Return how old the reading is; one that comes straight from its sampler does not say."""
    if snapshot.sample_age_seconds is not None:
        return snapshot.sample_age_seconds
    return None if snapshot.time is None else now - snapshot.time


def _host(snapshot: HostSnapshot, age: float | None) -> list[str]:
    host = snapshot.host
    used = None
    if host.memory_total_mib is not None and host.memory_available_mib is not None:
        used = host.memory_total_mib - host.memory_available_mib
    return [
        clean(snapshot.hostname) or UNKNOWN,
        "no reading" if age is None else f"read {duration(age)} ago",
        f"driver {clean(snapshot.driver_version, 24) or UNKNOWN}",
        f"CUDA {clean(snapshot.cuda_version, 12) or UNKNOWN}",
        f"CPU {_number(host.cpu_percent, 0, '%')} of {_number(host.cpu_count, 0)} cores",
        f"RAM {mib(used)}/{mib(host.memory_total_mib)}",
        f"load {_number(host.load_1m, 2)}",
    ]


def _number(value: float | None, digits: int, unit: str = "") -> str:
    return UNKNOWN if value is None else f"{value:.{digits}f}{unit}"


def _sentences(snapshot: HostSnapshot, host: HostState) -> list[str]:
    """Return what there is to say about the host as a whole."""
    said = []
    if host == "never":
        said.append(NO_READING)
    elif host != "fresh":
        said.append(OLD_READING)
    if snapshot.sampler_error is not None:
        said.append(f"No newer reading: {snapshot.sampler_error}")
    said += snapshot.errors
    listed = len(snapshot.gpus)
    if snapshot.gpu_count is None:
        if not said:
            said.append(NO_DRIVER)
    elif snapshot.gpu_count == 0 and listed == 0:
        said.append(NO_GPU)
    elif snapshot.gpu_count != listed:
        said.append(f"The driver counts {snapshot.gpu_count} GPUs; this list has {listed}.")
    return said
