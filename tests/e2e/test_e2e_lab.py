"""The tests of the installation keep to themselves: their hosts reach nothing, and they go."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from e2e.e2e_lab import why_not
from e2e.e2e_remains import remains

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

LAB = """
from e2e.e2e_lab import Lab
from e2e.e2e_trees import tree
with Lab(tree("bookworm"), ["one"]) as lab:
    outside = lab.hosts["one"].run("bash", "-c", "echo > /dev/tcp/192.0.2.1/80")
    print("from a host:", outside.stderr.strip().splitlines()[-1])
    outside = lab.inside("bash", "-c", "echo > /dev/tcp/192.0.2.1/80")
    print("from the lab:", outside.stderr.strip().splitlines()[-1])
    lab.hosts["one"].cut()  # what hangs has to go, too
    lab.inside("sh", "-c", "sleep 600 > /dev/null 2>&1 &")
    print("ready", flush=True)
    input()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_test_run_that_is_ended_leaves_no_hosts_behind(how: signal.Signals) -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    before = links()
    run = subprocess.Popen(
        [sys.executable, "-c", LAB],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert run.stdout is not None
    inside: set[str] = set()
    said = [run.stdout.readline() for _ in range(3)]
    tag = f"gpumon-e2e-{run.pid}"
    try:
        assert [line.rpartition(": ")[2] for line in said[:2]] == 2 * ["Network is unreachable\n"]
        assert said[2] == "ready\n"
        assert len(remains(tag)) > 5, "what is to be gone is seen while it is there"
        assert links() == before, "the network of this machine is not touched"
        inside = {str(path.stat().st_ino) for path in Path("/run/netns").glob(f"{tag}*")}
        assert processes_in(inside)
    finally:
        run.send_signal(how)
        run.communicate()
    end = time.monotonic() + 30
    while (left := remains(tag)) and time.monotonic() < end:
        time.sleep(0.2)
    assert left == []
    assert processes_in(inside) == []
    assert links() == before


def processes_in(namespaces: set[str]) -> list[str]:
    """Return the processes in network namespaces, named by their inodes."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(path / "ns/net").rpartition("[")[2].rstrip("]") in namespaces:
                found.append(path.name)
    return found


def links() -> str:
    """Return this machine's links, addresses and routes."""
    asked = [["ip", "-o", "-br", "address"], ["ip", "route"], ["ip", "-6", "route"]]
    return "".join(subprocess.run(one, capture_output=True, text=True).stdout for one in asked)
