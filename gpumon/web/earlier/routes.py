"""Addresses of the earlier tools' servers. docs/switching.md lists them for their readers."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import bottle

from gpumon.agent.nvgpu import gpu_status
from gpumon.cluster.status import ClusterStatus, HostStatus
from gpumon.model import encode
from gpumon.text import clean
from gpumon.web.answers import JSON, TEXT, answer
from gpumon.web.earlier import term
from gpumon.web.earlier.nvgpu import cluster_status
from gpumon.web.earlier.readings import Detail
from gpumon.web.earlier.states import all_states, host_state
from gpumon.web.live import Live, Seen

_FALSE = ("", "0", "false", "no", "off")
_LARGEST = 1_000_000


class Earlier:
    """The routes. `this_host` is the name of the host that the server runs on, if it is polled."""

    def __init__(self, live: Live, this_host: str | None) -> None:
        self._live = live
        self._this_host = this_host

    def add_to(self, app: bottle.Bottle) -> None:
        for path in ("/states", "/states/"):
            app.get(path, callback=self._states)
        for path in ("/states/<name>", "/states/<name>/"):
            app.get(path, callback=self._host)
        for path in ("/gpu_table", "/gpu_table/"):
            app.get(path, callback=self._table)
        app.get("/gpu_status", callback=self._gpu_status)
        app.get("/cluster_status", callback=self._cluster_status)

    def front(self) -> bottle.HTTPResponse | None:
        """Return vesta's text of all hosts where the request is for it, else None."""
        if not _is_true("term"):
            return None
        if _is_true("detail"):
            return self._text(
                "earlier detail", lambda status, detail: term.detailed(status, status.hosts, detail)
            )
        page = _number("page", None)
        if page is not None and page < 1:
            raise _refused(400, f"page is a number from 1 on, found {page}")
        return self._text(
            ("earlier summary", page), lambda status, detail: term.summary(status, detail, page)
        )

    def _states(self) -> bottle.HTTPResponse:
        fetch = _fetch()
        return self._json(
            ("states", fetch), lambda status, detail: all_states(status, detail, fetch)
        )

    def _host(self, name: str) -> bottle.HTTPResponse:
        if self._find(self._live.status(), name) is None:
            raise _refused(404, f"there is no host {clean(name, 80)!r} here")

        def host(status: ClusterStatus) -> HostStatus:
            found = self._find(status, name)
            if found is None:  # taken out of the configuration a moment ago
                raise _refused(404, f"there is no host {clean(name, 80)!r} here")
            return found

        if _is_true("term"):
            return self._text(
                ("earlier host", name),
                lambda status, detail: term.detailed(status, [host(status)], detail),
            )
        fetch = _fetch()
        return self._json(
            ("state", name, fetch), lambda status, detail: host_state(host(status), detail, fetch)
        )

    def _table(self) -> bottle.HTTPResponse:
        if _is_true("term"):
            return self._text("earlier table", term.table)
        # The front page has the same at a glance.
        there = answer(b"The table is part of the page.\n", TEXT, status=302)
        there.set_header("Location", "./" if bottle.request.path == "/gpu_table" else "../")
        raise there

    def _gpu_status(self) -> bottle.HTTPResponse:
        name = self._this_host
        if name is None:
            raise _refused(
                404,
                "this server does not read GPUs of its own machine (no host 'self' in config.yml); "
                "all hosts: /cluster_status",
            )

        def render(_: ClusterStatus, detail: Detail) -> Any:
            snapshot = detail(name)
            if snapshot is None:
                return {"error": "there is no reading yet", "hostname": name}
            return gpu_status(snapshot)

        return self._json("gpu_status", render)

    def _cluster_status(self) -> bottle.HTTPResponse:
        return self._json("cluster_status", cluster_status)

    def _json(
        self, form: Hashable, render: Callable[[ClusterStatus, Detail], Any]
    ) -> bottle.HTTPResponse:
        return self._live.answer(
            form, JSON, lambda seen: encode(render(seen.status, self._seen_by(seen)))
        )

    def _text(
        self, form: Hashable, render: Callable[[ClusterStatus, Detail], str]
    ) -> bottle.HTTPResponse:
        return self._live.answer(
            form,
            TEXT,
            lambda seen: render(seen.status, self._seen_by(seen)).encode("ascii", "replace"),
        )

    def _seen_by(self, seen: Seen) -> Detail:
        """Return the details of hosts as far as the reader may see them."""
        return lambda host: self._live.detail(host, seen.sight)

    @staticmethod
    def _find(status: ClusterStatus, name: str) -> HostStatus | None:
        return next((host for host in status.hosts if host.name == name), None)


def _is_true(name: str) -> bool:
    """Return whether a word of the query is set; `term=false` is false."""
    return bottle.request.query.get(name, "").strip().lower() not in _FALSE


def _fetch() -> int:
    """Return how many readings were asked for: 0 or 1, since the server keeps the newest."""
    count = _number("fetch_num", 1)
    assert count is not None
    if count < 0:
        raise _refused(400, f"fetch_num is a number from 0 on, found {count}")
    return min(count, 1)


def _number(name: str, default: int | None) -> int | None:
    value = bottle.request.query.get(name, "").strip()
    if not value:
        return default
    digits = value.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 9:
        raise _refused(400, f"{name} is a whole number, found {clean(value, 40)!r}")
    return max(-_LARGEST, min(_LARGEST, int(value)))


def _refused(code: int, words: str) -> bottle.HTTPResponse:
    """Return an error in vesta's form."""
    body: dict[str, Any] = {"status": "ERROR", "status_code": code, "message": words}
    return answer(encode(body), JSON, status=code)
