"""Whether memory grows: many samples without a pause, while processes come and go."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from agent_cost import children
from agent_cost.agent_process import Agent, agent
from agent_cost.children import Trouble
from agent_cost.settings import Settings
from agent_cost.table import Budget, Result, Table
from agent_cost.world import World, world

SIZE = 20
REPLACED = 8
"""Processes that are replaced at each step."""
STEPS = 100
METHODS = ("poll", "snapshot_json", "snapshot", "gpu_stats")
"""Asked at each step, so that every form of an answer is made."""
STEP_SECONDS = 30.0
MOST_MIB_A_THOUSAND = 0.1
ENOUGH_SAMPLES = 10_000
"""With fewer, what the C library keeps for itself and gives back hides any slope that matters."""
MOST_RSS_MIB = 75.0
SOME_FILES = 10
"""A connection may just be closing when its file is counted."""


class Step(NamedTuple):
    """After so many samples: memory, MB RSS, and open files of the parent."""

    samples: int
    parent: float
    sampler: float
    files: int

    @property
    def both(self) -> float:
        return self.parent + self.sampler


def run(settings: Settings) -> Result:
    """Watch one agent through all samples."""
    settings.say(f"growth: {settings.growth_samples} samples")
    quick = str(Path(__file__).with_name("quick_agent.py"))
    with (
        world(settings.folder, SIZE) as host,
        agent(host, 0.5, [settings.own.python, "-I", quick]) as real,
    ):
        rows = _watch(settings, host, real)
    return _result(host, rows)


def _watch(settings: Settings, host: World, real: Agent) -> list[Step]:
    rows = []
    sampler = real.sampler_pid()
    for step in range(1, STEPS + 1):
        host.replace(REPLACED)
        deadline = time.monotonic() + STEP_SECONDS
        while real.samples() < step * settings.growth_samples // STEPS:
            if time.monotonic() > deadline:
                raise Trouble("the agent takes no more samples")
            time.sleep(0.01)
        for method in METHODS:
            real.call(method)
        if real.sampler_pid() != sampler:
            raise Trouble("the sampler was replaced")
        rows.append(
            Step(
                real.samples(),
                children.rss_mib(real.pid),
                children.rss_mib(sampler),
                children.open_files(real.pid),
            )
        )
    return rows


def _result(host: World, rows: list[Step]) -> Result:
    # The first tenth is warming up: first answers, first sight of everything.
    first, middle, last = rows[len(rows) // 10], rows[len(rows) // 2], rows[-1]
    table = Table(
        f"Growth, {host.name} processes, {REPLACED} of them replaced at each of {STEPS} steps",
        [
            "what",
            *(f"after {row.samples} samples" for row in (first, middle, last)),
            "slope per 1,000 samples",
            "slope of the second half",
        ],
        notes=[
            "Samples follow each other without a pause (real Supervisor and sampler); at each step "
            f"{', '.join(METHODS)} are asked once.",
        ],
    )
    warm, late = rows[len(rows) // 10 :], rows[len(rows) // 2 :]
    slopes = {}
    for name, title, digits in (
        ("parent", "parent, MB RSS", 1),
        ("sampler", "sampler, MB RSS", 1),
        ("both", "both, MB RSS", 1),
        ("files", "parent, open files", 0),
    ):
        slopes[name] = _slope(late, name)
        table.add(
            title,
            *(f"{getattr(row, name):.{digits}f}" for row in (first, middle, last)),
            f"{_slope(warm, name):+.3f}",
            f"{slopes[name]:+.3f}",
        )
    budgets = [
        Budget(
            "open files of the agent, whose clients have all left",
            "no growth",
            f"{first.files} to {last.files}",
            last.files - first.files < SOME_FILES,
        ),
        Budget(
            f"memory after {last.samples} samples, {host.name}",
            f"<= {MOST_RSS_MIB:.0f} MB RSS",
            f"{last.both:.0f} MB",
            last.both <= MOST_RSS_MIB,
        ),
    ]
    if last.samples >= ENOUGH_SAMPLES:
        growth = Budget(
            "growth of agent and sampler",
            f"none (< {MOST_MIB_A_THOUSAND} MB per 1,000 samples in the second half)",
            f"{slopes['both']:+.3f} MB",
            slopes["both"] < MOST_MIB_A_THOUSAND,
        )
        budgets.insert(0, growth)
    else:
        table.notes.append(
            f"Fewer than {ENOUGH_SAMPLES} samples can't tell growth from noise: no verdict on it."
        )
    return Result([table], budgets)


def _slope(steps: Sequence[Step], name: str) -> float:
    """Return the growth per 1,000 samples: a straight line's, by least squares."""
    samples = [step.samples for step in steps]
    return 1000 * statistics.linear_regression(samples, [getattr(s, name) for s in steps]).slope
