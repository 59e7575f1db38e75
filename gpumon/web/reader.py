"""Who reads: nobody whom we know, a user whom a trusted proxy names, or an admin."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, NamedTuple

from gpumon.cluster.visible import Tier
from gpumon.config import Config
from gpumon.text import REPLACEMENT, clean

LONGEST_NAME = 64


class Reader(NamedTuple):
    """One reader."""

    tier: Tier
    name: str | None
    """The name that the proxy gave; None: anonymous."""


ANONYMOUS = Reader("anonymous", None)


class Readers:
    """Tells readers apart by the configuration."""

    def __init__(self, config: Config) -> None:
        self.header = config.web.user_header
        """The header that answers depend on; None: all readers are the same."""
        self._key = "HTTP_" + (self.header or "").upper().replace("-", "_")
        self._admins = frozenset(config.web.admins)
        self._proxies = [ipaddress.ip_network(text) for text in config.web.trusted_proxies]

    def reader(self, environ: Mapping[str, Any]) -> Reader:
        """Return who sent a request. The header of anybody but a trusted proxy counts for nothing.

        A value that is no single plain name counts for nothing either: two of them, say, one of
        which the reader may have sent.
        """
        given = environ.get(self._key, "") if self.header is not None else ""
        if not given or not self._is_proxy(str(environ.get("REMOTE_ADDR", ""))):
            return ANONYMOUS
        name = _name(given)
        if name is None:
            return ANONYMOUS
        return Reader("admin" if name in self._admins else "named", name)

    def _is_proxy(self, address: str) -> bool:
        try:
            peer = ipaddress.ip_address(address)
        except ValueError:  # a Unix socket, or no address at all
            return False
        return any(peer in network for network in self._proxies)


def _name(given: str) -> str | None:
    text = given.encode("latin-1", errors="replace").decode("utf-8", errors="replace").strip()
    sound = clean(text, LONGEST_NAME) == text and REPLACEMENT not in text and "," not in text
    return text if text and sound else None
