"""A sampler that is asked once by somebody who waits for it, without an event loop."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterable

from gpumon.agent import failures
from gpumon.agent.frames import READ_BYTES, REQUEST, FrameBuffer
from gpumon.agent.launch import FOLDER, Progress, with_options

TYPE_CHECKING = False  # `typing` takes its time, too
if TYPE_CHECKING:
    from gpumon.agent.latest import SkippedGpu

KILL_SECONDS = 1.0
"""How long a killed process may take to be gone before it counts as stuck in the driver."""

_TICK_SECONDS = 0.25
_LAST_WORDS_BYTES = 4096

Tick = Callable[["int | None"], None]
"""Hears a few times a second which GPU is being read."""


class OneChild:
    """A running sampler that was asked for its sample. It must be killed in any case."""

    def __init__(self, command: list[str], interval: float, skip: Iterable[SkippedGpu]) -> None:
        """Start it. Raises SamplerFailed."""
        try:
            self._progress = Progress()
            try:
                self._process = subprocess.Popen(
                    with_options(command, interval, skip, self._progress),
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=(self._progress.descriptor,),
                    cwd=FOLDER,
                )
            finally:
                self._progress.started()
        except OSError as error:
            raise failures.not_started(error) from error
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        self._pipes = (stdin, stdout, stderr)
        self._output, self._messages = stdout.fileno(), stderr.fileno()
        self._said = b""
        self._asked_at = time.time()
        with contextlib.suppress(OSError):  # it has ended: its output says so, and how
            stdin.write(REQUEST)

    def answer(self, seconds: float, tick: Tick) -> bytes:
        """Return the JSON of the snapshot. Raises SamplerFailed."""
        end = time.monotonic() + seconds
        frames = FrameBuffer()
        poller = select.poll()
        poller.register(self._output, select.POLLIN)
        poller.register(self._messages, select.POLLIN)
        while (left := end - time.monotonic()) > 0:
            for descriptor, _ in poller.poll(1000 * min(left, _TICK_SECONDS)):
                data = os.read(descriptor, READ_BYTES)
                if descriptor == self._messages:
                    self._said = (self._said + data)[-_LAST_WORDS_BYTES:]
                    if not data:
                        poller.unregister(descriptor)
                    continue
                if not data:
                    raise self._ended()
                try:
                    frame = frames.feed(data)
                except ValueError as error:
                    raise failures.unusable() from error
                if frame is not None:
                    return frame[0]
            tick(self._progress.gpu())
        raise failures.unanswered(self._asked_at, self._progress.gpu())

    def kill(self) -> bool:
        """End the process by force; return whether it is gone. If not, the driver holds it."""
        self._process.kill()
        gone = self._wait() is not None
        for pipe in self._pipes:
            pipe.close()
        self._progress.close()
        return gone

    def _wait(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(KILL_SECONDS)
        return None

    def _ended(self) -> failures.SamplerFailed:
        gpu = self._progress.gpu()
        return failures.ended(self._wait(), gpu, self._last_words())

    def _last_words(self) -> str | None:
        """Return what the process said last; a grandchild may go on talking."""
        end = time.monotonic() + KILL_SECONDS
        while select.select([self._messages], [], [], max(0.0, end - time.monotonic()))[0]:
            data = os.read(self._messages, READ_BYTES)
            if not data:
                break
            self._said = (self._said + data)[-_LAST_WORDS_BYTES:]
        lines = self._said.decode("utf-8", "replace").split("\n")
        return next((line.removeprefix("sampler: ") for line in reversed(lines) if line), None)
