"""Who has the GPUs open while the driver can't be asked: from /proc alone.

After an upgrade of the driver the library refuses to start until the reboot, and the jobs of before
run on. What is open says that a GPU is in use, and nothing about how much of it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator

from gpumon.collect import procfs

REFRESH_SECONDS = 60.0
_PATIENCE_SECONDS = 0.5
"""For one look at all processes of the host; what was not looked at by then is said."""

_DEVICE = re.compile(r"(/dev/nvidia\d+)(?: \(deleted\))?\Z")
_DAEMONS = (b"nvidia-persiste",)
"""Hold GPUs open without using them; the kernel cuts names to 15 bytes."""
_MOST_NAMES = 4


class OpenGpus:
    """Looks once a minute, while it is asked. `proc` is where /proc is mounted."""

    def __init__(self, name: Callable[[int], str], proc: str = "/proc") -> None:
        """`name` gives the login name of a uid, or what stands for it."""
        self._name = name
        self._proc = proc
        self._due = 0.0
        self._sentence = ""

    def tell(self, now: float, errors: list[str]) -> None:
        """Add to `errors` which GPUs processes have open. `now`: seconds, monotonic."""
        if now >= self._due:
            self._due = now + REFRESH_SECONDS
            self._sentence = self._look()
        errors.append(self._sentence)

    def _look(self) -> str:
        users: dict[str, list[int]] = {}
        unseen = 0
        end = time.monotonic() + _PATIENCE_SECONDS
        for pid in self._pids():
            folder = f"{self._proc}/{pid}"
            try:
                devices = set(_devices(folder, end))
                if devices and procfs.read_stat(folder).comm not in _DAEMONS:
                    uid = procfs.read_uid(folder)
                    for device in devices:
                        users.setdefault(device, []).append(uid)
            except (PermissionError, TimeoutError):
                unseen += 1
            except (OSError, ValueError, IndexError):
                pass  # it ended meanwhile
        return _sentence(users, unseen, self._name)

    def _pids(self) -> Iterator[int]:
        try:
            names = os.listdir(self._proc)
        except OSError:
            return
        yield from (int(name) for name in names if name.isdecimal() and int(name) != os.getpid())


def _devices(folder: str, end: float) -> Iterator[str]:
    """Yield the GPUs' device files that a process has open, each as often as it has.

    Raises TimeoutError at `end` (monotonic), however many descriptors and processes there are.
    """
    if time.monotonic() > end:
        raise TimeoutError
    with os.scandir(f"{folder}/fd") as descriptors:
        for descriptor in descriptors:
            if time.monotonic() > end:
                raise TimeoutError
            try:
                found = _DEVICE.match(os.readlink(descriptor.path))
            except FileNotFoundError:
                continue  # closed meanwhile
            if found is not None:
                yield found[1]


def _sentence(users: dict[str, list[int]], unseen: int, name: Callable[[int], str]) -> str:
    said = [
        f"{device}: {_count(len(uids), 'process', 'es')} ({_names(sorted(set(uids)), name)})"
        for device, uids in sorted(users.items(), key=lambda item: (len(item[0]), item[0]))
    ]
    what = (
        f"GPUs are in use all the same, processes have them open: {'; '.join(said)}. "
        "How much memory they hold can't be told."
        if said
        else "No process that this agent can see has a GPU open just now; that is not to say that "
        "the GPUs are free."
    )
    return f"{what} {_count(unseen, 'process', 'es')} could not be looked at." if unseen else what


def _names(uids: list[int], name: Callable[[int], str]) -> str:
    shown = [name(uid) for uid in uids[:_MOST_NAMES]]
    rest = len(uids) - len(shown)
    return ", ".join([*shown, f"{rest} more"] if rest else shown)


def _count(number: int, word: str, ending: str) -> str:
    return f"{number} {word}{'' if number == 1 else ending}"
