"""Words to systemd: ready, alive, stopping."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands.running import Command

from gpumon.agent.latest import NOT_YET, Latest
from gpumon.commands.liveness import FIRST_SAMPLE_SECONDS, of_agent
from gpumon.commands.notify import Notifier, beat


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket on which a service manager listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(10)
        yield listener


def heard(listener: socket.socket) -> list[str]:
    return listener.recv(4096).decode().splitlines()


def environ(listener: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": listener.getsockname(), **more}


def test_without_a_service_manager_nothing_is_said() -> None:
    assert not Notifier({})
    Notifier({}).tell("READY=1")


def test_an_abstract_socket_is_told_too() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0gpumon-test-{os.getpid()}")
        listener.settimeout(10)
        Notifier({"NOTIFY_SOCKET": f"@gpumon-test-{os.getpid()}"}).tell("READY=1", "STATUS=well")
        assert heard(listener) == ["READY=1", "STATUS=well"]


def test_a_manager_that_is_gone_is_a_line_in_the_log_and_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).tell("WATCHDOG=1")
    assert "WATCHDOG=1" in caplog.text


def test_the_watchdog_of_another_process_is_not_ours() -> None:
    assert Notifier({"WATCHDOG_USEC": "30000000"}).watchdog_seconds == 30
    ours = {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}
    assert Notifier(ours).watchdog_seconds == 30
    assert Notifier({**ours, "WATCHDOG_PID": "1"}).watchdog_seconds is None
    for nonsense in ("", "0", "soon"):
        assert Notifier({"WATCHDOG_USEC": nonsense}).watchdog_seconds is None


def test_it_says_ready_then_beats_then_says_stopping(manager: socket.socket) -> None:
    notifier = Notifier(environ(manager, WATCHDOG_USEC="30000"))

    async def run() -> None:
        task = asyncio.create_task(beat(notifier, lambda: True, lambda: "a sample every 5 s"))
        assert await asyncio.to_thread(heard, manager) == ["READY=1", "STATUS=a sample every 5 s"]
        assert "WATCHDOG=1" in await asyncio.to_thread(heard, manager)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(run())
    told: list[str] = []
    while "STOPPING=1" not in told:
        told += heard(manager)


def test_where_the_work_does_not_go_on_there_is_no_beat(manager: socket.socket) -> None:
    notifier = Notifier(environ(manager, WATCHDOG_USEC="30000"))

    async def run() -> list[str]:
        task = asyncio.create_task(beat(notifier, lambda: False, lambda: "a sample every 5 s"))
        told = [line for _ in range(4) for line in await asyncio.to_thread(heard, manager)]
        task.cancel()
        return told

    told = asyncio.run(run())
    assert "WATCHDOG=1" not in told
    assert any("no sign of life" in line for line in told)


def latest(*, taken_at: float | None, error: str | None) -> Latest:
    return Latest(revision="x-1", interval=5.0, taken_at=taken_at, sampler_error=error)


@pytest.mark.parametrize(
    ("taken_at", "error", "now", "alive"),
    [
        (100.0, None, 105.0, True),
        (100.0, None, 200.0, False),
        (100.0, "the driver hangs", 9000.0, True),
        (None, NOT_YET, FIRST_SAMPLE_SECONDS - 1, True),
        (None, NOT_YET, FIRST_SAMPLE_SECONDS + 1, False),
        (None, "no driver", 9000.0, True),
    ],
    ids=["samples", "stuck", "driver hangs", "beginning", "stuck from the start", "no driver"],
)
def test_an_agent_is_alive_while_it_samples_or_says_why_not(
    taken_at: float | None, error: str | None, now: float, alive: bool
) -> None:
    times = iter([0.0, now])
    work = of_agent(lambda: latest(taken_at=taken_at, error=error), clock=lambda: next(times))
    assert work.alive() is alive


@pytest.mark.system
@pytest.mark.parametrize("command", ["agent", "web"])
def test_a_daemon_says_ready_when_it_answers_and_stopping_at_its_end(
    command: str, gpumon: Command, manager: socket.socket, free_port: Callable[[], int]
) -> None:
    gpumon.env |= environ(manager, WATCHDOG_USEC="300000")
    (gpumon.folder / "config.yml").write_text("hosts: []\n")
    port = free_port()
    flag = {"agent": "--rpc-port", "web": "--web-port"}[command]
    process = gpumon.start(command, flag, str(port))
    assert "READY=1" in heard(manager)
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        pass
    assert "WATCHDOG=1" in heard(manager)
    code, _ = gpumon.stop(process)
    assert code == 0
    told: list[str] = []
    while "STOPPING=1" not in told:
        told += heard(manager)
