"""POST /RPC2: where agents push. It is there only where `web.push_token_file` is set."""

from __future__ import annotations

import logging
from typing import Any

import bottle

from gpumon.cluster.sources.pushed import PushInbox, Refused
from gpumon.http import xmlrpc
from gpumon.http.push_tokens import Caller, PushTokens, caller_of
from gpumon.http.wsgi import TOO_LARGE
from gpumon.http.xmlrpc import RpcError
from gpumon.web.answers import TEXT, answer
from gpumon.web.refused_pushes import Refusals

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 1024 * 1024
"""Of a push: many times what 16 GPUs full of processes need."""
MAX_UNKNOWN_BYTES = 64 * 1024
"""Of a push without a good token, which is turned away whatever stands in it."""
PATH = "/RPC2"

NOT_EXPECTED = 2
BAD_PUSH = 3
"""Fault codes beside those of `gpumon.http.xmlrpc`."""

_WHOLE = (str, float, str, str, str)
_KNOWN = (str, float, str, str)


class PushDesk:
    """The handler of pushes; runs in many threads at once."""

    def __init__(self, inbox: PushInbox, tokens: PushTokens, refusals: Refusals) -> None:
        self._inbox = inbox
        self._tokens = tokens
        self._refusals = refusals

    def mount(self, app: bottle.Bottle) -> None:
        """Add the route."""
        app.post(PATH, callback=self._post)

    def body_limit(self, path: str, query: str, authorization: str | None) -> int | None:
        """Return how large a push may be, before it is read; None: as other requests.

        So who has no token can't make the server hold a large one.
        """
        del query
        if not path.endswith(PATH):
            return None
        known = self._tokens.accepts(caller_of(authorization))
        return MAX_BODY_BYTES if known else MAX_UNKNOWN_BYTES

    def _post(self) -> bottle.HTTPResponse:
        request = bottle.request
        if _header("ORIGIN") is not None:
            return _plain(403, "a push comes from an agent, not from a web page (Origin was sent)")
        caller = caller_of(_header("AUTHORIZATION"))
        if not self._tokens.accepts(caller):
            return self._unknown(caller)
        if (limit := request.environ.get(TOO_LARGE)) is not None:
            return self._too_large(caller, limit)
        kind = str(request.environ.get("CONTENT_TYPE", "")).partition(";")[0].strip().lower()
        if kind not in ("text/xml", "application/xml"):
            return _plain(415, "a push must be sent as Content-Type: text/xml")
        if (_header("CONTENT_ENCODING") or "identity").lower() != "identity":
            return _plain(415, "a push must be sent without Content-Encoding")
        try:
            body = self._pushed(caller.name, request.environ["wsgi.input"].read())
        except Refused as refused:
            self._refusals.note(_address(), caller.name, str(refused))
            code = BAD_PUSH if refused.kind == "bad answer" else NOT_EXPECTED
            body = xmlrpc.fault(RpcError(code, str(refused)))
        except RpcError as error:
            self._refusals.note(_address(), caller.name, str(error))
            body = xmlrpc.fault(error)
        return answer(body, "text/xml; charset=utf-8")

    def _pushed(self, machine: str, body: bytes) -> bytes:
        method, parameters = xmlrpc.parse_call(body)
        if method != "push":
            raise RpcError(xmlrpc.UNKNOWN_METHOD, "there is no such method here; there is push()")
        values: list[Any] = [float(v) if type(v) is int else v for v in parameters]
        kinds = tuple(type(value) for value in values)
        if kinds not in (_WHOLE, _KNOWN):
            raise RpcError(
                xmlrpc.WRONG_PARAMETERS,
                "push: expected ticket, held seconds, revision, summary and packed detail, or "
                "ticket, held seconds, revision and news",
            )
        host = self._inbox.host_of(machine)
        taker = self._inbox.push if kinds == _WHOLE else self._inbox.push_known
        return xmlrpc.answer(list(taker(host, *values)))

    def _unknown(self, caller: Caller) -> bottle.HTTPResponse:
        """Turn away whoever has no token for the name that it gives."""
        words = "no token of web.push_token_file that is good for this name"
        self._refusals.note(_address(), caller.name, words)
        self._inbox.refused(
            caller.name,
            "wrong token",
            f"wrong token: a push as {caller.name} from {_address()} came with {words}. "
            "Put the server's token first into that agent's token_file",
        )
        return _plain(
            401,
            f"{words}: push as http://NAME:TOKEN@server, NAME as in push://NAME of its hosts",
            {"WWW-Authenticate": 'Basic realm="gpumon push"'},
        )

    def _too_large(self, caller: Caller, limit: int) -> bottle.HTTPResponse:
        """Turn away a push that was not read to its end."""
        words = f"it has more than {limit} bytes: not read"
        self._refusals.note(_address(), caller.name, words)
        self._inbox.refused(
            caller.name,
            "failed",
            f"failed: a push as {caller.name} from {_address()} was refused: {words}. If that host "
            "has so many processes, let the server ask it in place of push://",
        )
        return _plain(413, f"the push is refused: {words}")


def _header(name: str) -> str | None:
    """Return a header as it came; bottle's own way fails on one that is no UTF-8."""
    value: str | None = bottle.request.environ.get(f"HTTP_{name}")
    return value


def _address() -> str:
    return str(bottle.request.environ.get("REMOTE_ADDR", "?"))


def _plain(status: int, sentence: str, headers: dict[str, str] | None = None) -> Any:
    return answer(f"{sentence}\n".encode(), TEXT, status=status, headers=headers)
