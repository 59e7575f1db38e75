"""What a value may look like: in code, and in the words of `expected`.

Each kind reads a node of the document and returns the value, or raises Refused. The values of flags
and variables come as nodes too, so that one rule holds for all.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from gpumon.config.document import Items, Node, Scalar
from gpumon.config.faults import Refused, quote
from gpumon.config.types import OwnerRule
from gpumon.text import clean

_TRUE = frozenset({"true", "yes", "on"})
_FALSE = frozenset({"false", "no", "off"})
_WHOLE = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,17})\Z")
_DECIMAL = re.compile(r"[+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?\Z")
MACHINE = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9_])?\Z")
_HOST_NAME = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\Z")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}\Z")
_PREFIX = re.compile(r"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*\Z")

Value = bool | int | float | str | Path | OwnerRule | list[Any]


class Kind(Protocol):
    """What a setting may be set to."""

    @property
    def expected(self) -> str:
        """Words that follow "expected"."""

    def read(self, node: Node) -> Value:
        """Return the value. Raises Refused."""


def found(node: Node) -> str:
    """Return words for what stands there. The content of lists and mappings is never shown."""
    if isinstance(node, Scalar):
        if node.is_nothing:
            return "nothing"
        return quote(node.text)
    if isinstance(node, Items):
        return "a list" if node.items else "an empty list"
    return "a mapping"


def text_of(node: Node) -> str:
    """Return the text of a single value as it was written. Raises Refused."""
    if not isinstance(node, Scalar) or node.is_nothing:
        raise Refused(found(node))
    return node.text


def _refuse_quotes(node: Node) -> None:
    if isinstance(node, Scalar) and node.quoted:
        raise Refused(f"the text {quote(node.text)} in quotes", "Write it without the quotes.")


@dataclass(frozen=True)
class Number:
    low: float
    high: float
    unit: str = ""
    whole: bool = False

    @property
    def expected(self) -> str:
        unit = f" of {self.unit}" if self.unit else ""
        return f"a number{unit} from {self.low:g} to {self.high:g}"

    def read(self, node: Node) -> int | float:
        text = text_of(node)
        pattern = _WHOLE if self.whole else _DECIMAL
        if not pattern.match(text):
            raise Refused(found(node))
        number = int(text) if self.whole else float(text)
        if not self.low <= number <= self.high:
            raise Refused(quote(text))
        _refuse_quotes(node)
        return number


@dataclass(frozen=True)
class YesNo:
    expected: str = "true or false"

    def read(self, node: Node) -> bool:
        word = text_of(node).lower()
        if word not in _TRUE | _FALSE:
            raise Refused(found(node))
        _refuse_quotes(node)
        return word in _TRUE


@dataclass(frozen=True)
class Text:
    limit: int
    without: str = ""
    """Characters that may not stand in it."""

    @property
    def expected(self) -> str:
        without = f", without {' '.join(self.without)}" if self.without else ""
        return f"a text of 1 to {self.limit} printable characters{without}"

    def read(self, node: Node) -> str:
        text = " ".join(text_of(node).split())
        if not text or clean(text, self.limit) != text or set(self.without) & set(text):
            raise Refused(found(node))
        return text


@dataclass(frozen=True)
class OneOf:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def expected(self) -> str:
        return f"{', '.join(self.words[:-1])} or {self.words[-1]}"

    def read(self, node: Node) -> str:
        text = text_of(node).strip()
        if text not in self.words:
            raise Refused(found(node))
        return text


@dataclass(frozen=True)
class HeaderName:
    """A header of HTTP. Names with "_" would be taken for ones with "-", so they are refused."""

    expected: str = "the name of a header such as X-Forwarded-User"

    def read(self, node: Node) -> str:
        text = text_of(node).strip()
        if not _HEADER.match(text):
            raise Refused(found(node), "Letters, digits and - may stand in it.")
        return text


@dataclass(frozen=True)
class BindAddress:
    """An address of this machine, or "localhost" for the loopback of IPv4 and of IPv6."""

    expected: str = "an IP address of this machine or localhost, no port"

    def read(self, node: Node) -> str:
        text = text_of(node).strip()
        if text.lower() == "localhost":
            return "localhost"
        bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
        try:
            return str(ipaddress.ip_address(bare))
        except ValueError:
            raise Refused(
                found(node), 'Write 127.0.0.1 for this machine alone, 0.0.0.0 or "::" for everyone.'
            ) from None


@dataclass(frozen=True)
class Network:
    """An address or a network in CIDR form."""

    expected: str = "an IP address or a network such as 10.0.0.0/8"

    def read(self, node: Node) -> str:
        text = text_of(node).strip()
        try:
            network = ipaddress.ip_network(text, strict=False)
            exact = "/" not in text or ipaddress.ip_interface(text).ip == network.network_address
        except ValueError:
            raise Refused(found(node), "Names are not looked up here.") from None
        if not exact:
            raise Refused(found(node), f"Write {network} for the network.")
        return str(network) if "/" in text else str(network.network_address)


@dataclass(frozen=True)
class HostName:
    """A name as it stands in an address, in lower case and without a dot at the end."""

    expected: str = "a host name such as gpus.example.org, no port"

    def read(self, node: Node) -> str:
        name = text_of(node).strip().lower().rstrip(".")
        if not _HOST_NAME.match(name) or len(name) > 253:
            raise Refused(found(node), "Write the name alone, without scheme, port and path.")
        return name


@dataclass(frozen=True)
class ListOf:
    item: Kind

    @property
    def expected(self) -> str:
        return f"a list, each item {self.item.expected}"

    def read(self, node: Node) -> list[Any]:
        """Judge the list itself; the loader reads it item by item, to tell all faults at once."""
        if isinstance(node, Items):
            return []
        raise Refused(found(node), "Put it in square brackets, with commas in between.")


@dataclass(frozen=True)
class UrlPrefix:
    """Where the page lies behind a proxy: "" or "/gpus", never with a slash at the end."""

    expected: str = 'a path such as /gpus, or "" for the top'

    def read(self, node: Node) -> str:
        text = text_of(node).strip()
        stripped = text.strip("/")
        prefix = f"/{stripped}" if stripped else ""
        if not _PREFIX.match(prefix) or len(prefix) > 200:
            raise Refused(
                found(node), "Letters, digits and . _ ~ - may stand between single slashes."
            )
        return prefix


@dataclass(frozen=True)
class ServerUrl:
    """Where a gpumon server's page lies; kept without a slash at the end."""

    expected: str = "an address such as https://gpus.example.org/gpus/"

    def read(self, node: Node) -> str:
        text = text_of(node).strip()
        try:
            parts = urlsplit(text)
            # Reading the port is what checks it.
            whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            raise Refused(found(node)) from None
        if not text.isprintable() or " " in text or len(text) > 1000 or not whole:
            raise Refused(found(node))
        if "@" in parts.netloc:
            raise Refused(found(node), "No user or password stands here; a token has its own file.")
        path = "/" + parts.path.strip("/") if parts.path.strip("/") else ""
        if parts.query or parts.fragment or not _PREFIX.match(path):
            raise Refused(found(node), "Write the address of the front page, nothing behind it.")
        return f"{parts.scheme}://{parts.netloc.lower()}{path}"


@dataclass(frozen=True)
class MachineName:
    """The name that a host pushes under; short names and full ones."""

    expected: str = "a name of letters, digits and . _ -, at most 64"

    def read(self, node: Node) -> str:
        text = text_of(node).strip()
        if not MACHINE.match(text):
            raise Refused(found(node))
        return text


@dataclass(frozen=True)
class FilePath:
    """A file. What was written there is never shown: somebody may have put the secret itself."""

    expected: str = "the path of a file"

    def read(self, node: Node) -> Path:
        if not isinstance(node, Scalar) or node.is_nothing:
            raise Refused(found(node))
        text = node.text
        if not text.strip():
            raise Refused("nothing")
        if text.startswith("~"):
            raise Refused(
                'a path with "~"',
                "That is another folder for every user who starts gpumon. Write the whole path.",
            )
        if not text.isprintable() or len(text) > 4096:
            raise Refused(
                "a text that is too long or has line breaks or other unprintable characters",
                "Keep the secret in a file of its own and write that file's path here.",
            )
        return Path(text)
