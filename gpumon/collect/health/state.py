"""The file in which the sampler keeps what must outlive it. Its I/O runs in a thread of its own.

A disk that hangs must cost the memory of health and not the sample. Written in one step, so that a
reader or a crash finds a whole file. Somebody who removes the file says by that: "I know".
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

_MOST_BYTES = 4 * 1024 * 1024
_PATIENCE_SECONDS = 1.0
"""How long the first sample waits for the file, and the end for the last write."""


class StateFile:
    """One file; every method returns at once or within a second, and none raises.

    `log` is told once what goes wrong with reading or writing, and never repeats itself.
    """

    def __init__(self, path: str, log: Callable[[str], None]) -> None:
        self._path = path
        self._log = log
        self._changed = threading.Condition()
        self._loaded = threading.Event()
        self._data: bytes | None = None
        self._due = False
        self._to_write: bytes | None = None
        self._exists = False
        self._removed = False
        self._complaint: str | None = None
        threading.Thread(target=self._work, daemon=True).start()

    def load(self) -> bytes | None:
        """Return the file's content; None where there is none or it does not come in time."""
        if not self._loaded.wait(_PATIENCE_SECONDS):
            self._log(f"{self._path} can't be read in time: going on without it")
        return self._data

    def was_removed(self) -> bool:
        """Return whether the file was found to be gone since the last call; then looks again."""
        with self._changed:
            removed, self._removed = self._removed, False
            self._due = True
            self._changed.notify_all()
        return removed

    def save(self, data: bytes) -> None:
        """Have `data` written soon, in place of what still waits to be."""
        with self._changed:
            self._to_write, self._due = data, True
            self._changed.notify_all()

    def finish(self) -> None:
        """Wait a little for the last write."""
        with self._changed:
            self._changed.wait_for(lambda: self._to_write is None, _PATIENCE_SECONDS)

    def _work(self) -> None:
        self._data = self._read()
        self._loaded.set()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._due)
                self._due = False
            self._look()
            data = self._to_write
            if data is not None:
                self._write(data)
                with self._changed:
                    if self._to_write is data:
                        self._to_write = None
                    self._changed.notify_all()

    def _read(self) -> bytes | None:
        try:
            with open(self._path, "rb") as file:
                data = file.read(_MOST_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._complain("read", error)
            return None
        self._exists = True
        return data

    def _look(self) -> None:
        """Find out whether the file is gone that was there."""
        if not self._exists:
            return
        try:
            os.stat(os.path.dirname(self._path) or ".")
            os.stat(self._path)
        except FileNotFoundError as error:
            # With its folder it has gone with a file system rather than by a decision.
            self._exists = False
            if error.filename == self._path:
                with self._changed:
                    self._removed, self._to_write = True, None
        except OSError:
            pass

    def _write(self, data: bytes) -> None:
        new = f"{self._path}.{os.getpid()}.new"
        try:
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(fd)  # a GPU that fell off the bus is often followed by a power cycle
                os.replace(new, self._path)
            except BaseException:
                os.unlink(new)
                raise
        except OSError as error:
            self._complain("written", error)
        else:
            self._exists, self._complaint = True, None

    def _complain(self, done: str, error: OSError) -> None:
        complaint = f"{self._path} can't be {done} ({error.strerror or type(error).__name__})"
        if complaint != self._complaint:
            self._complaint = complaint
            self._log(
                f"{complaint}: known GPUs and their last errors are forgotten when the sampler "
                "ends. Give the agent's user a folder that it may write"
            )
