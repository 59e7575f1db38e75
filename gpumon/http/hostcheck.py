"""The Host check: against web pages that call us through a name of their own.

A page can point its own name at our address (DNS rebinding); the browser then takes us for that
page's server. It still sends that name as Host, which no name of this machine equals. The agent
checks it where it asks for no token, the page where `web.hostnames` lists what it is called by.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import socket
import threading
from collections.abc import Iterable

log = logging.getLogger(__name__)

_HOST = re.compile(r"(\[[0-9a-f:.%]+\]|[^\[\]:@]+)(?::[0-9]*)?")


class HostCheck:
    """Accepts IP addresses, localhost and this machine's own names."""

    def __init__(self, more_names: Iterable[str] = ()) -> None:
        name = os.uname().nodename
        self._names = {"localhost", *map(_folded, (name, name.partition(".")[0], *more_names))}
        # The full name comes from DNS, which may take its time or never answer.
        threading.Thread(target=self._learn_full_name, name="own-name", daemon=True).start()

    def _learn_full_name(self) -> None:
        try:
            self._names.add(_folded(socket.getfqdn()))
        except UnicodeError as error:  # a host name that no DNS can hold
            log.info("this machine's full name could not be found: %s", error)

    def accepts(self, host: str | None) -> bool:
        """Return whether a Host header ("name", "name:port", "[::1]:port") means this machine."""
        name = _without_port(_folded(host or ""))
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _folded(name: str) -> str:
    return name.strip().lower().rstrip(".")


def _without_port(host: str) -> str:
    """Return the name in a Host header, "" where it is none."""
    found = _HOST.fullmatch(host)
    return found[1].strip("[]").rstrip(".") if found else ""
