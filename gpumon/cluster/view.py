"""The records of all hosts at one moment -> ClusterStatus. Pure: now is an argument."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpumon.cluster.certificates import agent_note
from gpumon.cluster.kept import Kept
from gpumon.cluster.listings import Listings
from gpumon.cluster.missing import Missing, without_a_row
from gpumon.cluster.models import short_model
from gpumon.cluster.record import Moment, Record
from gpumon.cluster.relayed import relayed_hosts
from gpumon.cluster.status import CertificateEnds, ClusterStatus, GpuStatus, HostStatus, MigStatus
from gpumon.cluster.totals import cluster_totals, model_totals, shares_of, user_totals
from gpumon.config import Config
from gpumon.states import (
    DOWN_AFTER_SECONDS,
    HostState,
    Named,
    Window,
    earliest,
    gpu_state,
    host_state,
    mig_state,
    on_gpu_since,
    whole_gpu,
)
from gpumon.summary import GpuSummary, Holder, HostSummary, MigSummary
from gpumon.units import duration
from gpumon.windows import gpu_key, mig_key

SKEW_SECONDS = 30.0
"""A host's clock that is further off than this is worth a note."""


def build(
    records: Iterable[Record],
    *,
    config: Config,
    now: Moment,
    revision: str,
    instance: str = "",
    certificate_ends: CertificateEnds | None = None,
    kept: Kept | None = None,
) -> ClusterStatus:
    """Return what all faces show, hosts in the order of the configuration.

    `instance` names this run of the server, for others that show its hosts; `certificate_ends` are
    those of the server itself. `kept` holds what is left of the picture before, and then of this
    one; without it everything is made from nothing.
    """
    records = list(records)
    listings = Listings(records)
    kept = Kept() if kept is None else kept
    kept.turn()
    hosts = [host for record in records for host in _hosts(record, config, now, listings, kept)]
    shares = shares_of(hosts, kept.share)
    return ClusterStatus(
        simulated=any(host.simulated for host in hosts),
        title=config.web.title,
        revision=revision,
        time=now.wall,
        poll_interval_seconds=config.poll_interval,
        totals=cluster_totals(hosts, shares),
        models=model_totals(shares),
        users=user_totals(shares),
        hosts=hosts,
        instance=instance,
        certificate_ends=certificate_ends or CertificateEnds(),
    )


def _hosts(
    record: Record, config: Config, now: Moment, listings: Listings, kept: Kept
) -> Iterable[HostStatus]:
    """Return the host of a record, or all those of the other gpumon server that it is."""
    relay = record.relay
    if relay is None or not relay.status.hosts:
        return [_HostView(record, config, now, listings, kept).status()]
    next_poll = record.next_poll
    return relayed_hosts(
        relay,
        record.entry,
        config=config,
        failure=None if record.failure is None else record.failure.message,
        next_poll_seconds=None if next_poll is None else max(0.0, next_poll - now.monotonic),
        now=now.monotonic,
    )


class _HostView:
    """One host while its row is made."""

    def __init__(
        self, record: Record, config: Config, now: Moment, listings: Listings, kept: Kept
    ) -> None:
        self.kept = kept
        self.record = record
        self.config = config
        self.now = now
        self.listings = listings
        # A host without a reading is one that said nothing: every field of it is unknown.
        self.summary = HostSummary() if record.reading is None else record.reading.summary
        self.errors = self._errors()
        self.state = self._state()
        self.notes = self._notes()
        self.kind, self.reason = self._reason()

    def status(self) -> HostStatus:
        record, summary, now = self.record, self.summary, self.now.monotonic
        next_poll = record.next_poll
        return HostStatus(
            name=record.entry.name,
            address=record.entry.address,
            labels=record.entry.labels,
            state=self.state,
            reason=self.reason,
            reason_kind=self.kind,
            age_seconds=record.age(now),
            answered_at=record.seen_at if record.answered is None else record.answered_at,
            next_poll_seconds=None if next_poll is None else max(0.0, next_poll - now),
            simulated=summary.simulated or record.entry.source == "simulated",
            agent_version=summary.agent_version,
            driver_version=summary.driver_version,
            cuda_version=summary.cuda_version,
            gpu_count=summary.gpu_count,
            cpu_percent=summary.cpu_percent,
            memory_total_mib=summary.memory_total_mib,
            memory_available_mib=summary.memory_available_mib,
            errors=self.errors,
            notes=self.notes,
            gpus=self._gpus(),
        )

    def _state(self) -> HostState:
        record = self.record
        if record.answered is None:
            if record.failure is not None and record.seen_at is not None:
                gone = self.now.wall - record.seen_at
                return "down" if gone > DOWN_AFTER_SECONDS else "stale"
            since_answer = sample_age = None
        else:
            since_answer = self.now.monotonic - record.answered
            sample_age = record.age(record.answered)
        return host_state(
            since_answer,
            sample_age,
            poll_interval=record.expected_every(self.config.poll_interval),
            rpc_timeout=self.config.rpc_timeout,
            sample_interval=self.summary.sample_interval_seconds,
        )

    def _reason(self) -> tuple[str | None, str | None]:
        """Return the short word and the sentence for what is wrong with the host."""
        record, summary = self.record, self.summary
        if self.state == "fresh":
            if record.sampler_error is not None:
                return "no sample", record.sampler_error
            if self.errors:
                return summary.error_kind, self.errors[0]
            if summary.gpu_count == 0:
                return "no GPU", "no GPU: the driver works, but counts no GPU on this host"
            return None, None
        if record.failure is not None:
            return record.failure.kind, record.failure.message
        if record.answered is None:
            return None, "not asked yet"
        age = record.age(self.now.monotonic)
        but = "has no sample yet" if age is None else f"its last sample is {duration(age)} old"
        return "no sample", record.sampler_error or f"no sample: the agent answers, but {but}"

    def _errors(self) -> list[str]:
        told = [] if self.record.sampler_error is None else [self.record.sampler_error]
        return told + self.summary.errors

    def _notes(self) -> list[str]:
        notes = []
        if self.record.answered is None and self.record.seen_at is not None:
            ago = duration(max(0.0, self.now.wall - self.record.seen_at))
            notes.append(f"answered last {ago} ago, before this server was started")
        skew = self._skew()
        if skew is not None and abs(skew) > SKEW_SECONDS:
            notes.append(
                f"its clock is {duration(abs(skew))} {'ahead of' if skew > 0 else 'behind'} this "
                "server's: starts of processes are off by that. Check its time service (chronyd)"
            )
        refused = self.record.refused_lately(self.now) if self.state == "fresh" else None
        if refused is not None:
            ago = duration(max(0.0, self.now.wall - refused.at))
            notes.append(f"a push under its name was refused {ago} ago: {refused.message}")
        twins, count = self.listings.twins(self.record.entry.name, self.summary)
        if twins:
            named = ", ".join(twins)
            if count > len(twins):
                named += f" and {count - len(twins)} more"
            notes.append(
                f"lists the same GPUs as {named}: one machine under two names in hosts, or a "
                "cloned agent. They are counted once"
            )
        reading = self.record.reading
        ends = None if reading is None else reading.certificate_ends
        if (certificate := agent_note(ends, self.now.wall)) is not None:
            notes.append(certificate)
        return notes

    def _skew(self) -> float | None:
        """Return how many seconds the host's clock is ahead of the server's."""
        record = self.record
        if record.answered is None or record.answered_at is None or self.summary.time is None:
            return None
        age = record.age(record.answered)
        return None if age is None else self.summary.time - (record.answered_at - age)

    def _gpus(self) -> list[GpuStatus]:
        record, gpus = self.record, self.summary.gpus
        if record.missing or any(gpu.missing_since is not None for gpu in gpus):
            # These depend on what other hosts list.
            return [self._gpu(gpu) for gpu in gpus if not self._moved(gpu)] + self._missing()
        return self.kept.rows(
            record.entry.name,
            (record.watch, gpus, self.state, self.reason, record.entry.drained, self.config.limits),
            self.now.wall - self.now.monotonic,
            lambda: [self._gpu(gpu) for gpu in gpus],
        )

    def _moved(self, gpu: GpuSummary) -> bool:
        """Return whether the agent misses a GPU that is in another host now."""
        return gpu.missing_since is not None and gpu.uuid in self.listings

    def _gpu(self, gpu: GpuSummary) -> GpuStatus:
        window = self._window(gpu_key(gpu))
        whole = whole_gpu(
            gpu,
            window,
            host=self.state,
            host_reason=self.reason,
            drained=self.record.entry.drained,
            now=self.now.wall,
        )
        named = gpu_state(gpu, window, whole, limits=self.config.limits, now=self.now.wall)
        return _gpu_status(gpu, named, [self._mig(gpu, part, whole) for part in gpu.mig])

    def _mig(self, gpu: GpuSummary, part: MigSummary, whole: Named | None) -> MigStatus:
        window = self._window(mig_key(gpu, part))
        named = mig_state(part, window, whole, limits=self.config.limits, now=self.now.wall)
        return MigStatus(
            index=part.index,
            uuid=part.uuid,
            name=part.name,
            state=named.state,
            reason=named.reason,
            since=named.since,
            since_at_least=named.since_at_least,
            since_at_most=named.since_at_most,
            memory_used_mib=part.memory_used_mib,
            memory_total_mib=part.memory_total_mib,
            holders=part.holders,
        )

    def _window(self, key: str) -> Window:
        watch = self.record.watch
        return Window() if watch is None else watch.window(key, self.now.monotonic)

    def _missing(self) -> list[GpuStatus]:
        rows = []
        for entry in without_a_row(self.record.missing, self.summary):
            if entry.gpu.uuid not in self.listings:
                rows.append(_gpu_status(*self._missing_state(entry), []))
        return rows

    def _missing_state(self, entry: Missing) -> tuple[GpuSummary, Named]:
        """Return what is shown of a GPU that the host no longer lists, and its state."""
        if self.state != "fresh" or self.summary.gpu_count is None:
            # The GPU may well be there: nobody could ask the driver.
            reason = self.reason or "the driver does not tell its GPUs"
            return entry.gpu, Named(state="unknown", reason=reason)
        gpu = entry.gpu
        bare = GpuSummary(
            index=gpu.index,
            uuid=gpu.uuid,
            name=gpu.name,
            memory_total_mib=gpu.memory_total_mib,
            unified_memory=gpu.unified_memory,
        )
        reason = "missing: the driver no longer lists this GPU. Look for XID messages, reboot"
        return bare, Named(state="fault", reason=reason, since=entry.since)


def _gpu_status(gpu: GpuSummary, named: Named, mig: list[MigStatus]) -> GpuStatus:
    return GpuStatus(
        index=gpu.index,
        uuid=gpu.uuid,
        name=gpu.name,
        model=short_model(gpu.name, None if gpu.unified_memory else gpu.memory_total_mib),
        state=named.state,
        reason=named.reason,
        since=named.since,
        since_at_least=named.since_at_least,
        since_at_most=named.since_at_most,
        utilization_percent=gpu.utilization_percent,
        memory_used_mib=gpu.memory_used_mib,
        memory_total_mib=gpu.memory_total_mib,
        unified_memory=gpu.unified_memory,
        temperature_celsius=gpu.temperature_celsius,
        power_draw_watts=gpu.power_draw_watts,
        enforced_power_limit_watts=gpu.enforced_power_limit_watts,
        warnings=gpu.warnings,
        mig_mode=gpu.mig_mode,
        mig=mig,
        holders=_together(gpu) if mig else gpu.holders,
    )


def _together(gpu: GpuSummary) -> list[Holder]:
    """Return the holders of a GPU and of all its instances, one per owner."""
    by_user: dict[str | None, Holder] = {}
    for holder in [*gpu.holders, *(holder for part in gpu.mig for holder in part.holders)]:
        known = by_user.get(holder.user)
        by_user[holder.user] = holder if known is None else _sum(known, holder)
    return list(by_user.values())


def _sum(one: Holder, other: Holder) -> Holder:
    memory = [h.gpu_memory_used_mib for h in (one, other) if h.gpu_memory_used_mib is not None]
    starts = [h.started_at for h in (one, other) if h.started_at is not None]
    since, at_most = earliest(map(on_gpu_since, (one, other)))
    return msgspec.structs.replace(
        one,
        pids=sorted({*one.pids, *other.pids}),
        gpu_memory_used_mib=sum(memory) if memory else None,
        started_at=min(starts, default=None),
        on_gpu_since=None if at_most else since,
        graphics_only=one.graphics_only and other.graphics_only,
    )
