"""One sampler process: started, asked, ended. What it may do wrong becomes a sentence."""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import signal
import struct
import sys
import tempfile
import time
from collections import deque
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import msgspec

from gpumon.agent.latest import SkippedGpu
from gpumon.config import AgentConfig
from gpumon.model import HostSnapshot, decode_snapshot, encode, splice
from gpumon.summary import HostSummary, decode_summary
from gpumon.text import clean

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_FRAME_BYTES = 32 * 1024 * 1024
KILL_SECONDS = 1.0
"""How long a killed process may take to be gone before it counts as stuck in the driver."""
CLOSE_SECONDS = 3.0
LINE_CHARACTERS = 500
LINES_A_MINUTE = 30
LAST_WORDS_CHARACTERS = 200

_HEADER = struct.Struct(">II")
_PROGRESS = struct.Struct("<i")


class Frame(NamedTuple):
    """One sample as the sampler sent it, taken apart."""

    snapshot: HostSnapshot
    summary: HostSummary


HUNG = (
    "look for NVRM and Xid lines in the kernel log (dmesg); a reset of the GPU or a reboot of the "
    "host ends it"
)
FAILED = (
    "it is started again by itself; if it goes on, look at the kernel log (dmesg) and at the "
    "agent's log (journalctl -u gpumon-agent)"
)
NOT_STARTED = (
    "check that gpumon's installation is whole, the host's free memory, and how many processes the "
    "agent may have (TasksMax=)"
)
"""What to do, behind the sentence that says what happened."""


class SamplerFailed(Exception):
    """A sampler gave no sample. `what` is a sentence with the time; the message has advice too.

    `gpu` is the index of the GPU that it was reading when it hung or crashed; None: none, or it is
    not known.
    """

    def __init__(self, what: str, gpu: int | None = None, advice: str = FAILED) -> None:
        super().__init__(f"{what}; {advice}")
        self.what = what
        self.gpu = gpu


def sampler_command(config: AgentConfig | None = None) -> list[str]:
    """Return the command of the real sampler, with the options that the configuration asks for."""
    command = [sys.executable, "-m", "gpumon.collect.sampler"]
    if config is None:
        return command
    if (state := _state_file(config)) is not None:
        command += ["--state-file", state]
    if config.owner_rules or config.container_socket is not None:
        socket = None if config.container_socket is None else str(config.container_socket)
        owners = encode({"rules": config.owner_rules, "container_socket": socket})
        command += ["--owners", owners.decode()]
    return command


def _state_file(config: AgentConfig) -> str | None:
    """Return where the sampler keeps its memory: as configured, else in systemd's place for it."""
    if config.state_file is not None:
        return str(config.state_file)
    folder = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    return os.path.join(folder, "health.json") if folder else None


class Child:
    """A running sampler. Made by `start`; every path ends in `close` or `kill`."""

    def __init__(
        self, process: asyncio.subprocess.Process, progress: mmap.mmap, skipped: frozenset[int]
    ) -> None:
        self._process = process
        self._progress = progress
        self._heard: deque[str] = deque(maxlen=1)
        self._relay = asyncio.create_task(_relay(process, self._heard))
        self.skipped = skipped
        self.pid = process.pid
        self.asked = False
        """Whether it was asked for a sample before: the first takes longer."""

    @classmethod
    async def start(
        cls, command: list[str], interval: float, skip: Iterable[SkippedGpu] = ()
    ) -> Child:
        """Start a sampler that leaves the GPUs in `skip` alone. Raises SamplerFailed."""
        skip = list(skip)
        arguments = [*command, "--interval", f"{interval:g}"]
        if skip:
            arguments += ["--skip", _skip_option(skip)]
        try:
            progress = _shared_integer()
            try:
                shared = mmap.mmap(progress, _PROGRESS.size)
                process = await asyncio.create_subprocess_exec(
                    *arguments,
                    "--progress-fd",
                    str(progress),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    pass_fds=(progress,),
                    cwd="/",  # "-m" puts the current folder first on Python's path: take no one's
                )
            finally:
                os.close(progress)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise SamplerFailed(
                f"the sampler can't be started ({reason})", advice=NOT_STARTED
            ) from error
        return cls(process, shared, frozenset(gpu.index for gpu in skip))

    def gpu(self) -> int | None:
        """Return the index of the GPU that is being read, None between GPUs."""
        (index,) = _PROGRESS.unpack(self._progress[: _PROGRESS.size])
        return None if index < 0 else int(index)

    async def ask(self, seconds: float, unanswered_since: float | None = None) -> Frame:
        """Return a new sample. Raises SamplerFailed when it is not there, whole, in `seconds`.

        `unanswered_since` (epoch) is when the driver was first asked in vain, if by another child.
        """
        since = time.time() if unanswered_since is None else unanswered_since
        self.asked = True
        try:
            return await _within(seconds, self._exchange())
        except asyncio.TimeoutError:
            gpu = self.gpu()
            where = "" if gpu is None else f" (GPU {gpu} was being read)"
            raise SamplerFailed(
                f"the driver has not answered since {clock(since)}{where}", gpu, HUNG
            ) from None
        except (EOFError, OSError) as error:  # EOFError: the stream ended within a frame
            raise await self._ended() from error
        except (ValueError, msgspec.MsgspecError) as error:
            log.warning("the sampler's answer can't be used: %s", clean(str(error), 300))
            raise SamplerFailed(
                f"the sampler answered at {clock(time.time())} with something that is no sample"
            ) from error

    async def _exchange(self) -> Frame:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(b"s\n")
        await stdin.drain()
        lengths = _HEADER.unpack(await stdout.readexactly(_HEADER.size))
        if sum(lengths) > MAX_FRAME_BYTES:
            raise ValueError(f"a frame of {sum(lengths)} bytes was announced")
        snapshot, summary = [await stdout.readexactly(length) for length in lengths]
        for part in (snapshot, summary):
            splice(part, None, None)  # raises ValueError where it could not be spliced later
        return Frame(decode_snapshot(snapshot), decode_summary(summary))

    async def _ended(self) -> SamplerFailed:
        """Say how the process ended, after its end of a pipe was closed."""
        gpu = self.gpu()
        where = "" if gpu is None else f" while GPU {gpu} was read"
        when = f"at {clock(time.time())}"
        if not await self._gone(KILL_SECONDS):
            return SamplerFailed(f"the sampler closed its output {when}{where}", gpu)
        code = self._process.returncode or 0
        if code < 0:
            what = f"the sampler crashed (signal {_signal_name(-code)}) {when}"
        else:
            what = f"the sampler ended (exit code {code}) {when}"
            if code > 0:
                where += await self._last_words()
        return SamplerFailed(what + where, gpu)

    async def _last_words(self) -> str:
        """Return what a process that is gone said last: not everybody has the agent's log."""
        await asyncio.wait({self._relay}, timeout=KILL_SECONDS)
        return f": {clean(self._heard[-1], LAST_WORDS_CHARACTERS)}" if self._heard else ""

    async def close(self) -> None:
        """End the process politely, then by force."""
        stdin = self._process.stdin
        assert stdin is not None
        stdin.close()
        if await self._gone(CLOSE_SECONDS):
            await self._release()
        else:
            await self.kill()

    async def kill(self) -> bool:
        """End the process by force; return whether it is gone. If not, the driver holds it."""
        with suppress(ProcessLookupError):
            self._process.kill()
        gone = await self._gone(KILL_SECONDS)
        if gone:
            await self._release()
        return gone

    async def wait_until_gone(self) -> None:
        """Wait, without a limit, for the end of a process that `kill` could not end."""
        while not await self._gone(60.0):
            pass
        await self._release()

    async def _gone(self, seconds: float) -> bool:
        with suppress(asyncio.TimeoutError):
            await _within(seconds, self._process.wait())
        # Beyond the process itself, `wait` waits for its pipes, which a grandchild may hold.
        return self._process.returncode is not None

    async def _release(self) -> None:
        await asyncio.wait({self._relay}, timeout=KILL_SECONDS)  # its last words
        self._relay.cancel()
        self._progress.close()


def clock(epoch: float) -> str:
    """Return a time of day, by this host's clock, as sentences have it."""
    return time.strftime("%H:%M:%S", time.localtime(epoch))


async def _within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, or raise asyncio.TimeoutError.

    Unlike `asyncio.wait_for` before Python 3.12, it never drops a cancellation that comes together
    with the result: the agent could not be stopped then.
    """
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        task.cancel()
    if not done:
        raise asyncio.TimeoutError
    return task.result()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _skip_option(skip: list[SkippedGpu]) -> str:
    told = {
        str(gpu.index): {"uuid": gpu.uuid, "name": gpu.name, "error": gpu.error} for gpu in skip
    }
    return encode(told).decode()


def _shared_integer() -> int:
    """Return a descriptor of an anonymous file that holds -1: "between GPUs"."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("gpumon-progress")
    else:  # Python built for an old C library
        descriptor = os.open(tempfile.gettempdir(), os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(descriptor, _PROGRESS.pack(-1))
    return descriptor


async def _relay(process: asyncio.subprocess.Process, heard: deque[str]) -> None:
    """Pass the child's messages on to `heard` and to the log: short lines, and no flood of them."""
    stderr = process.stderr
    assert stderr is not None
    pending = b""
    window, lines = 0.0, 0
    ended = False
    while not ended:
        data = await stderr.read(4096)
        ended = not data
        *complete, pending = (pending + data).split(b"\n")
        if pending and (ended or len(pending) > 4 * LINE_CHARACTERS):
            complete, pending = [*complete, pending], b""
        for line in complete:
            words = clean(line, LINE_CHARACTERS).removeprefix("sampler: ")
            heard.append(words)
            now = time.monotonic()
            if now - window > 60:
                window, lines = now, 0
            lines += 1
            if lines <= LINES_A_MINUTE:
                log.warning("sampler %d: %s", process.pid, words)
            elif lines == LINES_A_MINUTE + 1:
                log.warning(
                    "sampler %d: its other messages of this minute are dropped", process.pid
                )
