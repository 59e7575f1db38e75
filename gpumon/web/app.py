"""The server's page, text and JSON: routes. What they say stands in the modules beside this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from gpumon.web import front, help_text, host_text, text, user_text
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
from gpumon.web.help_page import help_page
from gpumon.web.host_page import host_json, host_page
from gpumon.web.hosts import host_row
from gpumon.web.links import name_of, root_of, segment, without_suffix
from gpumon.web.live import HIDDEN_NAMES, Live, Seen, current_address
from gpumon.web.me import own_style
from gpumon.web.openapi import openapi
from gpumon.web.refusals import Refusals
from gpumon.web.renderings import Rendering
from gpumon.web.schema import json_schema
from gpumon.web.templates import Templates
from gpumon.web.user_page import summary_words, user_answer

_NAME = "<name:re:(?s:.+)>"
"""Of a host or user: anything at all."""

_BY_ACCEPT = "Accept, Accept-Encoding"


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
    live = Live(status, detail, config)
    app = _Site(live, config, polls, entries or (lambda: config.hosts)).app
    for entrance in entrances:
        entrance.mount(app)
    return app


class _Site:
    def __init__(
        self,
        live: Live,
        config: Config,
        polls: Callable[[], PollCounts],
        entries: Callable[[], list[HostEntry]],
    ) -> None:
        self._live = live
        self._polls = polls
        self._entries = entries
        self._metrics_config = config.metrics
        self._prefix = config.web.prefix
        self._colors = config.web.colors
        self._limits = config.limits
        self._brand = clean(config.web.title)
        self._assets = load_assets()
        self._templates = Templates(
            css=self._asset_link("gpumon.css"),
            script=self._asset_link("gpumon.js"),
            icon=self._asset_link("favicon.svg"),
            brand=self._brand,
            refresh_seconds=config.web.refresh_seconds,
        )
        self._refusals = Refusals(self._templates, self._brand)
        self._documents: dict[str, Rendering] = {}
        self.app = app = bottle.Bottle()
        app.config["catchall"] = False  # the server logs and hides what is raised
        app.add_hook("before_request", self._strip_prefix)
        if config.web.hostnames:
            self._hosts = HostCheck(config.web.hostnames)
            app.add_hook("before_request", self._check_host)
        app.default_error_handler = self._refusals.error
        for path in ("/", "/index", "/gpus", "/gpus/"):
            app.get(path, callback=self._front)
        app.get("/status.json", callback=self._status_json)
        app.get("/status.txt", callback=self._status_text)
        app.get(f"/host/{_NAME}", callback=self._host)
        app.get(f"/user/{_NAME}", callback=self._user)
        app.get("/help", callback=self._help)
        app.get("/help.json", callback=lambda: self._help(wants_json=True))
        app.get("/me", callback=self._me)
        app.get("/me.css", callback=self._me_style)
        app.get("/healthz", callback=self._health)
        app.get("/openapi.json", callback=lambda: self._document("openapi", openapi))
        app.get("/schema.json", callback=lambda: self._document("schema", json_schema))
        app.get("/metrics", callback=self._metrics)
        app.get("/sd/prometheus", callback=self._prometheus_targets)
        app.get("/static/<name>", callback=self._static)
        app.get("/favicon.ico", callback=lambda: self._static("favicon.svg"))
        this_host = next((host.name for host in config.hosts if host.source == "self"), None)
        self._earlier = Earlier(live, this_host)
        self._earlier.add_to(app)

    def _strip_prefix(self) -> None:
        """Take a configured prefix off the path; a prefix without its slash is sent on.

        The address sent is relative, so it is right whatever host and scheme the browser sees.
        """
        path = bottle.request.environ["PATH_INFO"]
        if self._prefix and path == self._prefix:
            query = current_address().but()
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
            raise self._refusals.sentence(421, words)

    def _front(self) -> bottle.HTTPResponse:
        asked_in_earlier_form = self._earlier.front()
        if asked_in_earlier_form is not None:
            return asked_in_earlier_form
        kind = wanted(bottle.request.get_header("Accept", ""))
        if kind == JSON:
            return self._status_json(_BY_ACCEPT)
        if kind == TEXT:
            return self._status_text(_BY_ACCEPT)

        def page(seen: Seen, root: str) -> bytes:
            chosen = seen.chosen()
            view = front.front(chosen, seen.address)
            return self._page(
                "front.tpl",
                seen,
                root,
                title=f"{front.headline(seen.status)} - {self._brand}",
                here="",
                twin=f"status.json{seen.address.but(view='', colors='', all='', refresh='')}",
                view=view,
                chosen=chosen,
                remarks=[*seen.remarks(chosen), *view.remarks],
                starred=view.starred,
            )

        return self._live_page("front", page, _BY_ACCEPT)

    def _status_json(self, vary: str = "Accept-Encoding") -> bottle.HTTPResponse:
        return self._live.answer("status", JSON, lambda seen: encode(seen.said()), vary)

    def _status_text(self, vary: str = "Accept-Encoding") -> bottle.HTTPResponse:
        return self._live.answer(
            "status", TEXT, lambda seen: text.render(seen.said()).encode("ascii"), vary
        )

    def _host(self, name: str) -> bottle.HTTPResponse:
        plain, wants_json = without_suffix(name)
        host = _find_host(self._live.status(), plain)
        if host is None:
            names = [host.name for host in self._live.status().hosts]
            return self._refusals.unknown_host(name_of(plain), names)
        key = host.name

        def reading(seen: Seen) -> tuple[HostStatus, HostSnapshot | None]:
            shown = _named(seen.status, key)
            if shown is None:  # it was taken out of the configuration in this very moment
                raise bottle.HTTPError(404)
            return shown, self._live.detail(key, seen.sight)

        def page(seen: Seen, root: str) -> bytes:
            shown, detail = reading(seen)
            here = f"host/{segment(key)}"
            said = host_page(shown, detail, seen.status.time)
            return self._page(
                "host.tpl",
                seen,
                root,
                title=f"{key} - {self._brand}",
                here=here,
                twin=f"{here}.json",
                host=shown,
                row=host_row(shown),
                page=said,
                starred=said.starred,
                detail=detail,
            )

        return self._in_three_forms(
            ("host", key),
            wants_json,
            page,
            lambda seen: host_json(seen.status, *reading(seen)),
            lambda seen: host_text.render(seen.status, *reading(seen)),
        )

    def _user(self, name: str) -> bottle.HTTPResponse:
        plain, wants_json = without_suffix(name)
        user = name_of(plain)
        here = f"user/{segment(user)}"

        def page(seen: Seen, root: str) -> bytes:
            found = user_answer(seen.status, user)
            return self._page(
                "user.tpl",
                seen,
                root,
                title=f"{user} - {self._brand}",
                here=here,
                twin=f"{here}.json",
                answer=found,
                summary=HIDDEN_NAMES if seen.hides(user) else summary_words(found),
                starred=any(held.user_by is not None for held in found.gpus),
            )

        def plain_text(seen: Seen) -> str:
            if seen.hides(user):
                return f"{HIDDEN_NAMES}\n"
            return user_text.render(user_answer(seen.status, user), seen.status)

        return self._in_three_forms(
            ("user", user),
            wants_json,
            page,
            lambda seen: encode(user_answer(seen.status, user)),
            plain_text,
        )

    def _help(self, *, wants_json: bool = False) -> bottle.HTTPResponse:
        told = help_page(self._limits)

        def page(seen: Seen, root: str) -> bytes:
            return self._page(
                "help.tpl", seen, root, title=f"Help - {self._brand}", here="help",
                twin="help.json", page=told, starred=False,
            )  # fmt: skip

        return self._in_three_forms(
            "help",
            wants_json,
            page,
            lambda _: encode(told._asdict()),
            lambda _: help_text.render(told),
        )

    def _me(self) -> bottle.HTTPResponse:
        """Send a reader who is logged in on to the own page."""
        name = self._live.reader().name
        headers = self._live.headers()
        if name is None:
            words = "Nobody is logged in here: this server is not told who reads."
            return self._refusals.sentence(404, words, headers=headers)
        location = f"user/{segment(name)}"
        return answer(b"Your page.\n", TEXT, status=302, headers={**headers, "Location": location})

    def _me_style(self) -> bottle.HTTPResponse:
        body = own_style(self._live.reader().name).encode()
        return answer(body, "text/css; charset=utf-8", headers=self._live.headers())

    def _health(self) -> bottle.HTTPResponse:
        status = self._live.status()
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

    def _document(self, name: str, make: Callable[[], bytes]) -> bottle.HTTPResponse:
        """Answer with a description that is the same as long as the server runs."""
        if name not in self._documents:
            self._documents[name] = Rendering(make(), JSON)
        return validated(self._documents[name], f"{name}-{__version__}")

    def _metrics(self) -> bottle.HTTPResponse:
        return self._live.answer(
            "metrics",
            METRICS,
            lambda seen: metrics(seen.status, self._polls(), self._metrics_config),
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

    def _page(self, name: str, seen: Seen, root: str, **values: Any) -> bytes:
        return self._templates.render(
            name,
            root=root,
            status=seen.status,
            address=seen.address,
            personal=seen.personal,
            colors=seen.address.colors or self._colors,
            commands=seen.sight.commands,
            **values,
        )

    def _in_three_forms(
        self,
        form: str | tuple[str, str],
        wants_json: bool,
        page: Callable[[Seen, str], bytes],
        json: Callable[[Seen], bytes],
        plain: Callable[[Seen], str],
    ) -> bottle.HTTPResponse:
        """Answer with JSON where the address ends so, else with what the client accepts."""
        if wants_json:
            return self._live.answer(form, JSON, json)
        kind = wanted(bottle.request.get_header("Accept", ""))
        if kind == JSON:
            return self._live.answer(form, JSON, json, _BY_ACCEPT)
        if kind == TEXT:
            return self._live.answer(
                form, TEXT, lambda seen: plain(seen).encode("ascii"), _BY_ACCEPT
            )
        return self._live_page(form, page, _BY_ACCEPT)

    def _live_page(
        self,
        form: str | tuple[str, str],
        render: Callable[[Seen, str], bytes],
        vary: str = "Accept-Encoding",
    ) -> bottle.HTTPResponse:
        root = root_of(bottle.request.environ["PATH_INFO"])
        return self._live.answer((form, root), HTML, lambda seen: render(seen, root), vary)


def _find_host(status: ClusterStatus, decoded: str) -> HostStatus | None:
    """Return the host of a decoded segment; one typed by hand is taken as it stands."""
    return _named(status, decoded) or _named(status, name_of(decoded))


def _named(status: ClusterStatus, name: str) -> HostStatus | None:
    return next((host for host in status.hosts if host.name == name), None)
