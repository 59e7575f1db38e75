"""One sampler process: started, asked, ended. What it may do wrong becomes a sentence."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Coroutine, Iterable
from typing import Any, NamedTuple, TypeVar

import msgspec

from gpumon.agent import failures
from gpumon.agent.failures import SamplerFailed
from gpumon.agent.latest import SkippedGpu
from gpumon.agent.launch import FOLDER, Progress, with_options
from gpumon.agent.odd import odd_fields
from gpumon.agent.pipe import SamplerPipe
from gpumon.model import Gpu, decode_snapshot, splice
from gpumon.summary import HostSummary, decode_summary
from gpumon.text import clean

log = logging.getLogger(__name__)

T = TypeVar("T")

KILL_SECONDS = 1.0
"""How long a killed process may take to be gone before it counts as stuck in the driver."""
CLOSE_SECONDS = 3.0
LINE_CHARACTERS = 500
LINES_A_MINUTE = 30


class Frame(NamedTuple):
    """One sample as the sampler sent it: found to be right, and as far as needed taken apart."""

    snapshot: bytes
    """JSON of a HostSnapshot with its first three fields at defaults."""
    summary: HostSummary
    odd: list[str]
    """The field of each value of a GPU that can't be."""
    health: list[Gpu]
    """The GPUs that have something in their health."""


class Child:
    """A running sampler. Made by `start`; every path ends in `close` or `kill`."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        pipe: SamplerPipe,
        progress: Progress,
        skipped: frozenset[int],
    ) -> None:
        self._process = process
        self._pipe = pipe
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
        try:
            with contextlib.ExitStack() as failed, contextlib.ExitStack() as started:
                progress = Progress()
                failed.callback(progress.close)
                started.callback(progress.started)
                pipe = SamplerPipe()
                failed.callback(pipe.close)
                started.callback(pipe.started)
                process = await asyncio.create_subprocess_exec(
                    *with_options(command, interval, skip, progress),
                    stdin=pipe.child_requests,
                    stdout=pipe.child_answers,
                    stderr=asyncio.subprocess.PIPE,
                    pass_fds=(progress.descriptor,),
                    cwd=FOLDER,
                )
                failed.pop_all()
        except OSError as error:
            raise failures.not_started(error) from error
        return cls(process, pipe, progress, frozenset(gpu.index for gpu in skip))

    async def ask(self, seconds: float, unanswered_since: float | None = None) -> Frame:
        """Return a new sample. Raises SamplerFailed when it is not there, whole, in `seconds`.

        `unanswered_since` (epoch) is when the driver was first asked in vain, if by another child.
        """
        since = time.time() if unanswered_since is None else unanswered_since
        self.asked = True
        try:
            snapshot, summary = await self._pipe.ask(seconds)
            return _checked(snapshot, summary)
        except asyncio.TimeoutError:
            raise failures.unanswered(since, self._progress.gpu()) from None
        except (EOFError, OSError) as error:  # EOFError: the stream ended within a frame
            raise await self._ended() from error
        except (ValueError, msgspec.MsgspecError) as error:
            log.warning("the sampler's answer can't be used: %s", clean(str(error), 300))
            raise failures.unusable() from error

    async def _ended(self) -> SamplerFailed:
        """Say how the process ended, after its end of a pipe was closed."""
        gpu = self._progress.gpu()
        if not await self._gone(KILL_SECONDS):
            return failures.ended(None, gpu)
        code = self._process.returncode
        if code is not None and code > 0:
            await asyncio.wait({self._relay}, timeout=KILL_SECONDS)
        return failures.ended(code, gpu, "".join(self._heard))

    async def close(self) -> None:
        """End the process politely, then by force."""
        self._pipe.close_requests()
        if await self._gone(CLOSE_SECONDS):
            await self._release()
        else:
            await self.kill()

    async def kill(self) -> bool:
        """End the process by force; return whether it is gone. If not, the driver holds it."""
        with contextlib.suppress(ProcessLookupError):
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
        with contextlib.suppress(asyncio.TimeoutError):
            await _within(seconds, self._process.wait())
        # Beyond the process itself, `wait` waits for its pipes, which a grandchild may hold.
        return self._process.returncode is not None

    async def _release(self) -> None:
        await asyncio.wait({self._relay}, timeout=KILL_SECONDS)  # its last words
        self._relay.cancel()
        self._pipe.close()
        self._progress.close()


def _checked(snapshot: bytes, summary: bytes) -> Frame:
    """Return the frame. Raises ValueError or msgspec.MsgspecError where it is not as it must be."""
    for part in (snapshot, summary):
        splice(part, None, None)  # raises ValueError where it could not be spliced later
    whole, short = decode_snapshot(snapshot), decode_summary(summary)
    if [len(gpu.mig) for gpu in whole.gpus] != [len(gpu.mig) for gpu in short.gpus]:
        raise ValueError("snapshot and summary differ")
    return Frame(snapshot, short, odd_fields(whole), [gpu for gpu in whole.gpus if gpu.health])


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
