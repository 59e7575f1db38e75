"""Checks run side by side, and a broken one costs its own line."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from gpumon.commands.doctor.finding import Check, Finding, ok
from gpumon.commands.doctor.runner import run_checks


def fine() -> Iterator[Finding]:
    yield ok("fine", "well")


def broken() -> Iterator[Finding]:
    yield ok("broken", "so far")
    raise ZeroDivisionError("by \x1b[31mzero")


def levels(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.check, finding.level) for finding in findings]


def test_a_check_that_fails_costs_its_own_line_and_keeps_what_it_found():
    found = run_checks([Check(name="broken", look=broken), Check(name="fine", look=fine)])
    assert levels(found) == [("broken", "ok"), ("broken", "fault"), ("fine", "ok")]
    assert "ZeroDivisionError" in found[1].text
    assert "\x1b" not in found[1].text


def test_checks_that_hang_cost_their_time_once_and_the_others_are_told():
    never = threading.Event()

    def hangs() -> Iterator[Finding]:
        yield ok("hangs", "began")
        never.wait(30)

    began = time.monotonic()
    checks = [Check(name="hangs", look=hangs, seconds=0.3) for _ in range(3)]
    found = run_checks([*checks, Check(name="fine", look=fine)])
    assert time.monotonic() - began < 2
    never.set()
    assert levels(found) == [("hangs", "ok"), ("hangs", "fault")] * 3 + [("fine", "ok")]
    assert "no answer within 0.3 s" in found[1].text
