"""The file in which the sampler keeps what must outlive it. Its I/O runs in a thread of its own.

A disk that hangs must cost the memory of health and not the sample. Written in one step, so that a
reader or a crash finds a whole file. Somebody who removes the file says by that: "I know".

Nothing is written before the file was read: what comes late, or what can't be read, is never
replaced by what a sampler knows that has not seen it. Of several samplers one writes, the one that
holds the lock beside the file; another reads, and takes over with what the file holds by then.
"""

from __future__ import annotations

import fcntl
import math
import os
import threading
import time
from collections.abc import Callable

_MOST_BYTES = 4 * 1024 * 1024
_PATIENCE_SECONDS = 1.0
"""How long the first sample waits for the file, and the end for the last write."""
_LOCKED_SECONDS = 60.0
"""How long another sampler may have the file before that is said: a trial is shorter."""


class StateFile:
    """One file; every method returns at once or within a second, and none raises.

    `log` is told once what goes wrong with reading or writing, and never repeats itself.
    """

    def __init__(self, path: str, log: Callable[[str], None]) -> None:
        self._path = path
        self._log = log
        self._changed = threading.Condition()
        self._due = True
        self._ending = False
        self._tried = False
        """Whether the first attempt to read has ended, well or not."""
        self._arrived: bytes | None = None
        """What was read and not fetched yet; b"": there is no file."""
        self._fetched = False
        """Whether the reader of this file knows what it holds."""
        self._to_write: bytes | None = None
        self._removed = False
        # For the thread alone:
        self._lock: int | None = None
        self._refused_since: float | None = None
        self._mine = False
        """Whether this is the sampler that writes: it has the lock, and has read the file since."""
        self._exists = False
        self._complaint: str | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def load(self) -> bytes | None:
        """Return the content, as `arrived`; waits for it a second at most."""
        with self._changed:
            self._changed.wait_for(lambda: self._tried, _PATIENCE_SECONDS)
            tried = self._tried
        if not tried:
            self._log(
                f"{self._path} can't be read in time: going on without it until it comes, and "
                "writing nothing before. Look at the disk that it is on"
            )
        return self.arrived()

    def arrived(self) -> bytes | None:
        """Return what was read since the last call, b"" where there is no file; never waits.

        None: nothing new. What is saved from now on must contain what this returned.
        """
        with self._changed:
            data, self._arrived = self._arrived, None
            if data is not None:
                self._fetched = True
        return data

    def was_removed(self) -> bool:
        """Return whether the file was found to be gone since the last call; then looks again."""
        with self._changed:
            removed, self._removed = self._removed, False
            self._due = True
            self._changed.notify_all()
        return removed

    def save(self, data: bytes) -> None:
        """Have `data` written soon, in place of what still waits to be.

        Nothing comes of it where this is not the sampler that writes; what it takes over then,
        `arrived` tells.
        """
        with self._changed:
            if self._fetched and self._arrived is None:
                self._to_write, self._due = data, True
                self._changed.notify_all()

    def flush(self) -> None:
        """Wait a little for what is to be written."""
        with self._changed:
            if self._mine:
                self._changed.wait_for(lambda: self._to_write is None, _PATIENCE_SECONDS)

    def finish(self) -> None:
        """Wait a little for the last write, and until another sampler may take over."""
        self.flush()
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        self._thread.join(_PATIENCE_SECONDS)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._due or self._ending)
                self._due = False
                ending = self._ending and self._to_write is None
            if ending or (self._ending and not self._mine):
                break
            self._look()
            if not self._mine:
                self._take_over()
            data = self._to_write
            if data is not None and self._mine:
                self._write(data)
        if self._lock is not None:
            os.close(self._lock)

    def _take_over(self) -> None:
        """Read the file where this has become the sampler that writes; at the start in any case."""
        mine = self._locked()
        if not mine and self._tried and self._fetched_before():
            return
        data = self._read()
        with self._changed:
            if data is not None:
                self._mine = mine
                self._arrived, self._fetched, self._to_write = data, False, None
            self._tried = True
            self._changed.notify_all()

    def _fetched_before(self) -> bool:
        with self._changed:
            return self._fetched or self._arrived is not None

    def _locked(self) -> bool:
        """Return whether the lock is this sampler's, or has become so now."""
        try:
            if self._lock is None:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                self._lock = os.open(f"{self._path}.lock", flags, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._refused()
            return False
        except OSError as error:
            self._complain("written", error)
            return False
        return True

    def _refused(self) -> None:
        """Say once that another sampler has the file and does not end."""
        now = time.monotonic()
        if self._refused_since is None:
            self._refused_since = now
        elif now - self._refused_since >= _LOCKED_SECONDS:
            self._refused_since = math.inf
            self._log(
                f"{self._path} is kept by another sampler, so this one only reads it. Where two "
                "agents run on this host, stop one of them or give each a state_file of its own"
            )

    def _read(self) -> bytes | None:
        """Return the content, b"" where there is no file, None where it can't be read."""
        try:
            with open(self._path, "rb") as file:
                data = file.read(_MOST_BYTES)
        except FileNotFoundError:
            return b""
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
        if not self._exists and os.path.exists(self._path):
            self._take_over()  # its file system was not there before
            return
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
        with self._changed:
            if self._to_write is data:
                self._to_write = None
            self._changed.notify_all()

    def _complain(self, done: str, error: OSError) -> None:
        complaint = f"{self._path} can't be {done} ({error.strerror or type(error).__name__})"
        if complaint == self._complaint:
            return
        self._complaint = complaint
        cure = "Give the agent's user a folder that it may write"
        if done == "read":
            cure = "It is not written over: let the agent's user read it, or remove it"
        self._log(
            f"{complaint}: known GPUs and their last errors are forgotten when the sampler "
            f"ends. {cure}"
        )
