"""The way of requests and answers between the agent and its sampler.

Plain pipes: a stream of asyncio's takes a dozen steps of the event loop for each sample, which cost
more than all that is done with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os

from gpumon.agent.frames import READ_BYTES, REQUEST, FrameBuffer

_ROOM_BYTES = 1024 * 1024
"""In the pipe, for a whole frame at once; what the kernel gives to anybody."""

Parts = tuple[bytes, bytes]


class SamplerPipe:
    """Two pipes, of which one at a time may ask; `child_*` are the sampler's ends."""

    def __init__(self) -> None:
        """Raises OSError."""
        self.child_requests, self._requests = os.pipe()
        try:
            self._answers, self.child_answers = os.pipe()
        except OSError:
            os.close(self.child_requests)
            os.close(self._requests)
            raise
        os.set_blocking(self._requests, False)
        os.set_blocking(self._answers, False)
        with contextlib.suppress(OSError):  # it is slower, and works, with the usual size
            fcntl.fcntl(self._answers, fcntl.F_SETPIPE_SZ, _ROOM_BYTES)
        self._frames = FrameBuffer()
        self._asking: asyncio.Future[Parts] | None = None
        self._broken: Exception | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._answers, self._read)

    def started(self) -> None:
        """Close the child's ends: it has them, or there is none."""
        os.close(self.child_requests)
        os.close(self.child_answers)

    async def ask(self, seconds: float) -> Parts:
        """Return the parts of the next frame.

        Raises asyncio.TimeoutError, OSError, EOFError where the child's end was closed, ValueError
        where what came is no frame or was not asked for.
        """
        if self._broken is not None:
            raise self._broken
        # A plain future and no task: a cancellation that comes with the answer is never dropped.
        answer: asyncio.Future[Parts] = self._loop.create_future()
        self._asking = answer
        timer = self._loop.call_later(seconds, _fail, answer, asyncio.TimeoutError())
        try:
            os.write(self._requests, REQUEST)
            return await answer
        finally:
            self._asking = None
            timer.cancel()

    def close_requests(self) -> None:
        """Tell the child that nothing more is asked."""
        if self._requests >= 0:
            os.close(self._requests)
            self._requests = -1

    def close(self) -> None:
        """Close both pipes."""
        self.close_requests()
        if self._answers >= 0:
            self._loop.remove_reader(self._answers)
            os.close(self._answers)
            self._answers = -1

    def _read(self) -> None:
        """Take in what has come; the event loop calls this."""
        try:
            parts = self._next_parts()
            if self._asking is None:
                raise ValueError("something came that was not asked for")
        except BlockingIOError:
            return
        except (EOFError, OSError, ValueError) as error:
            self._broken = error
            self._loop.remove_reader(self._answers)
            if self._asking is not None:
                _fail(self._asking, error)
        else:
            if parts is not None and not self._asking.done():
                self._asking.set_result(parts)

    def _next_parts(self) -> Parts | None:
        parts, full = None, True
        while parts is None and full:
            data = os.read(self._answers, READ_BYTES)
            if not data:
                raise EOFError
            parts, full = self._frames.feed(data), len(data) == READ_BYTES
        return parts


def _fail(answer: asyncio.Future[Parts], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
