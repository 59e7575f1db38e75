"""The sampler: a child process that takes one sample for each line "s" on its standard input.

    python -m gpumon.collect.sampler --interval 5 [--owners JSON] [--skip JSON] [--progress-fd N]
        [--state-file PATH] [--kernel-log PATH]

For each sample it writes one frame to standard output: two big-endian uint32, the lengths of
snapshot and summary, then the JSON of both with their first three fields at defaults. Log lines go
to standard error. It ends with exit code 0 at the end of its input and on SIGTERM, and it dies with
its parent.

NVML runs in a thread, so that a signal is heard while the driver does not return from a call.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import os
import queue
import signal
import struct
import sys
import threading
from collections.abc import Callable

import msgspec

from gpumon.collect.devices import Skipped
from gpumon.collect.health.kernel_log import KERNEL_LOG
from gpumon.collect.owners import OwnerOptions
from gpumon.collect.snapshot import Collector
from gpumon.model import encode
from gpumon.summary import summarize
from gpumon.text import clean

_HEADER = struct.Struct(">II")
_PROGRESS = struct.Struct("<i")
_PR_SET_PDEATHSIG = 1
_PATIENCE_SECONDS = 2.0
"""How long, at the end, the sample in flight may take, and then the closing of NVML."""


class Sampler:
    """Answers each request on `requests` with a frame on `frames` (file descriptors)."""

    def __init__(self, collector: Collector, requests: int, frames: int) -> None:
        self._collector = collector
        self._requests = requests
        self._frames = frames
        self._sampling = threading.Lock()
        # Its `put` may be called from a signal handler at any point; an Event's `set` may not.
        self._exit_codes: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._errors: list[str] = []

    def run(self) -> int:
        """Work until the input ends, the reader of the frames is gone, or `stop`."""
        threading.Thread(target=self._answer_requests, daemon=True).start()
        exit_code = self._exit_codes.get()
        # Kept locked then: no new sample begins. Closing NVML under a running call would crash.
        if self._sampling.acquire(timeout=_PATIENCE_SECONDS):
            closing = threading.Thread(target=self._collector.close, daemon=True)
            closing.start()
            closing.join(_PATIENCE_SECONDS)
        return exit_code

    def stop(self, *_: object) -> None:
        """Let `run` return; a signal handler."""
        self._exit_codes.put(0)

    def _answer_requests(self) -> None:
        exit_code = 0
        try:
            self._answer_until_closed()
        except BrokenPipeError:
            pass  # the parent has closed its end: nobody wants more
        except Exception as error:  # the thread's outermost frame: say why it ends
            log(f"the sampler ends: {type(error).__name__}: {error}")
            sys.excepthook(type(error), error, error.__traceback__)
            exit_code = 1
        self._exit_codes.put(exit_code)

    def _answer_until_closed(self) -> None:
        pending = b""
        while data := os.read(self._requests, 4096):
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                if line != b"s":
                    log(f'a line "s" was expected on standard input, found {line[:40]!r}')
                    continue
                with self._sampling:
                    frame = self._frame()
                _write(self._frames, frame)

    def _frame(self) -> bytes:
        snapshot = self._collector.sample()
        gpu_errors = [f"GPU {gpu.index}: {gpu.error}" for gpu in snapshot.gpus if gpu.error]
        self._log_changes(snapshot.errors + gpu_errors)
        whole, short = encode(snapshot), encode(summarize(snapshot))
        return _HEADER.pack(len(whole), len(short)) + whole + short

    def _log_changes(self, errors: list[str]) -> None:
        """Log what is new or over: not each sample's repetition of it."""
        for error in errors:
            if error not in self._errors:
                log(error)
        for error in self._errors:
            if error not in errors:
                log(f"over: {error}")
        self._errors = errors


def log(text: str) -> None:
    """Write one line to standard error."""
    sys.stderr.write(f"sampler: {clean(text, 1000)}\n")
    sys.stderr.flush()


def main(arguments: list[str] | None = None) -> int:
    """Run the sampler; return its exit code."""
    parser = argparse.ArgumentParser(prog="gpumon.collect.sampler", allow_abbrev=False)
    parser.add_argument("--interval", type=float, required=True, help="seconds between samples")
    parser.add_argument("--skip", type=_skip, default={}, help="GPUs that must not be touched")
    parser.add_argument("--owners", type=_owners, help="rules for owners of containers")
    parser.add_argument("--state-file", help="where known GPUs and their last errors are kept")
    parser.add_argument("--kernel-log", default=KERNEL_LOG, help="where the kernel logs XIDs")
    parser.add_argument("--progress-fd", type=_progress, help="where to tell the GPU in work")
    options = parser.parse_args(arguments)
    _die_with_parent()
    collector = Collector(
        interval=options.interval,
        skip=options.skip,
        owners=options.owners,
        kernel_log=options.kernel_log,
        state_path=options.state_file,
        log=log,
        **({} if options.progress_fd is None else {"progress": options.progress_fd}),
    )
    # Frames get a descriptor of their own: what a library prints must not get between them.
    frames = os.dup(1)
    os.dup2(2, 1)
    sampler = Sampler(collector, requests=0, frames=frames)
    signal.signal(signal.SIGTERM, sampler.stop)
    # Ctrl-C reaches the whole group; the parent decides and closes our input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return sampler.run()


def _skip(text: str) -> dict[int, Skipped]:
    try:
        return msgspec.json.decode(text, type=dict[int, Skipped])
    except msgspec.MsgspecError as error:
        raise argparse.ArgumentTypeError(
            f'{{"2": {{"uuid": ..., "name": ..., "error": ...}}}} was expected: {error}'
        ) from None


def _owners(text: str) -> OwnerOptions:
    try:
        return msgspec.json.decode(text, type=OwnerOptions)
    except msgspec.MsgspecError as error:
        raise argparse.ArgumentTypeError(
            f'{{"rules": [...], "container_socket": ...}} was expected: {error}'
        ) from None


def _progress(text: str) -> Callable[[int], None]:
    """Return a function that stores a GPU's index where the parent sees it, whatever happens."""
    try:
        shared = mmap.mmap(int(text), _PROGRESS.size)
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(
            f"an open file of {_PROGRESS.size} bytes was expected, found {text}: {error}"
        ) from None

    def store(index: int) -> None:
        _PROGRESS.pack_into(shared, 0, index)

    return store


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _write(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


if __name__ == "__main__":
    code = main()
    # Not sys.exit: a thread stuck in the driver must not be waited for.
    os._exit(code)
