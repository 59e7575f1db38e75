"""What the agent costs: CPU, memory, NVML calls, bytes, answers per second.

    python bench/agent.py [--quick] [--only SECTION] [--no-peers]

Everything is measured on the fake NVML with real processes, beside the least that the same work can
cost (the "floor") and beside other tools, in the same run. The tables go to standard output as
Markdown. What they mean stands in bench/README.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from agent_cost import (
    installed,
    machine,
    peers,
    section_answers,
    section_calls,
    section_commands,
    section_cpu,
    section_growth,
    section_payload,
)
from agent_cost.children import Trouble
from agent_cost.settings import Settings, quick
from agent_cost.table import Budget, budget_table

SECTIONS = {
    "cpu": section_cpu.run,
    "calls": section_calls.run,
    "payload": section_payload.run,
    "answers": section_answers.run,
    "growth": section_growth.run,
    "commands": section_commands.run,
}
WITH_PEERS = ("cpu", "commands")


def main(arguments: list[str]) -> int:
    """Measure and print; return 1 when a section could not be measured."""
    options = _parser().parse_args(arguments)
    # An end from outside must run the clean-up, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wanted = options.only or list(SECTIONS)
    print(machine.heading(["python", "bench/agent.py", *arguments]), flush=True)
    with tempfile.TemporaryDirectory(prefix="gpumon-bench-") as folder:
        settings = Settings(folder=Path(folder), own=installed.install(Path(folder, "installed")))
        missing: list[str] = []
        if options.peers and any(section in WITH_PEERS for section in wanted):
            found, missing = peers.install(settings.say)
            settings = dataclasses.replace(settings, peers=found)
        return _measure(wanted, quick(settings) if options.quick else settings, missing)


def _measure(wanted: list[str], settings: Settings, missing: list[str]) -> int:
    code = 0
    budgets: list[Budget] = []
    for name in wanted:
        try:
            result = SECTIONS[name](settings)
        except (Trouble, OSError, subprocess.SubprocessError) as error:
            print(f"### {name}: could not be measured\n\n* {error}\n", flush=True)
            code = 1
            continue
        for table in result.tables:
            print(table.markdown(), flush=True)
        budgets += result.budgets
    for sentence in missing:
        print(f"* {sentence}\n")
    if budgets:
        print(budget_table(budgets).markdown())
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure what the agent costs.")
    parser.add_argument("--quick", action="store_true", help="about a minute, rougher figures")
    parser.add_argument(
        "--only", action="append", choices=list(SECTIONS), help="this section; may be given again"
    )
    parser.add_argument(
        "--peers",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="measure other tools as well; they are installed with pip where they are not yet",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
