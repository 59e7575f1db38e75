"""What goes wrong when people start gpumon: one clear line, the right exit code, no traceback."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commands.running import Command, get, wait_until
from fake_nvml.scenario import Scenario, environment, h100

pytestmark = pytest.mark.system


def _is_one_clear_line(text: str, *words: str) -> bool:
    lines = [line for line in text.splitlines() if line.strip()]
    return len(lines) == 1 and all(word in lines[0] for word in words)


def test_a_machine_without_a_driver_is_told_so_in_one_line(gpumon: Command) -> None:
    done = gpumon("snapshot")
    assert done.returncode == 1
    assert done.stdout == ""
    assert _is_one_clear_line(done.stderr, "gpumon:", "driver"), done.stderr


@pytest.mark.parametrize(
    ("code", "word"), [(9, "driver"), (18, "reboot"), (4, "permission"), (999, "driver")]
)
def test_a_driver_that_cannot_be_used_is_one_line(
    gpumon: Command, tmp_path: Path, code: int, word: str
) -> None:
    scenario = Scenario(gpus=[h100(0)])
    scenario.fail("nvmlInit", code)
    gpumon.env |= environment(scenario.write(tmp_path / "scenario"))
    done = gpumon("snapshot")
    assert done.returncode == 1
    first, *more = done.stderr.splitlines()
    assert _is_one_clear_line(first, word), done.stderr
    # After an upgrade jobs may run on: where pids are the host's, it is told who has GPUs open.
    assert len(more) <= (code == 18), done.stderr
    assert all("GPU" in line and "open" in line for line in more), done.stderr


def test_a_host_without_gpus_is_no_failure(gpumon: Command, tmp_path: Path) -> None:
    gpumon.env |= environment(Scenario().write(tmp_path / "scenario"))
    done = gpumon("snapshot")
    assert done.returncode == 0
    assert "no GPU" in done.stdout or "No GPU" in done.stdout


def test_a_driver_that_never_answers_ends_the_snapshot(gpumon: Command, tmp_path: Path) -> None:
    scenario = Scenario(gpus=[h100(0)])
    scenario.hang("nvmlInit", forever=True)
    gpumon.env |= environment(scenario.write(tmp_path / "scenario"))
    began = time.monotonic()
    done = gpumon("snapshot")
    assert time.monotonic() - began < 45
    assert done.returncode == 1
    assert "not answer" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["up", "web", "demo", "agent"])
def test_a_port_in_use_is_named_with_a_way_out(gpumon: Command, command: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = gpumon(command, "--rpc-port" if command == "agent" else "--web-port", port)
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if line.startswith("gpumon:")]
    assert _is_one_clear_line("\n".join(said), f"port {port}", "in use"), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["up", "web", "agent", "check"])
def test_a_broken_configuration_is_exit_2_with_all_faults(
    gpumon: Command, tmp_path: Path, command: str
) -> None:
    (tmp_path / "config.yml").write_text("web_port: many\nrpc_tiemout: 3\n")
    done = gpumon(command)
    assert done.returncode == 2
    assert "config.yml:1: web_port" in done.stderr
    assert "config.yml:2: rpc_tiemout" in done.stderr
    assert "rpc_timeout" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["up", "web", "agent", "check"])
def test_a_configuration_that_is_not_there_is_exit_2(gpumon: Command, command: str) -> None:
    done = gpumon(command, "--config", "missing.yml")
    assert done.returncode == 2
    assert _is_one_clear_line(done.stderr, "missing.yml"), done.stderr


@pytest.mark.parametrize(
    ("target", "words"), [("> /dev/full", ["output", "No space left"]), (">&-", [])]
)
def test_output_that_cannot_be_written_is_one_line_at_most(
    gpumon: Command, target: str, words: list[str]
) -> None:
    done = gpumon.shell(f"check {target}")
    assert done.returncode == (1 if words else 0), done.stderr
    if words:
        assert _is_one_clear_line(done.stderr, *words), done.stderr
    else:
        assert done.stderr == ""


def test_a_reader_that_has_seen_enough_is_no_failure(gpumon: Command) -> None:
    done = gpumon.shell("check | head -1; echo ${PIPESTATUS[0]}")
    assert done.stdout.splitlines()[1:] == ["0"]
    assert done.stderr == ""


def test_a_flag_must_be_written_out(gpumon: Command) -> None:
    done = gpumon("demo", "--web", "8042")
    assert done.returncode == 2
    assert "--web" in done.stderr


def test_a_wrong_command_is_exit_2(gpumon: Command) -> None:
    done = gpumon("upp")
    assert done.returncode == 2
    assert "upp" in done.stderr


def test_a_missing_token_file_stops_the_agent_with_one_line(
    gpumon: Command, tmp_path: Path
) -> None:
    (tmp_path / "config.yml").write_text("token_file: token\n")
    done = gpumon("agent")
    assert done.returncode == 2
    assert _is_one_clear_line(done.stderr, "token"), done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_daemon_ends_with_exit_0_when_it_is_told_to(
    gpumon: Command, free_port: Callable[[], int], number: signal.Signals
) -> None:
    port = free_port()
    process = gpumon.start("demo", "--web-port", str(port))
    wait_until(lambda: bool(get(f"http://127.0.0.1:{port}/healthz")), "the demo answers")
    process.send_signal(number)
    _, err = process.communicate(timeout=15)
    assert process.returncode == 0
    assert "Traceback" not in err


def test_unknown_hosts_and_garbage_are_rows_and_the_server_lives(
    gpumon: Command, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    web_port = free_port()
    base = f"http://127.0.0.1:{web_port}"
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        (tmp_path / "config.yml").write_text(
            f"web_port: {web_port}\nrpc_timeout: 0.5\npoll_interval: 1\nhosts:\n"
            f"  - no-such-host.invalid\n"
            f"  - {{name: closed, address: 127.0.0.1:{free_port()}}}\n"
            f"  - {{name: silent, address: 127.0.0.1:{silent.getsockname()[1]}}}\n"
            f"  - {{name: web-itself, address: 127.0.0.1:{web_port}}}\n"
        )
        gpumon.start("web")
        wait_until(lambda: _all_said(base), "each host's row says what is wrong")


def _all_said(base: str) -> bool:
    hosts = json.loads(get(base + "/status.json"))["hosts"]
    kinds = {host["name"]: host["reason_kind"] for host in hosts}
    return kinds == {
        "no-such-host.invalid": "name not found",
        "closed": "refused",
        "silent": "timed out",
        "web-itself": "bad answer",
    }


def test_a_missing_token_file_stops_the_server_with_one_line(
    gpumon: Command, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    (tmp_path / "config.yml").write_text(
        f"web_port: {free_port()}\nhosts: [gpu-01]\ntoken_file: nowhere\n"
        "web: {state_file: seen.json}\n"
    )
    done = gpumon("web", "--config", "config.yml")
    assert done.returncode == 2
    assert _is_one_clear_line(done.stderr, "token_file", "nowhere does not exist"), done.stderr
