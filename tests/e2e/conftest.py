"""Hosts for the tests of the installation; where there can be none, the reason is said once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from e2e.e2e_cluster import Cluster
from e2e.e2e_lab import Lab, why_not
from e2e.e2e_remains import remains
from e2e.e2e_trees import tree


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reason = why_not()
    skipped = terminalreporter.stats.get("skipped", [])
    if reason and any("/e2e/" in str(report.nodeid) for report in skipped):
        terminalreporter.write_line(f"The installation was not tested on real hosts: {reason}.")


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Bare hosts of the module's SUITE: its HOSTS, and SPARE ones that no inventory has yet."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    spare = getattr(request.module, "SPARE", [])
    with Lab(tree(request.module.SUITE), [*request.module.HOSTS, *spare]) as lab:
        found = Cluster(lab, spare)
        found.make_release()
        yield found
    assert remains(lab.tag) == [], "this machine is as it was before"
