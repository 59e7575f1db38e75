"""The poller against the load lab of bench/fleet.py: every kind of broken host at once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "bench"))

from fleet_cost.lab import FAULTS, lab, measured

REASONS = {
    "healthy": "fresh",
    "hung": "never: timed out",
    "blackholed": "never: timed out",
    "refused": "never: refused",
    "garbage": "never: bad answer",
    "oversized": "never: bad answer",
    "bomb": "never: bad answer",
    "dripping": "never: timed out",
    "growing": "fresh",
}
"""What the page says of each kind; a growing host is sound until it is over the limit."""


@pytest.mark.system
def test_of_200_hosts_the_healthy_are_fresh_and_each_bad_one_says_why(tmp_path):
    with lab() as agents:
        hosts = agents.hosts(200, FAULTS)
        assert {kind for *_, kind in hosts} == set(REASONS)
        *_, last = measured("poller_child.py", tmp_path, hosts, interval=2.0, timeout=1.0, rounds=4)
    assert {kind: list(words) for kind, words in last["states"].items()} == {
        kind: [words] for kind, words in REASONS.items()
    }
    assert last["seen"] < 2.0, "all healthy hosts were read at once"
    assert last["over"] < 1.0 + 1.0, "the first sweep ends with the deadline of its last poll"
    assert last["oldest"] < 2 * 2.0


@pytest.mark.system
def test_a_host_that_grows_is_refused_when_it_is_over_the_limit(tmp_path):
    with lab() as agents:
        hosts = agents.hosts(4, {"growing": 0.5})
        # A quarter of a MiB a second, up to 2 MiB; stale 3 s after the last good answer.
        *_, last = measured("poller_child.py", tmp_path, hosts, interval=1.0, rounds=16)
    assert last["states"] == {"healthy": {"fresh": 2}, "growing": {"stale: bad answer": 2}}


@pytest.mark.system
def test_with_fewer_files_than_hosts_all_are_read_again_and_again(tmp_path):
    with lab() as agents:
        hosts = agents.hosts(600, {"hung": 0.1})
        *_, last = measured(
            "poller_child.py", tmp_path, hosts, interval=2.0, timeout=1.0, rounds=6, files=220
        )
    assert last["states"]["healthy"] == {"fresh": 540}
    assert last["oldest"] < 3 * 2.0
