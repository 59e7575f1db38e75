"""The benchmark of the agent runs and prints what it promises. Its figures are not judged here."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, str(ROOT / "bench" / "agent.py"), "--quick", "--no-peers"]


def rows(text: str, title: str) -> list[list[str]]:
    """Return the cells of the table under a title that begins so, header first."""
    _, found, rest = text.partition(f"### {title}")
    assert found, f"no table {title!r} in:\n{text}"
    lines = [line for line in rest.partition("###")[0].splitlines() if line.startswith("|")]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [table[0], *table[2:]]


def test_payload_and_calls_have_a_row_for_each_size_and_a_budget_for_each_promise() -> None:
    only = ["--only", "payload", "--only", "calls"]
    done = subprocess.run([*COMMAND, *only], capture_output=True, text=True, timeout=100)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"command: `python bench/agent.py --quick --no-peers {' '.join(only)}`" in done.stdout
    assert re.search(r"machine: \d+ cores .*\n\* Python \d", done.stdout)
    payload = rows(done.stdout, "Bytes of the answers")
    assert [row[0] for row in payload[1:]] == ["8 x 5", "8 x 40"]
    small, large = (int(row[1]) for row in payload[1:])
    assert 0 < small < large
    assert "has only" not in done.stdout  # every process is in the snapshot
    called = rows(done.stdout, "NVML calls and CPU per sample")
    assert [row[0] for row in called[1:]] == ["8 x 5", "8 x 40"]
    assert all(int(row[1]) > int(row[2]) > 0 for row in called[1:])  # the first asks more
    assert len(rows(done.stdout, "Budgets")) == 1 + 4


def test_answers_have_a_row_for_each_request_in_each_condition() -> None:
    done = subprocess.run(
        [*COMMAND, "--only", "answers"], capture_output=True, text=True, timeout=100
    )

    assert done.returncode == 0, done.stdout + done.stderr
    answers = rows(done.stdout, "Answers of the agent")
    assert len(answers) == 1 + 3 * 4 + 1
    assert all(re.match(r"\d+ \(\d+-\d+\)", row[2]) for row in answers[1:])


def test_a_benchmark_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--only", "growth"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        begin = time.monotonic()
        while not (started := family(process.pid)) or len(started) < 162:
            assert process.poll() is None
            assert time.monotonic() - begin < 60, f"only {len(started)} processes"
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    deadline = time.monotonic() + 15
    while left := [pid for pid in started if alive(pid)]:
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.05)


def family(pid: int) -> list[int]:
    """Return all descendants of a process."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [one for child in map(int, children) for one in (child, *family(child))]


def alive(pid: int) -> bool:
    """Return whether a process is there and has not ended (a zombie has)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        os.kill(pid, 0)
    except OSError:
        return False
    return state != "Z"
