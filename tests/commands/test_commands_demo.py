"""`gpumon demo`: an invented cluster that nobody can take for a real one."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from commands.running import Command, get, wait_until

pytestmark = pytest.mark.system


def test_the_demo_is_marked_simulated_on_every_face(
    gpumon: Command, free_port: Callable[[], int]
) -> None:
    base = f"http://127.0.0.1:{(port := free_port())}"
    gpumon.start("demo", "--web-port", str(port))
    wait_until(lambda: "free" in get(base + "/"), "the demo answers")
    assert "SIMULATED" in get(base + "/", accept="text/html")
    assert "SIMULATED" in get(base + "/")
    assert "SIMULATED" in get(base + "/status.txt")
    status = json.loads(get(base + "/status.json"))
    assert status["simulated"] is True
    host = status["hosts"][0]["name"]
    assert "SIMULATED" in get(f"{base}/host/{host}", accept="text/html")
    assert json.loads(get(f"{base}/host/{host}.json"))["simulated"] is True
    user = next(user["user"] for user in status["users"] if user["user"])
    assert "SIMULATED" in get(f"{base}/user/{user}", accept="text/html")


def test_the_demo_shows_every_state_at_once(gpumon: Command, free_port: Callable[[], int]) -> None:
    base = f"http://127.0.0.1:{(port := free_port())}"
    gpumon.start("demo", "--web-port", str(port))

    def complete() -> bool:
        hosts = json.loads(get(base + "/status.json"))["hosts"]
        return sum(host["state"] == "fresh" for host in hosts) >= 5

    wait_until(complete, "five hosts are fresh")
    status = json.loads(get(base + "/status.json"))
    counts = status["totals"]["gpus"]
    assert len(status["hosts"]) == 7
    for state in ("free", "busy", "idle", "fault"):
        assert counts[state] > 0, state
    assert any(host["state"] == "never" and host["reason"] for host in status["hosts"])


def test_the_number_of_hosts_is_free(gpumon: Command, free_port: Callable[[], int]) -> None:
    base = f"http://127.0.0.1:{(port := free_port())}"
    gpumon.start("demo", "--hosts", "30", "--web-port", str(port))
    wait_until(
        lambda: len(json.loads(get(base + "/status.json"))["hosts"]) == 30, "30 hosts are there"
    )


@pytest.mark.parametrize("count", ["0", "-1", "many", "1.5"])
def test_a_wrong_number_of_hosts_is_wrong_use(gpumon: Command, count: str) -> None:
    done = gpumon("demo", "--hosts", count)
    assert done.returncode == 2
    assert f'expected a number from 1 to 100000, found "{count}"' in done.stderr
    assert "Traceback" not in done.stderr
