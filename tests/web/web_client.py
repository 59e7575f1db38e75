"""A browser of a kind: calls a WSGI application, reads HTML, follows links."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes, urlsplit

import bottle

from gpumon.cluster.status import ClusterStatus
from gpumon.config import Config, WebConfig
from gpumon.model import HostSnapshot
from gpumon.web.app import make_app

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "wbr"}


class Reply(NamedTuple):
    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        unpacked = self.headers.get("Content-Encoding") == "gzip"
        return (gzip.decompress(self.body) if unpacked else self.body).decode("utf-8")


def site(
    status: ClusterStatus | Callable[[], ClusterStatus],
    detail: Callable[[str], HostSnapshot | None] = lambda _: None,
    *,
    prefix: str = "",
    title: str = "GPUs",
    **web: Any,
) -> bottle.Bottle:
    config = Config(web=WebConfig(prefix=prefix, title=title, **web))
    current = status if callable(status) else lambda: status
    return make_app(status=current, detail=detail, config=config)


def get(
    app: Any,
    target: str,
    *,
    method: str = "GET",
    accept: str = BROWSER,
    peer: str = "127.0.0.1",
    **headers: str,
) -> Reply:
    """Ask for `target` ("/host/a%20b?refresh=5"), as a server would hand it over."""
    parts = urlsplit(target) if not target.startswith("//") else urlsplit(f"//x{target}")
    started: list[tuple[str, list[tuple[str, str]]]] = []
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(parts.path).decode("latin-1"),
        "QUERY_STRING": parts.query,
        "SERVER_NAME": "internal.example",
        "SERVER_PORT": "8042",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "HTTP_HOST": "gpus.example",
        "HTTP_ACCEPT": accept,
        "REMOTE_ADDR": peer,
        **{f"HTTP_{name.upper()}": value for name, value in headers.items()},
    }

    def start_response(status: str, fields: list[tuple[str, str]], exc_info: Any = None) -> None:
        started[:] = [(status, fields)]

    body = b"".join(app(environ, start_response))
    status_line, fields = started[0]
    assert len({name for name, _ in fields}) == len(fields), f"a header twice: {fields}"
    return Reply(int(status_line[:3]), dict(fields), body)


class Page(HTMLParser):
    """A page that was read: its tags with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.pieces: list[str] = []
        self.rows: list[list[str]] = []
        """Every table row as the texts of its cells, without those of tables inside a cell."""
        self._rows: list[list[str]] = []
        self._cells: list[list[str]] = []
        self.feed(html)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
            self._rows.append(self.rows[-1])
        if tag in ("td", "th"):
            self._rows[-1].append("")
            self._cells.append(self._rows[-1])
        if tag == "br":
            self.handle_data(" ")
        elif tag in ("dt", "dd", "li", "p", "td", "th"):
            self.pieces.append(" ")

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag
        if tag == "tr":
            self._rows.pop()
        if tag in ("td", "th"):
            self._cells.pop()

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)
        if self._cells:
            self._cells[-1][-1] += data

    @property
    def words(self) -> str:
        return " ".join("".join(self.pieces).split())

    @property
    def shape(self) -> list[tuple[str, tuple[str, ...]]]:
        """Tags and names of attributes, without anything that came from outside."""
        return [(tag, tuple(attrs)) for tag, attrs in self.tags]

    def links(self) -> list[str]:
        return [
            value
            for _, attrs in self.tags
            for name in ("href", "src")
            if (value := attrs.get(name)) is not None
        ]

    def row(self, first: str) -> list[str]:
        """Return the first row whose first cell is `first`."""
        return next(
            [cell.strip() for cell in row] for row in self.rows if row and row[0].strip() == first
        )


def page(app: Any, target: str) -> Page:
    reply = get(app, target)
    assert reply.code == 200, reply
    return Page(reply.text)
