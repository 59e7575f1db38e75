"""A host whose driver is the fake NVML, and real processes for it."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_nvml.scenario import Scenario, calls, environment

from gpumon.model import Gpu, HostSnapshot, decode_snapshot

CHILD = Path(__file__).with_name("collector_child.py")
ANSWER_SECONDS = 20.0


class FakeHost:
    """A collector in a child process, and the scenario that its driver plays."""

    def __init__(self, folder: Path, **library: Any) -> None:
        self.scenario = Scenario()
        self._path = folder / "scenario"
        self._calls = folder / "calls"
        self.environment = environment(self._path, self._calls, **library)
        # The tests' own processes are behind the pids, also where the tests run in a container.
        self.environment["GPUMON_PIDS_ARE_MINE"] = "1"
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, *gpus: Any, **options: Any) -> Scenario:
        """Begin anew: an untouched collector on a host with these GPUs. Options as `restart`."""
        self.scenario = Scenario(gpus=list(gpus))
        self.restart(**options)
        return self.scenario

    def restart(
        self,
        *,
        skip: dict[int, dict[str, str]] | None = None,
        kernel_log: Path | None = None,
        state: Path | None = None,
    ) -> None:
        """Put an untouched collector in the place of the one before, which is closed."""
        self.write()
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, str(CHILD)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=self.environment,
            )
        log, kept = (None if path is None else str(path) for path in (kernel_log, state))
        self._ask({"new": {"skip": skip or {}, "kernel_log": log, "state": kept}})

    def write(self) -> None:
        """Put the scenario in force."""
        self.scenario.write(self._path)

    def sample(self, *, later: float = 0.0, wall_step: float = 0.0) -> HostSnapshot:
        """Write the scenario and take a sample, `later` seconds after the one before."""
        self.write()
        return decode_snapshot(self._ask({"later": later, "wall_step": wall_step}))

    def gpu(self, **options: float) -> Gpu:
        """Take a sample and return its first GPU."""
        return self.sample(**options).gpus[0]

    def progress(self) -> list[int]:
        """Return what the collector said of its progress in the last sample."""
        return json.loads(self._ask({"progress": True}))

    def calls(self) -> Counter[tuple[str, int | None]]:
        """Return how often each (function, GPU) was called so far."""
        return calls(self._calls)

    def _ask(self, command: dict[str, Any]) -> bytes:
        assert self._child is not None
        self._child.stdin.write(json.dumps(command).encode() + b"\n")
        self._child.stdin.flush()
        readable, _, _ = select.select([self._child.stdout], [], [], ANSWER_SECONDS)
        assert readable, f"no answer within {ANSWER_SECONDS} s to {command}"
        answer = self._child.stdout.readline()
        assert answer, f"the collector ended with {self._child.wait()}"
        return answer

    def stop(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None


@pytest.fixture(scope="session")
def _session_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeHost]:
    host = FakeHost(tmp_path_factory.mktemp("fake_host"))
    yield host
    host.stop()


@pytest.fixture
def host(_session_host: FakeHost) -> FakeHost:
    """A host with the newest driver; each test begins with `start`."""
    return _session_host


@pytest.fixture
def make_host(tmp_path: Path) -> Iterator[Callable[..., FakeHost]]:
    """Make hosts with other drivers: make_host(driver="470", missing=(...))."""
    made: list[FakeHost] = []

    def make(**library: Any) -> FakeHost:
        folder = tmp_path / f"host{len(made)}"
        folder.mkdir()
        made.append(FakeHost(folder, **library))
        return made[-1]

    yield make
    for host in made:
        host.stop()


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start real processes that live until the end of the test: spawn(argv, executable=...)."""
    started: list[subprocess.Popen[bytes]] = []

    def start(argv: list[str | bytes], **options: Any) -> subprocess.Popen[bytes]:
        options.setdefault("stdin", subprocess.DEVNULL)
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, **options)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


@pytest.fixture
def sleeper(spawn: Callable[..., subprocess.Popen[bytes]]) -> int:
    """The pid of a process that sleeps."""
    return spawn(["sleep", "600"]).pid
