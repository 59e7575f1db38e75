"""The server's page, text and JSON: routes. What they say stands in the modules beside this one."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Hashable, Sequence
from typing import Any
from urllib.parse import quote

import bottle

from gpumon.cluster.metrics import PollCounts, metrics, targets
from gpumon.cluster.status import ClusterStatus, HostStatus
from gpumon.config import Config, HostEntry
from gpumon.http.hostcheck import HostCheck
from gpumon.metrics.exposition import CONTENT_TYPE as METRICS
from gpumon.model import HostSnapshot, encode
from gpumon.text import clean
from gpumon.version import __version__
from gpumon.web import front, text
from gpumon.web.answers import (
    FOR_A_YEAR,
    HTML,
    JSON,
    REVALIDATE,
    TEXT,
    answer,
    validated,
    wanted,
)
from gpumon.web.assets import load_assets
from gpumon.web.earlier.routes import Earlier
from gpumon.web.entrances import Entrance
from gpumon.web.host_page import host_json, host_page
from gpumon.web.hosts import host_row
from gpumon.web.links import name_of, root_of, segment, without_suffix
from gpumon.web.openapi import openapi
from gpumon.web.refresh import refresh_seconds
from gpumon.web.renderings import Rendering, Renderings
from gpumon.web.templates import Templates, details_of
from gpumon.web.user_page import summary_words, user_answer

MOST_COMPARED = 5000
"""So many names are compared with one that was mistyped."""

_NAME = "<name:re:(?s:.+)>"
"""Of a host or user: anything at all."""


def make_app(
    *,
    status: Callable[[], ClusterStatus],
    detail: Callable[[str], HostSnapshot | None],
    config: Config,
    entrances: Sequence[Entrance] = (),
    polls: Callable[[], PollCounts] = PollCounts,
    entries: Callable[[], list[HostEntry]] | None = None,
) -> bottle.Bottle:
    """Return the WSGI application.

    `status` gives the cluster at its current revision, `detail` the last reading of a host by its
    name, `polls` how the polls have ended, `entries` the configured hosts (None: those of
    `config`); all may be called from any thread. With `config.web.prefix` the application answers
    under that prefix as well as without it, so that it doesn't matter whether a proxy strips it.
    `entrances` are where readings come in by themselves; without any, everything only reads.
    """
    app = _Site(status, detail, config, polls, entries or (lambda: config.hosts)).app
    for entrance in entrances:
        entrance.mount(app)
    return app


class _Site:
    def __init__(
        self,
        status: Callable[[], ClusterStatus],
        detail: Callable[[str], HostSnapshot | None],
        config: Config,
        polls: Callable[[], PollCounts],
        entries: Callable[[], list[HostEntry]],
    ) -> None:
        self._status = status
        self._detail = detail
        self._polls = polls
        self._entries = entries
        self._metrics_config = config.metrics
        self._prefix = config.web.prefix
        self._brand = clean(config.web.title)
        self._assets = load_assets()
        self._templates = Templates(
            css=self._asset_link("gpumon.css"), icon=self._asset_link("favicon.svg")
        )
        self._renderings = Renderings()
        self._described: Rendering | None = None
        self.app = app = bottle.Bottle()
        app.config["catchall"] = False  # the server logs and hides what is raised
        app.add_hook("before_request", self._strip_prefix)
        if config.web.hostnames:
            self._hosts = HostCheck(config.web.hostnames)
            app.add_hook("before_request", self._check_host)
        app.default_error_handler = self._error
        for path in ("/", "/index", "/gpus", "/gpus/"):
            app.get(path, callback=self._front)
        app.get("/status.json", callback=self._status_json)
        app.get("/status.txt", callback=self._status_text)
        app.get(f"/host/{_NAME}", callback=self._host)
        app.get(f"/user/{_NAME}", callback=self._user)
        app.get("/healthz", callback=self._health)
        app.get("/openapi.json", callback=self._openapi)
        app.get("/metrics", callback=self._metrics)
        app.get("/sd/prometheus", callback=self._prometheus_targets)
        app.get("/static/<name>", callback=self._static)
        app.get("/favicon.ico", callback=lambda: self._static("favicon.svg"))
        this_host = next((host.name for host in config.hosts if host.source == "self"), None)
        self._earlier = Earlier(self._live, status, detail, this_host)
        self._earlier.add_to(app)

    def _strip_prefix(self) -> None:
        """Take a configured prefix off the path; a prefix without its slash is sent on.

        The address sent is relative, so it is right whatever host and scheme the browser sees.
        """
        path = bottle.request.environ["PATH_INFO"]
        if self._prefix and path == self._prefix:
            seconds = _refresh_seconds()
            query = "" if seconds is None else f"?refresh={seconds}"
            location = f"{quote(self._prefix.rpartition('/')[2])}/{query}"
            raise answer(
                b"This address ends in a slash.\n", TEXT, status=302, headers={"Location": location}
            )
        if self._prefix and path.startswith(f"{self._prefix}/"):
            bottle.request.environ["PATH_INFO"] = path[len(self._prefix) :]

    def _check_host(self) -> None:
        """Turn away who came by a name that nobody configured: a web page's own, perhaps."""
        request = bottle.request
        if request.path != "/healthz" and not self._hosts.accepts(request.get_header("Host")):
            words = "This page does not go by that name. web.hostnames lists those that it has."
            raise self._sentence(421, words)

    def _front(self) -> bottle.HTTPResponse:
        asked_in_earlier_form = self._earlier.front()
        if asked_in_earlier_form is not None:
            return asked_in_earlier_form
        kind = wanted(bottle.request.get_header("Accept", ""))
        vary = "Accept, Accept-Encoding"
        if kind == JSON:
            return self._status_json(vary)
        if kind == TEXT:
            return self._status_text(vary)

        def render(status: ClusterStatus, root: str, refreshing: bool) -> bytes:
            view = front.front(status)
            return self._page(
                "front.tpl",
                status,
                root,
                refreshing,
                title=f"{front.headline(status)} - {self._brand}",
                here="",
                twin="status.json",
                view=view,
                starred=view.starred,
                details=details_of(status),
            )

        return self._live_page("front", render, vary)

    def _status_json(self, vary: str = "Accept-Encoding") -> bottle.HTTPResponse:
        return self._live("json", JSON, encode, vary)

    def _status_text(self, vary: str = "Accept-Encoding") -> bottle.HTTPResponse:
        return self._live("text", TEXT, lambda status: text.render(status).encode("ascii"), vary)

    def _host(self, name: str) -> bottle.HTTPResponse:
        plain, wants_json = without_suffix(name)
        host = _find_host(self._status(), plain)
        if host is None:
            return self._unknown_host(name_of(plain))
        key = host.name

        def json(status: ClusterStatus) -> bytes:
            return host_json(status, _named(status, key) or host, self._detail(key))

        def page(status: ClusterStatus, root: str, refreshing: bool) -> bytes:
            shown, detail = _named(status, key) or host, self._detail(key)
            here = f"host/{segment(key)}"
            said = host_page(shown, detail, status.time)
            return self._page(
                "host.tpl",
                status,
                root,
                refreshing,
                title=f"{key} - {self._brand}",
                here=here,
                twin=f"{here}.json",
                host=shown,
                row=host_row(shown),
                page=said,
                starred=said.starred,
                detail=detail,
            )

        if wants_json:
            return self._live(("host json", key), JSON, json)
        return self._live_page(("host", key), page)

    def _user(self, name: str) -> bottle.HTTPResponse:
        plain, wants_json = without_suffix(name)
        user = name_of(plain)
        here = f"user/{segment(user)}"

        def page(status: ClusterStatus, root: str, refreshing: bool) -> bytes:
            found = user_answer(status, user)
            return self._page(
                "user.tpl",
                status,
                root,
                refreshing,
                title=f"{user} - {self._brand}",
                here=here,
                twin=f"{here}.json",
                answer=found,
                summary=summary_words(found),
                starred=any(held.user_by is not None for held in found.gpus),
            )

        if wants_json:
            return self._live(
                ("user json", user), JSON, lambda status: encode(user_answer(status, user))
            )
        return self._live_page(("user", user), page)

    def _health(self) -> bottle.HTTPResponse:
        status = self._status()
        facts = {
            "status": "ok",
            "version": __version__,
            "simulated": status.simulated,
            "revision": status.revision,
            "time": status.time,
            "hosts": status.totals.hosts,
            "hosts_fresh": status.totals.hosts_fresh,
        }
        return answer(encode(facts), JSON)

    def _openapi(self) -> bottle.HTTPResponse:
        if self._described is None:
            self._described = Rendering(openapi(), JSON)
        return validated(self._described, f"openapi-{__version__}")

    def _metrics(self) -> bottle.HTTPResponse:
        return self._live(
            "metrics",
            METRICS,
            lambda status: metrics(status, self._polls(), self._metrics_config),
        )

    def _prometheus_targets(self) -> bottle.HTTPResponse:
        return answer(encode(targets(self._entries())), JSON)

    def _static(self, name: str) -> bottle.HTTPResponse:
        asset = self._assets.get(name)
        if asset is None:
            raise bottle.HTTPError(404)
        versioned = bottle.request.query.get("v") == asset.digest
        return validated(
            asset.rendering, asset.digest, cache=FOR_A_YEAR if versioned else REVALIDATE
        )

    def _asset_link(self, name: str) -> str:
        return f"static/{name}?v={self._assets[name].digest}"

    def _page(
        self, name: str, status: ClusterStatus, root: str, refreshing: bool, **values: Any
    ) -> bytes:
        return self._templates.render(
            name, root=root, status=status, brand=self._brand, refreshing=refreshing, **values
        )

    def _live_page(
        self,
        form: Hashable,
        render: Callable[[ClusterStatus, str, bool], bytes],
        vary: str = "Accept-Encoding",
    ) -> bottle.HTTPResponse:
        root = root_of(bottle.request.environ["PATH_INFO"])
        refreshing = _refresh_seconds() is not None
        return self._live(
            (form, root, refreshing),
            HTML,
            lambda status: render(status, root, refreshing),
            vary,
        )

    def _live(
        self,
        form: Hashable,
        content_type: str,
        render: Callable[[ClusterStatus], bytes],
        vary: str = "Accept-Encoding",
    ) -> bottle.HTTPResponse:
        """Answer with live data in one form: from the cache, or as 304."""
        status = self._status()
        rendering = self._renderings.get(
            status.revision, form, lambda: Rendering(render(status), content_type)
        )
        seconds = _refresh_seconds()
        refreshing = "" if seconds is None else "-r"
        kind = content_type.partition(";")[0].rpartition("/")[2]
        return validated(
            rendering,
            f"{status.revision}-{kind}{refreshing}",
            vary=vary,
            headers={} if seconds is None else {"Refresh": str(seconds)},
        )

    def _unknown_host(self, name: str) -> bottle.HTTPResponse:
        names = [host.name for host in self._status().hosts[:MOST_COMPARED]]
        near = difflib.get_close_matches(name[:64], names, n=4, cutoff=0.5)
        return self._sentence(404, f"There is no host {clean(name, 80)!r} here.", near=near)

    def _error(self, error: bottle.HTTPError) -> bottle.HTTPResponse:
        words = _ERRORS.get(error.status_code, "This request could not be answered.")
        headers = {"Allow": "GET, HEAD"} if error.status_code == 405 else {}
        return self._sentence(error.status_code, words, headers=headers)

    def _sentence(
        self,
        code: int,
        words: str,
        *,
        near: list[str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> bottle.HTTPResponse:
        """Answer with one sentence, as page, JSON or text."""
        path = bottle.request.environ["PATH_INFO"]
        kind = wanted(bottle.request.get_header("Accept", ""))
        if kind == JSON or path.endswith(".json"):
            body, kind = encode({"error": words, "near": near or []}), JSON
        elif kind == HTML:
            body = self._templates.render(
                "message.tpl",
                root=root_of(path),
                brand=self._brand,
                title=f"{code} - {self._brand}",
                heading=words,
                near=near or [],
            )
        else:
            also = f" Did you mean {', '.join(near)}?" if near else ""
            body = f"{text.plain(words + also, 400)}\n".encode("ascii")
        return answer(body, kind, status=code, headers={"Vary": "Accept", **(headers or {})})


_ERRORS = {
    404: "There is nothing at this address.",
    405: "This address can only be read: use GET or HEAD.",
}


def _refresh_seconds() -> int | None:
    return refresh_seconds(bottle.request.query.get("refresh", ""))


def _find_host(status: ClusterStatus, decoded: str) -> HostStatus | None:
    """Return the host of a decoded segment; one typed by hand is taken as it stands."""
    return _named(status, decoded) or _named(status, name_of(decoded))


def _named(status: ClusterStatus, name: str) -> HostStatus | None:
    return next((host for host in status.hosts if host.name == name), None)
