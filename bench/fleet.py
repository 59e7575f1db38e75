"""What the server's poller costs, and what broken hosts do to the healthy ones.

    python bench/fleet.py [--quick] [--only SECTION]

Thousands of simulated agents on loopback addresses of this machine answer with the bytes of real
ones; the poller is the one that `gpumon web` runs. Beside it, in the same run, two other ways to
poll. The tables go to standard output as Markdown. What they mean stands in bench/README.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import platform
import resource
import shlex
import signal
import sys
import tempfile
import time
from pathlib import Path

from agent_cost.children import Trouble
from agent_cost.machine import cpu_name
from agent_cost.table import Budget, budget_table
from fleet_cost.lab import lab
from fleet_cost.sections import SECTIONS, Settings

MOST_OF_THE_FILES = 0.8


def main(arguments: list[str]) -> int:
    """Measure and print; return 1 when a section could not be measured."""
    options = _parser().parse_args(arguments)
    # An end from outside must run the clean-up, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(_heading(["python", "bench/fleet.py", *arguments]), flush=True)
    with tempfile.TemporaryDirectory(prefix="gpumon-bench-") as folder:
        settings = Settings(folder=Path(folder))
        if options.quick:
            settings = dataclasses.replace(settings, rounds=2, other_rounds=1, large=3000)
        return _measure(options.only or list(SECTIONS), _within_the_limit(settings))


def _within_the_limit(settings: Settings) -> Settings:
    """Return settings for no more hosts than this machine lets a process have open files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard * MOST_OF_THE_FILES >= settings.large:
        return settings
    large = int(hard * MOST_OF_THE_FILES) // 1000 * 1000
    print(f"* {hard} open files are allowed here (ulimit -Hn): {large} hosts instead of "
          f"{settings.large}\n", flush=True)  # fmt: skip
    return dataclasses.replace(settings, large=large)


def _measure(wanted: list[str], settings: Settings) -> int:
    code = 0
    budgets: list[Budget] = []
    for name in wanted:
        print(f"bench: {name}", file=sys.stderr, flush=True)
        try:
            with lab() as agents:
                result = SECTIONS[name](agents, settings)
        except (Trouble, OSError) as error:
            print(f"### {name}: could not be measured\n\n* {error}\n", flush=True)
            code = 1
            continue
        for table in result.tables:
            print(table.markdown(), flush=True)
        budgets += result.budgets
    if budgets:
        print(budget_table(budgets).markdown())
    return code


def _heading(command: list[str]) -> str:
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    return "\n".join(
        [
            "# What the poller costs",
            "",
            f"* command: `{shlex.join(command)}`, {time.strftime('%Y-%m-%d %H:%M')}",
            f"* machine: {len(os.sched_getaffinity(0))} cores ({cpu_name()}), "
            f"{platform.system()} {platform.release()}, load at the start {load}",
            f"* Python {platform.python_version()}",
            "* figures are medians of rounds, with (lowest-highest); absolute ones differ from "
            "machine to machine, ratios hardly",
            "",
        ]
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure what the server's poller costs.")
    parser.add_argument("--quick", action="store_true", help="two minutes, rougher and smaller")
    parser.add_argument(
        "--only", action="append", choices=list(SECTIONS), help="this section; may be given again"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
