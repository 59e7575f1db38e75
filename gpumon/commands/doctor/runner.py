"""Runs checks side by side. A check that fails or hangs costs its own line."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from gpumon.commands.doctor.finding import Check, Finding, fault
from gpumon.text import clean

REPORT = "Please report it with the output of gpumon doctor"


class _Running:
    """One check in a thread of its own, which nobody waits for at the end."""

    def __init__(self, check: Check) -> None:
        self.check = check
        self.found: list[Finding] = []
        self.error: str | None = None
        self.began = time.monotonic()
        self.thread = threading.Thread(target=self._run, name=check.name, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            for finding in self.check.look():
                self.found.append(finding)
        except Exception as error:  # the boundary to whatever a broken machine has for us
            self.error = clean(f"{type(error).__name__}: {error}", 200)

    def findings(self) -> list[Finding]:
        """Wait until the check has ended or its time is over; return what there is."""
        name, seconds = self.check.name, self.check.seconds
        self.thread.join(max(0.0, self.began + seconds - time.monotonic()))
        found = list(self.found)
        if self.thread.is_alive():
            return [*found, fault(name, f"no answer within {seconds:g} s", _HANGS)]
        if self.error is not None:
            return [*found, fault(name, f"the check itself failed ({self.error})", REPORT)]
        return found


_HANGS = "Something that it asks hangs: a driver, a file system, a name server. See dmesg"


def run_checks(checks: Iterable[Check]) -> list[Finding]:
    """Return what all checks find, in their order. Takes as long as the slowest is allowed to."""
    running = [_Running(check) for check in checks]
    return [finding for one in running for finding in one.findings()]
