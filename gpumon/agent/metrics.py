"""The agent's `/metrics`: the newest sample for Prometheus. See docs/prometheus.md.

The text is made once for each sample and kept, also compressed; only the age in it changes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gpumon.agent.answers import Forms, json_age
from gpumon.agent.spliced import Spliced
from gpumon.collect.clock_events import CLOCK_REASONS
from gpumon.config import Limits, MetricsConfig
from gpumon.http.certificates import Ends
from gpumon.metrics.exposition import (
    Exposition,
    Metric,
    Value,
    label_text,
    mhz,
    mib,
    share,
    with_labels,
)
from gpumon.metrics.gpus import (
    BUILD,
    CERTIFICATE,
    MIG_STATE,
    STATE,
    USERS_LEFT_OUT,
    add_mig_readings,
    add_readings,
    add_since,
    add_state,
    add_users,
    gpu_labels,
    kept_users,
    mig_labels,
)
from gpumon.model import Gpu, HostSnapshot
from gpumon.states import gpu_state, mig_state, whole_gpu
from gpumon.summary import HostSummary
from gpumon.version import __version__
from gpumon.windows import advance, gpu_key, mig_key

MOST_USERS = 200
"""So many users of one host have samples of their own."""

AGE = Metric("gpumon_sample_age_seconds", "How old the newest sample of the GPUs is.")
FRESH = Metric("gpumon_sample_fresh", "Whether the newest sample is of now.")
INTERVAL = Metric("gpumon_sample_interval_seconds", "Seconds between two samples.")
RESTARTS = Metric(
    "gpumon_sampler_restarts_total", "Samplers that had to be replaced.", kind="counter"
)
SAMPLER_ERROR = Metric("gpumon_sampler_error", "Whether something keeps new samples from coming.")
ERRORS = Metric(
    "gpumon_sample_errors", "Errors of the whole host in the newest sample, such as no driver."
)
LEFT_OUT = Metric("gpumon_gpus_left_out", "GPUs not read since they hung or crashed the driver.")
DRIVER = Metric("gpumon_driver_info", "Versions of the driver and of its CUDA.")
GPU_COUNT = Metric("gpumon_host_gpus", "GPUs that the driver counts.")
HOST_ERRORS = Metric("gpumon_host_errors", "What is wrong with the host's readings as a whole.")
CPU = Metric("gpumon_host_cpu_utilization_ratio", "CPU time in use, 0 to 1.")
HOST_MEMORY = Metric("gpumon_host_memory_total_bytes", "Memory of the host.")
HOST_MEMORY_LEFT = Metric("gpumon_host_memory_available_bytes", "Memory of the host for programs.")

GPU_INFO = Metric("gpumon_gpu_info", "Where the GPU sits, by its PCI bus id.")
PROCESSES = Metric("gpumon_gpu_processes", "Processes on the GPU, those of its instances too.")
CLOCK_REASON = Metric(
    "gpumon_gpu_clock_event_reason", "Whether this lowers the GPU's clocks now, 1 or 0."
)
ECC = Metric("gpumon_gpu_ecc_errors_total", "Memory errors that ECC found.", kind="counter")
ROWS = Metric("gpumon_gpu_remapped_rows", "Memory rows replaced by spare ones.")
PAGES = Metric("gpumon_gpu_retired_pages", "Memory pages taken out of use.")
TROUBLE = Metric("gpumon_gpu_health_event", "Trouble of the GPU that goes on now; XIDs with code.")

_READINGS: tuple[tuple[Metric, Callable[[Gpu], Value]], ...] = (
    (
        Metric("gpumon_gpu_memory_utilization_ratio", "Share of time with memory traffic, 0 to 1."),
        lambda gpu: share(gpu.memory_utilization_percent),
    ),
    (
        Metric("gpumon_gpu_memory_reserved_bytes", "Memory of the GPU that the driver keeps."),
        lambda gpu: mib(gpu.memory_reserved_mib),
    ),
    (
        Metric("gpumon_gpu_memory_free_bytes", "Memory of the GPU that is free."),
        lambda gpu: mib(gpu.memory_free_mib),
    ),
    (
        Metric("gpumon_gpu_memory_unattributed_bytes", "Memory that no visible process explains."),
        lambda gpu: mib(gpu.unattributed_mib),
    ),
    (Metric("gpumon_gpu_sm_clock_hertz", "Clock of the SMs."), lambda gpu: mhz(gpu.sm_clock_mhz)),
    (
        Metric("gpumon_gpu_memory_clock_hertz", "Clock of the memory."),
        lambda gpu: mhz(gpu.memory_clock_mhz),
    ),
    (
        Metric("gpumon_gpu_fan_speed_ratio", "Fan speed as a share of its nominal maximum."),
        lambda gpu: share(gpu.fan_speed_percent),
    ),
    (
        Metric("gpumon_gpu_performance_state", "Performance state, 0 (fastest) to 15."),
        lambda gpu: gpu.performance_state,
    ),
    (
        Metric("gpumon_gpu_encoder_utilization_ratio", "Use of the video encoder, 0 to 1."),
        lambda gpu: share(gpu.encoder_utilization_percent),
    ),
    (
        Metric("gpumon_gpu_decoder_utilization_ratio", "Use of the video decoder, 0 to 1."),
        lambda gpu: share(gpu.decoder_utilization_percent),
    ),
    (
        Metric("gpumon_gpu_pcie_generation", "PCIe generation of the link now."),
        lambda gpu: gpu.pcie_generation,
    ),
    (Metric("gpumon_gpu_pcie_lanes", "PCIe lanes of the link now."), lambda gpu: gpu.pcie_width),
    (
        Metric("gpumon_gpu_persistence_mode", "Whether persistence mode is on."),
        lambda gpu: gpu.persistence_mode,
    ),
    (Metric("gpumon_gpu_ecc_mode", "Whether ECC is on."), lambda gpu: gpu.ecc_mode),
    (
        Metric("gpumon_gpu_remapped_rows_pending", "Whether rows wait for a reset."),
        lambda gpu: gpu.remapped_rows_pending,
    ),
    (
        Metric("gpumon_gpu_remapped_rows_failure", "Whether a row could not be replaced."),
        lambda gpu: gpu.remapped_rows_failure,
    ),
    (
        Metric("gpumon_gpu_retired_pages_pending", "Whether pages wait for a reset."),
        lambda gpu: gpu.retired_pages_pending,
    ),
)


class AgentMetrics:
    """Makes the text of the newest sample. For any thread."""

    def __init__(
        self, limits: Limits, config: MetricsConfig, certificate_ends: Ends | None = None
    ) -> None:
        self._limits = limits
        self._config = config
        self._certificate_ends = certificate_ends or Ends()

    def text(self, forms: Forms, now: float, *, gzip: bool) -> bytes:
        """Return the text, compressed where `gzip` says so; `now` is monotonic."""
        age, fresh = forms.latest.age(now), forms.latest.is_fresh(now)
        made = forms.once(f"metrics, fresh: {fresh}", partial(self._made, forms, fresh))
        part = b"" if age is None else _age_line(age)
        return (made.gzip if gzip else made.plain)(part)

    def _made(self, forms: Forms, fresh: bool) -> Spliced:
        out = Exposition()
        _add_agent(out, forms, fresh)
        for part, ends in (
            ("agent", self._certificate_ends.own),
            ("authority", self._certificate_ends.authority),
        ):
            out.add(CERTIFICATE, label_text(certificate=part), ends)
        snapshot, summary = forms.snapshot(), forms.summary()
        host = label_text(host=snapshot.hostname)
        out.add(
            DRIVER,
            label_text(
                host=snapshot.hostname,
                driver_version=snapshot.driver_version,
                cuda_version=snapshot.cuda_version,
            ),
            None if snapshot.driver_version is None else 1,
        )
        if fresh:
            _add_host(out, host, snapshot)
        self._add_gpus(out, snapshot, summary, fresh)
        return Spliced(out.text(), b"")

    def _add_gpus(
        self, out: Exposition, snapshot: HostSnapshot, summary: HostSummary, fresh: bool
    ) -> None:
        kept: frozenset[str | None] = frozenset()
        if fresh and self._config.users:
            kept, left_out = kept_users(_users(summary), MOST_USERS)
            out.add(USERS_LEFT_OUT, label_text(host=snapshot.hostname), left_out)
        # As of the moment of the sample, whose name here is 0: the text must hold for its lifetime.
        watch = advance(None, summary, sampled=0.0, limits=self._limits, longest_gap=0.0)
        wall = 0.0 if snapshot.time is None else snapshot.time
        for gpu, short in zip(snapshot.gpus, summary.gpus, strict=True):
            labels = gpu_labels(snapshot.hostname, gpu.index, gpu.uuid, gpu.name)
            window = watch.window(gpu_key(short), 0.0)
            whole = whole_gpu(
                short,
                window,
                host="fresh" if fresh else "stale",
                host_reason=None,
                drained=False,
                now=wall,
            )
            named = gpu_state(short, window, whole, limits=self._limits, now=wall)
            out.add(GPU_INFO, with_labels(labels, pci_bus_id=gpu.pci_bus_id), 1)
            add_state(out, STATE, labels, named.state)
            if fresh:
                if snapshot.time is not None:
                    add_since(
                        out,
                        labels,
                        named.since,
                        at_least=named.since_at_least,
                        at_most=named.since_at_most,
                    )
                add_readings(out, labels, short)
                _add_more(out, labels, gpu)
            for part, brief in zip(gpu.mig, short.mig, strict=True):
                inside = mig_labels(snapshot.hostname, gpu.index, gpu.name, brief)
                window = watch.window(mig_key(short, brief), 0.0)
                state = mig_state(brief, window, whole, limits=self._limits, now=wall).state
                add_state(out, MIG_STATE, inside, state)
                if fresh:
                    add_mig_readings(out, inside, part)
                add_users(out, inside, brief.holders, kept)
            add_users(out, labels, short.holders, kept)


def _add_agent(out: Exposition, forms: Forms, fresh: bool) -> None:
    latest = forms.latest
    out.add(BUILD, label_text(version=__version__, part="agent"), 1)
    out.add(FRESH, "", fresh)
    out.add(INTERVAL, "", latest.interval)
    out.add(RESTARTS, "", latest.restarts)
    out.add(SAMPLER_ERROR, "", latest.sampler_error is not None)
    out.add(ERRORS, "", len(forms.snapshot().errors))
    out.add(LEFT_OUT, "", len(latest.skipped))


def _add_host(out: Exposition, host: str, snapshot: HostSnapshot) -> None:
    out.add(GPU_COUNT, host, snapshot.gpu_count)
    out.add(HOST_ERRORS, host, len(snapshot.errors))
    out.add(CPU, host, share(snapshot.host.cpu_percent))
    out.add(HOST_MEMORY, host, mib(snapshot.host.memory_total_mib))
    out.add(HOST_MEMORY_LEFT, host, mib(snapshot.host.memory_available_mib))


def _add_more(out: Exposition, labels: str, gpu: Gpu) -> None:
    """Add what only the whole snapshot of a GPU knows."""
    for metric, read in _READINGS:
        out.add(metric, labels, read(gpu))
    out.add(PROCESSES, labels, _process_count(gpu))
    if gpu.clock_event_reasons is not None:
        for reason in CLOCK_REASONS:
            lowered = reason in gpu.clock_event_reasons
            out.add(CLOCK_REASON, with_labels(labels, reason=reason), lowered)
    for metric, count, kinds in (
        (ECC, gpu.ecc_volatile_corrected, {"counted": "volatile", "error": "corrected"}),
        (ECC, gpu.ecc_volatile_uncorrected, {"counted": "volatile", "error": "uncorrected"}),
        (ECC, gpu.ecc_aggregate_corrected, {"counted": "aggregate", "error": "corrected"}),
        (ECC, gpu.ecc_aggregate_uncorrected, {"counted": "aggregate", "error": "uncorrected"}),
        (ROWS, gpu.remapped_rows_corrected, {"error": "corrected"}),
        (ROWS, gpu.remapped_rows_uncorrected, {"error": "uncorrected"}),
        (PAGES, gpu.retired_pages_corrected, {"error": "corrected"}),
        (PAGES, gpu.retired_pages_uncorrected, {"error": "uncorrected"}),
    ):
        out.add(metric, with_labels(labels, **kinds), count)
    for event in gpu.health:
        if event.ended_at is None:
            kind = with_labels(labels, kind=event.kind, code=event.code, level=event.level)
            out.add(TROUBLE, kind, 1)


def _process_count(gpu: Gpu) -> int | None:
    """Return how many processes are on the GPU; None where a list could not be read."""
    lists = [gpu.processes, *(part.processes for part in gpu.mig)]
    if gpu.mig_mode and gpu.mig:
        lists = lists[1:]  # under MIG the driver lists none for the GPU itself
    pids: set[int] = set()
    for rows in lists:
        if rows is None:
            return None
        pids.update(row.pid for row in rows)
    return len(pids)


def _users(summary: HostSummary) -> list[str | None]:
    """Return the users of the host's GPUs, most memory first."""
    memory: dict[str | None, int] = {}
    for gpu in summary.gpus:
        for holder in [*gpu.holders, *(one for part in gpu.mig for one in part.holders)]:
            # An unknown amount only costs a place in the order.
            known = holder.gpu_memory_used_mib or 0
            memory[holder.user] = memory.get(holder.user, 0) + known
    return sorted(memory, key=lambda user: (-memory[user], user or ""))


def _age_line(age: float) -> bytes:
    lines = Exposition()
    lines.add(AGE, "", 0)
    return lines.text().removesuffix(b"0\n") + json_age(age) + b"\n"
