"""CPU time and memory of sampling, beside the floor and other tools."""

from __future__ import annotations

import contextlib
import statistics
import time
from dataclasses import dataclass, field

from agent_cost import children, contender
from agent_cost.agent_process import SHORTEST_INTERVAL, Agent, agent
from agent_cost.children import Trouble
from agent_cost.contender import Contender
from agent_cost.settings import Settings
from agent_cost.table import Budget, Result, Table, ratio, spread
from agent_cost.world import GPUS, World, world

WINDOW_SAMPLES = 4
"""Samples of the real agent per round."""
INTERVAL = 5.0
"""Seconds between samples by default."""

MOST_RATIO = 2.0
MOST_SHARE_PERCENT = 0.5
MOST_RSS_MIB = 75.0
RSS_SIZE = 20
GPUMONITOR_MS = {5: 5.1, 40: 9.2}
"""CPU ms per answer of gpumonitor's agent on the machine where it was measured; it samples then."""


@dataclass
class Watched:
    """What the real agent used per sample, parent and sampler, CPU ms of each round."""

    parent: list[float] = field(default_factory=list)
    sampler: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)
    """The floor's, asked at the same pace."""

    @property
    def both(self) -> list[float]:
        return [parent + sampler for parent, sampler in zip(self.parent, self.sampler, strict=True)]


def run(settings: Settings) -> Result:
    """Measure every size."""
    result = Result()
    for size in settings.sizes:
        settings.say(f"cpu: {GPUS} x {size}")
        with world(settings.folder, size) as host:
            _measure(settings, host, result)
    return result


def _measure(settings: Settings, host: World, result: Result) -> None:
    with contextlib.ExitStack() as stack:
        floor = stack.enter_context(contender.floor(host, settings.own.python))
        own = stack.enter_context(contender.sampler(host, settings.own.python))
        peers = [stack.enter_context(contender.peer(host, peer)) for peer in settings.peers]
        real = stack.enter_context(agent(host, SHORTEST_INTERVAL, [settings.own.gpumon, "agent"]))
        everybody = [floor, own, *peers]
        for one in everybody:
            one.warm_up()
        # Answers that were given once are part of the memory that the agent takes.
        real.call("poll")
        real.call("snapshot_json")
        watched = Watched()
        for _ in range(settings.rounds):
            for one in everybody:
                one.measure(settings.samples)
            _watch(real, floor, watched)
        result.tables.append(_table(host, everybody, real, watched))
        result.budgets += _budgets(host, real, watched)


def _watch(real: Agent, floor: Contender, watched: Watched) -> None:
    """Let the agent work for some samples, and the floor at the same pace."""
    sampler = real.sampler_pid()
    samples, floor_rounds = real.samples(), len(floor.cpu_ms)
    parent_cpu, sampler_cpu = children.cpu_seconds(real.pid), children.cpu_seconds(sampler)
    for _ in range(WINDOW_SAMPLES):
        time.sleep(SHORTEST_INTERVAL)
        floor.measure(1)
    parent_cpu = children.cpu_seconds(real.pid) - parent_cpu
    sampler_cpu = children.cpu_seconds(sampler) - sampler_cpu
    samples = real.samples() - samples
    if samples == 0:
        raise Trouble("the agent takes no samples")
    if floor.trouble is not None:
        raise Trouble(f"the floor failed: {floor.trouble}")
    slow, floor.cpu_ms = floor.cpu_ms[floor_rounds:], floor.cpu_ms[:floor_rounds]
    watched.parent.append(1000 * parent_cpu / samples)
    watched.sampler.append(1000 * sampler_cpu / samples)
    watched.floor.append(statistics.mean(slow))


def _table(host: World, everybody: list[Contender], real: Agent, watched: Watched) -> Table:
    floor, own = everybody[:2]
    table = Table(
        f"CPU and memory of a sample, {host.name} processes",
        [
            "what",
            "CPU ms per sample",
            "of the floor",
            "of the sampler",
            "NVML calls",
            "RSS MB",
            "PSS MB",
        ],
        notes=[
            f"Each sample is followed by a pause of {contender.SETTLE_SECONDS * 1000:.0f} ms.",
            f"The whole agent, and the floor beside it, take one sample per {SHORTEST_INTERVAL} s: "
            "after a pause the processor's caches are cold and everything costs more.",
        ],
    )
    for one in everybody:
        if one.trouble is not None:
            table.add(one.name, f"failed: {one.trouble}", None, None, None, None, None)
            continue
        table.add(
            one.name,
            spread(one.cpu_ms),
            ratio(one.cpu_ms, floor.cpu_ms),
            ratio(one.cpu_ms, own.cpu_ms),
            one.nvml_calls,
            _mib(one.rss_mib()),
            _mib(children.pss_mib(one.pid)),
        )
    slow = f"at one sample per {SHORTEST_INTERVAL} s"
    sampler = real.sampler_pid()
    for what, cpu, pids in (
        (f"{contender.FLOOR}, {slow}", watched.floor, []),
        (f"gpumon agent {slow}: sampler", watched.sampler, [sampler]),
        (f"gpumon agent {slow}: parent", watched.parent, [real.pid]),
        (f"**gpumon agent {slow}: both**", watched.both, [real.pid, sampler]),
    ):
        table.add(
            what,
            spread(cpu),
            ratio(cpu, watched.floor),
            ratio(cpu, watched.sampler),
            None,
            _mib(sum(children.rss_mib(pid) for pid in pids) or None),
            _mib(sum(children.pss_mib(pid) or 0.0 for pid in pids) or None),
        )
    share = statistics.median(watched.both) / INTERVAL / 10
    table.notes.append(f"At one sample per {INTERVAL:.0f} s that is {share:.2f} % of a core.")
    return table


def _budgets(host: World, real: Agent, watched: Watched) -> list[Budget]:
    both, floor = statistics.median(watched.both), statistics.median(watched.floor)
    found = both / floor
    share = both / INTERVAL / 10
    budgets = [
        Budget(
            f"CPU of a sample, {host.name}, agent with sampler",
            f"<= {MOST_RATIO:.0f}x the floor",
            f"{found:.2f}x ({both:.2f} ms)",
            found <= MOST_RATIO,
        ),
        Budget(
            f"share of a core, {host.name}, a sample per {INTERVAL:.0f} s",
            f"<= {MOST_SHARE_PERCENT} %",
            f"{share:.2f} %",
            share <= MOST_SHARE_PERCENT,
        ),
    ]
    other = GPUMONITOR_MS.get(host.per_gpu)
    if other is not None:
        budgets.append(
            Budget(
                f"CPU of a sample, {host.name} (absolute, from another machine)",
                f"<= gpumonitor's {other} ms",
                f"{both:.2f} ms",
                both <= other,
            )
        )
    if host.per_gpu == RSS_SIZE:
        rss = children.rss_mib(real.pid) + children.rss_mib(real.sampler_pid())
        budgets.append(
            Budget(
                f"memory of agent and sampler, {host.name}",
                f"<= {MOST_RSS_MIB:.0f} MB RSS",
                f"{rss:.0f} MB",
                rss <= MOST_RSS_MIB,
            )
        )
    return budgets


def _mib(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"
