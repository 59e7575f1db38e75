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
        with contextlib.suppress(OSError):  # a whole frame at once, where the kernel allows it
            fcntl.fcntl(self._answers, fcntl.F_SETPIPE_SZ, READ_BYTES)
        self._frames = FrameBuffer()

    def started(self) -> None:
        """Close the child's ends: it has them, or there is none."""
        os.close(self.child_requests)
        os.close(self.child_answers)

    async def ask(self, seconds: float) -> tuple[bytes, bytes]:
        """Return the parts of the next frame.

        Raises asyncio.TimeoutError, EOFError, OSError, or ValueError where it can't be a frame.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[bytes, bytes]] = loop.create_future()
        # Plain futures and no task: a cancellation that comes with the answer is never dropped.
        timer = loop.call_later(seconds, _fail, answer, asyncio.TimeoutError())
        loop.add_reader(self._answers, self._read, answer)
        try:
            os.write(self._requests, REQUEST)
            return await answer
        finally:
            loop.remove_reader(self._answers)
            timer.cancel()

    def _read(self, answer: asyncio.Future[tuple[bytes, bytes]]) -> None:
        try:
            data = os.read(self._answers, READ_BYTES)
            if not data:
                raise EOFError
            parts = self._frames.feed(data)
        except BlockingIOError:
            return
        except (EOFError, OSError, ValueError) as error:
            _fail(answer, error)
        else:
            if parts is not None and not answer.done():
                answer.set_result(parts)

    def close_requests(self) -> None:
        """Tell the child that nothing more is asked."""
        if self._requests >= 0:
            os.close(self._requests)
            self._requests = -1

    def close(self) -> None:
        """Close both pipes."""
        self.close_requests()
        if self._answers >= 0:
            os.close(self._answers)
            self._answers = -1


def _fail(answer: asyncio.Future[tuple[bytes, bytes]], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
