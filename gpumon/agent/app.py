"""The agent's HTTP side: who may ask, and what for."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import bottle

from gpumon.agent.answers import Answers, json_age
from gpumon.agent.latest import Latest
from gpumon.agent.metrics import AgentMetrics
from gpumon.agent.rpc import AgentRpc
from gpumon.config import Config, Limits, MetricsConfig
from gpumon.http.auth import Tokens
from gpumon.http.certificates import Ends
from gpumon.http.doorman import Doorman, Refusal
from gpumon.http.hostcheck import HostCheck
from gpumon.http.sockets import is_loopback, join_address
from gpumon.metrics.exposition import CONTENT_TYPE as METRICS
from gpumon.model import encode

WHAT_THERE_IS = (
    "the agent answers POST /RPC2 (XML-RPC), GET /snapshot.json, GET /metrics and GET /healthz"
)

SENTENCES = {
    404: f"there is nothing at this address; {WHAT_THERE_IS}",
    405: f"this address does not take such a request; {WHAT_THERE_IS}",
}

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""On every answer. None of them opens the agent to pages of other origins, and none ever may."""

_LOOPBACK = "127.0.0.1"
_NO_GZIP = re.compile(r"q=0(\.0*)?")


def binds(config: Config) -> tuple[list[str], str | None]:
    """Return where the agent listens ("host:port"), and a sentence when that is less than asked.

    Without a token it answers this machine only, unless `allow_anonymous` says otherwise.
    """
    wanted = join_address(config.agent.bind, config.rpc_port)
    open_to_others = config.token_file is not None or config.agent.allow_anonymous
    if open_to_others or is_loopback(config.agent.bind):
        return [wanted], None
    warning = (
        f"no token_file: the agent answers on {_LOOPBACK} only. To open it write "
        "token_file: /etc/gpumon/token or agent: {allow_anonymous: true} in config.yml"
    )
    return [join_address(_LOOPBACK, config.rpc_port)], warning


def make_app(
    latest: Callable[[], Latest],
    tokens: Tokens | None,
    *,
    limits: Limits | None = None,
    metrics: MetricsConfig | None = None,
    certificate_ends: Ends | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> bottle.Bottle:
    """Return the agent as a WSGI application. `latest` is a supervisor's.

    `tokens` None opens it to everybody who can connect; then the Host header must name this machine
    (see `hostcheck`). `limits` and `metrics` shape what /metrics says, `certificate_ends` it tells.
    `clock` is the one that `Latest.taken_at` was read from.
    """
    app = bottle.Bottle()
    app.config["catchall"] = False  # the server logs and hides what is raised
    metrics_text = AgentMetrics(limits or Limits(), metrics or MetricsConfig(), certificate_ends)
    site = _AgentSite(latest, tokens, clock, metrics_text)
    app.add_hook("before_request", site.guard)
    app.add_hook("after_request", _harden)
    for path in ("/", "/RPC2"):
        app.route(path, "POST", site.xml_rpc)
    app.route("/snapshot.json", "GET", site.snapshot_json)
    app.route("/gpu_status", "GET", site.gpu_status)
    app.route("/metrics", "GET", site.metrics)
    app.route("/healthz", "GET", site.healthz)
    app.default_error_handler = _error
    return app


class _AgentSite:
    """The handlers of the agent's routes. They run in many threads at once."""

    def __init__(
        self,
        latest: Callable[[], Latest],
        tokens: Tokens | None,
        clock: Callable[[], float],
        metrics: AgentMetrics,
    ) -> None:
        self._latest = latest
        self._doorman = None if tokens is None else Doorman("agent", tokens, clock)
        self._clock = clock
        self._metrics = metrics
        self._answers = Answers(latest)
        self._rpc = AgentRpc(self._answers, clock)
        self._hosts = HostCheck() if tokens is None else None

    def guard(self) -> None:
        """Turn away who may not ask, before anything else is looked at."""
        request = bottle.request
        if request.path == "/healthz":
            return
        if self._doorman is not None:
            address = request.environ.get("REMOTE_ADDR", "")
            refusal = self._doorman.refusal(request.get_header("Authorization"), address)
            if refusal is not None:
                raise _refused(refusal)
        if self._hosts is not None and not self._hosts.accepts(request.get_header("Host")):
            raise _plain(
                421,
                "this name is not one of this machine; ask by its own name or its IP address, or "
                "set a token_file: with a token any name will do",
            )

    def xml_rpc(self) -> bytes:
        request = bottle.request
        if request.get_header("Origin") is not None:
            raise _plain(403, "XML-RPC is for programs, not for web pages (Origin was sent)")
        kind = (request.content_type or "").partition(";")[0].strip().lower()
        if kind not in ("text/xml", "application/xml"):
            raise _plain(415, "XML-RPC must be sent as Content-Type: text/xml")
        if request.get_header("Content-Encoding", "identity").lower() != "identity":
            raise _plain(415, "the request must be sent without Content-Encoding")
        call = request.environ["wsgi.input"].read()
        body, compressed = self._rpc.respond(call, gzip=_wants_gzip())
        return _sent(body, "text/xml; charset=utf-8", compressed)

    def snapshot_json(self) -> bytes:
        forms = self._answers.now()
        form, age = forms.json(), json_age(forms.latest.age(self._clock()))
        compressed = _wants_gzip()
        body = form.gzip(age) if compressed else form.plain(age)
        return _sent(body, "application/json", compressed)

    def gpu_status(self) -> bytes:
        """Answer as nvgpu's agents do; where the reading is too old, nothing is available."""
        form, fresh = self._answers.now(), self._latest().is_fresh(self._clock())
        return _sent(form.nvgpu() if fresh else form.nvgpu_stale(), "application/json", False)

    def metrics(self) -> bytes:
        compressed = _wants_gzip()
        body = self._metrics.text(self._answers.now(), self._clock(), gzip=compressed)
        return _sent(body, METRICS, compressed)

    def healthz(self) -> bytes:
        latest, now = self._latest(), self._clock()
        ok, age = latest.is_fresh(now), latest.age(now)
        bottle.response.status = 200 if ok else 503
        told = {"ok": ok, "sample_age_seconds": None if age is None else round(age, 3)}
        return _sent(encode(told), "application/json", False)


def _harden() -> None:
    for name, value in HEADERS.items():
        bottle.response.set_header(name, value)


def _error(error: bottle.HTTPError) -> bytes:
    sentence = SENTENCES.get(error.status_code, "this request can't be answered")
    return _sent(f"{sentence}\n".encode(), "text/plain; charset=utf-8", False)


def _plain(status: int, sentence: str, **headers: str) -> bottle.HTTPResponse:
    response = bottle.HTTPResponse(f"{sentence}\n".encode(), status, **headers)
    response.content_type = "text/plain; charset=utf-8"
    return response


def _refused(refusal: Refusal) -> bottle.HTTPResponse:
    if refusal.retry_after is not None:
        return _plain(
            429,
            "too many wrong tokens came from this address; try again later, with the right one",
            Retry_After=str(refusal.retry_after),
        )
    what = (
        "wrong token: the one that came is none of those in this agent's token_file"
        if refusal.showed_token
        else "a token is needed, and none came"
    )
    return _plain(
        401,
        f"{what}. Send Authorization: Bearer TOKEN, or the token as the password of Basic "
        "(http://gpumon:TOKEN@host:port)",
        WWW_Authenticate='Basic realm="gpumon"',
    )


def _sent(body: bytes, content_type: str, compressed: bool) -> bytes:
    """Prepare the response for `body`, and return it."""
    bottle.response.content_type = content_type
    bottle.response.set_header("Vary", "Accept-Encoding")
    if compressed:
        bottle.response.set_header("Content-Encoding", "gzip")
    return body


def _wants_gzip() -> bool:
    accepted: Any = bottle.request.get_header("Accept-Encoding", "")
    for offer in accepted.lower().replace(" ", "").split(","):
        coding, _, quality = offer.partition(";")
        if coding == "gzip":
            return _NO_GZIP.fullmatch(quality) is None
    return False
