"""The command itself: arguments, output, exit code."""

from __future__ import annotations

import argparse
import json
import logging
from collections import Counter

import msgspec

from gpumon.commands.check import examine
from gpumon.commands.doctor.checks import checks_of, parts_of
from gpumon.commands.doctor.finding import Finding
from gpumon.commands.doctor.runner import run_checks
from gpumon.text import clean

LONGEST = 600


def run(arguments: argparse.Namespace) -> int:
    """Print what the checks found; 1 when something does not work, else 0."""
    # What a check has to say stands in its lines.
    logging.disable(logging.ERROR)
    try:
        report = examine(arguments.config)
        parts = parts_of(report.config, agent=arguments.agent, server=arguments.server)
        findings = run_checks(checks_of(report, parts, arguments.url))
    finally:
        logging.disable(logging.NOTSET)
    levels = Counter(finding.level for finding in findings)
    if arguments.json:
        rows = [msgspec.to_builtins(_cleaned(finding)) for finding in findings]
        print(json.dumps({"ok": levels["fault"] == 0, "findings": rows}, indent=2))
    else:
        _write(findings)
        print(f"{levels['ok']} ok, {_count(levels['warning'], 'warning')}, ", end="")
        print(_count(levels["fault"], "fault"))
    return 1 if levels["fault"] else 0


def _write(findings: list[Finding]) -> None:
    width = max(len(finding.check) for finding in findings)
    for finding in map(_cleaned, findings):
        print(f"{finding.level:<8} {finding.check:<{width}}  {finding.text}")
        if finding.cure is not None:
            print(f"{'':<8} {'':<{width}}  -> {finding.cure}")


def _cleaned(finding: Finding) -> Finding:
    """Foreign text is in it: names, and what other machines say."""
    cure = None if finding.cure is None else clean(finding.cure, LONGEST)
    return msgspec.structs.replace(finding, text=clean(finding.text, LONGEST), cure=cure)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
