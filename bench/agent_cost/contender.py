"""Children that take one sample for each line "s": the sampler, the floor, other tools."""

from __future__ import annotations

import contextlib
import os
import select
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fake_nvml.scenario import calls

from agent_cost import children
from agent_cost.children import Trouble
from agent_cost.peers import Peer
from agent_cost.world import World

HERE = Path(__file__).parent
FLOOR = "floor: NVML + /proc"
SAMPLER = "gpumon sampler"

SAMPLE_SECONDS = 30.0
"""How long one sample may take before its contender is given up."""
SETTLE_SECONDS = 0.02
"""Pause after a sample: what the contender does after its answer belongs to its cost."""

_HEADER = struct.Struct(">II")

Reader = Callable[["Contender"], tuple[int, ...]]


class Contender:
    """A running child, and what its samples have cost."""

    def __init__(
        self, name: str, process: subprocess.Popen[bytes], counts: Path, read: Reader
    ) -> None:
        self.name = name
        self.cpu_ms: list[float] = []
        self.sizes: tuple[int, ...] = ()
        """Bytes of the parts of its last answer."""
        self.trouble: str | None = None
        """Why it is not measured any more, in words."""
        self.nvml_calls = 0
        """Of its last sample."""
        self._process = process
        self.counts = counts
        self._read = read

    @property
    def pid(self) -> int:
        return self._process.pid

    def measure(self, samples: int) -> None:
        """Take samples and note the mean cost of one; a contender that fails is left out."""
        if self.trouble is not None:
            return
        try:
            begin = children.cpu_seconds(self.pid)
            for _ in range(samples):
                self.sample()
            used = children.cpu_seconds(self.pid) - begin
        except (Trouble, OSError) as error:
            self.trouble = str(error)
        else:
            self.cpu_ms.append(1000 * used / samples)

    def warm_up(self, samples: int = 3) -> None:
        """Take samples that don't count: loading, and the first sight of every process."""
        self.measure(samples)
        self.cpu_ms.clear()

    def sample(self) -> None:
        """Take one sample. Raises Trouble or OSError."""
        before = sum(calls(self.counts).values())
        assert self._process.stdin is not None
        self._process.stdin.write(b"s\n")
        self.sizes = self._read(self)
        time.sleep(SETTLE_SECONDS)
        self.nvml_calls = sum(calls(self.counts).values()) - before

    def rss_mib(self) -> float | None:
        """Return its resident memory, None when it has ended."""
        with contextlib.suppress(Trouble):
            return children.rss_mib(self.pid)
        return None

    def read(self, enough: Callable[[bytes], bool]) -> bytes:
        """Return what it writes until that is `enough`. Raises Trouble."""
        assert self._process.stdout is not None
        fd, data = self._process.stdout.fileno(), b""
        deadline = time.monotonic() + SAMPLE_SECONDS
        while not enough(data):
            ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise Trouble(f"no sample within {SAMPLE_SECONDS:.0f} s")
            part = os.read(fd, 1 << 20)
            if not part:
                raise Trouble("it ended")
            data += part
        return data


def _frame(contender: Contender) -> tuple[int, ...]:
    """Read a frame of the sampler's; return the bytes of snapshot and summary."""

    def whole(data: bytes) -> bool:
        return len(data) >= _HEADER.size + sum(_lengths(data))

    return _lengths(contender.read(whole))


def _lengths(data: bytes) -> tuple[int, ...]:
    # Without the header nothing is whole: then as much is wanted as it could announce.
    return _HEADER.unpack_from(data) if len(data) >= _HEADER.size else (2**32,)


def _line(contender: Contender) -> tuple[int, ...]:
    return (len(contender.read(lambda data: data.endswith(b"\n"))),)


@contextlib.contextmanager
def contender(name: str, command: list[str], world: World, read: Reader) -> Iterator[Contender]:
    """Run a contender while the block lasts."""
    counts = world.folder / f"calls-{name.replace('/', '-').replace(' ', '-')}"
    counts.unlink(missing_ok=True)
    with children.running(
        command,
        env=children.child_environment(world.scenario, counts),
        cwd=world.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    ) as process:
        yield Contender(name, process, counts, read)


def sampler(world: World, python: str) -> contextlib.AbstractContextManager[Contender]:
    """Run the agent's own sampler, without its parent."""
    command = [python, "-m", "gpumon.collect.sampler", "--interval", "5"]
    return contender(SAMPLER, command, world, _frame)


def floor(world: World, python: str) -> contextlib.AbstractContextManager[Contender]:
    """Run the floor."""
    return contender(FLOOR, [python, "-I", str(HERE / "floor.py")], world, _line)


def counting(world: World, python: str) -> contextlib.AbstractContextManager[Contender]:
    """Run the collector with a clock that goes five seconds forward with each sample."""
    return contender("counting", [python, "-I", str(HERE / "counting_child.py")], world, _line)


def peer(world: World, other: Peer) -> contextlib.AbstractContextManager[Contender]:
    """Run another tool."""
    command = [str(other.python), "-I", str(HERE / "peer.py"), other.name]
    return contender(other.title, command, world, _line)
