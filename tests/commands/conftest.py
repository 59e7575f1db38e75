"""Fixtures of the command tests."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands.running import Command


@pytest.fixture
def gpumon(tmp_path: Path) -> Iterator[Command]:
    command = Command(tmp_path)
    yield command
    command.end_all()


@pytest.fixture
def free_port() -> Callable[[], int]:
    def find() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            return port

    return find
