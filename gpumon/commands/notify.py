"""Words to systemd: ready, alive, stopping (the protocol of sd_notify(3)). No library is needed."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping

log = logging.getLogger("gpumon")

STATUS_SECONDS = 30.0
"""How often `systemctl status` gets a new sentence where no watchdog asks for more."""


class Notifier:
    """Talks to the service manager that started this process; says nothing where none did."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self.watchdog_seconds = _watchdog(environ)
        """Within so many seconds a beat is expected; None: nobody waits for one."""

    def __bool__(self) -> bool:
        return bool(self._address)

    def tell(self, *assignments: str) -> None:
        """Send lines such as "READY=1". A manager that does not listen is logged, never raised."""
        if not self._address:
            return
        # "@" stands for the zero byte of the abstract namespace.
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                out.setblocking(False)
                out.sendto("\n".join(assignments).encode(), address)
        except OSError as error:
            log.warning("systemd could not be told %s: %s", assignments[0], error.strerror)


async def beat(notifier: Notifier, alive: Callable[[], bool], words: Callable[[], str]) -> None:
    """Say READY=1, then beat until cancelled, then say STOPPING=1.

    A beat proves that the event loop turns; `alive` says whether the work behind it goes on.
    While it does not, no beat is sent, and systemd restarts the service. `words` is the sentence
    for `systemctl status`.
    """
    pause = STATUS_SECONDS
    if notifier.watchdog_seconds is not None:
        pause = min(pause, notifier.watchdog_seconds / 3)
    notifier.tell("READY=1", f"STATUS={words()}")
    try:
        while True:
            await asyncio.sleep(pause)
            if alive():
                notifier.tell("WATCHDOG=1", f"STATUS={words()}")
            else:
                notifier.tell(f"STATUS=no sign of life, no beat for the watchdog: {words()}")
    finally:
        notifier.tell("STOPPING=1", "STATUS=stopping")


def _watchdog(environ: Mapping[str, str]) -> float | None:
    """Return the watchdog's time in seconds; None where it is off, or meant for another process."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        microseconds = int(environ.get("WATCHDOG_USEC", ""))
    except ValueError:
        return None
    return microseconds / 1e6 if microseconds > 0 else None
