"""`/register/` and `/update/host/<id>` for vesta's unchanged senders; off unless configured.

A sender looks at HTTP 200 and at `status_code` in the body only, so refusals are sent with HTTP 200
on these two routes. It puts its token into the address, where proxies log it: so it has a token
file of its own.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from typing import Any
from urllib.parse import parse_qs

import bottle

from gpumon.cluster.sources.pushed import PushInbox, Refused
from gpumon.cluster.sources.vesta import Unreadable, vesta_snapshot
from gpumon.config.kinds import MACHINE
from gpumon.http.push_tokens import Caller, PushTokens
from gpumon.http.wsgi import TOO_LARGE
from gpumon.model import encode
from gpumon.text import clean
from gpumon.web.answers import JSON, answer
from gpumon.web.push import MAX_BODY_BYTES, MAX_UNKNOWN_BYTES
from gpumon.web.refused_pushes import Refusals

_UPDATE = re.compile(r"/update/host/([0-9a-f]{32})/?\Z")
_REWRITTEN = str.maketrans(dict.fromkeys(".,-@[]:;", "_"))
"""What vesta's server makes of a name; seen in its answer, and nowhere else."""


class VestaDesk:
    """The handlers of vesta's two routes; they run in many threads at once."""

    def __init__(self, inbox: PushInbox, tokens: PushTokens, refusals: Refusals) -> None:
        self._inbox = inbox
        self._tokens = tokens
        self._refusals = refusals
        self._lock = threading.Lock()
        self._ids: dict[str, tuple[str, str]] = {}
        """Host -> its id and the machine that registered. One for a host, so no more than these."""
        self._newest: dict[str, bytes] = {}
        """Host -> digest of what it posted last, which holds the time of its sample."""

    def mount(self, app: bottle.Bottle) -> None:
        """Add the routes."""
        app.get("/register/", callback=self._register)
        app.post("/update/host/<identity>", callback=self._update)
        app.post("/update/host/<identity>/", callback=self._update)

    def body_limit(self, path: str, query: str, authorization: str | None) -> int | None:
        """Return how large a reading may be, before it is read; None: as other requests."""
        del authorization
        found = _UPDATE.search(path)
        if found is None:
            return None
        known = self._machine_of(found[1])
        if known is None or not self._tokens.accepts(Caller(known[1], _token(query))):
            return MAX_UNKNOWN_BYTES
        return MAX_BODY_BYTES

    def _register(self) -> bottle.HTTPResponse:
        query = bottle.request.query_string
        machine = _last(query, "host_name")
        try:
            if not MACHINE.match(machine):
                raise Refused("failed", "host_name must be letters, digits and . _ -")
            self._check(machine, query)
            host = self._inbox.host_of(machine)
        except Refused as refused:
            return self._no(machine, refused)
        with self._lock:
            # Who registers again has lost its id; the one of before is nobody's then.
            identity = secrets.token_hex(16)
            self._ids[host] = (identity, machine)
        return _answered(200, "success", id=identity, register_name=machine.translate(_REWRITTEN))

    def _update(self, identity: str) -> bottle.HTTPResponse:
        known = self._machine_of(identity)
        if known is None:
            # So says vesta's server, and its sender registers then.
            return _answered(404, "ERROR", message="unknown id: register first")
        host, machine = known
        try:
            self._check(machine, bottle.request.query_string)
            self._inbox.host_of(machine)  # it may have been taken out of the configuration
            if (limit := bottle.request.environ.get(TOO_LARGE)) is not None:
                raise Unreadable(f"it has more than {limit} bytes: not read")
            body = bottle.request.environ["wsgi.input"].read()
            snapshot = vesta_snapshot(body, machine)
            self._refuse_again(host, machine, hashlib.sha256(body).digest())
        except Refused as refused:
            return self._no(machine, refused)
        except Unreadable as error:
            sentence = f"bad answer: vesta's sender posted what can't be read: {error}"
            self._inbox.refused(machine, "bad answer", sentence)
            return self._no(machine, Refused("bad answer", sentence), 400)
        self._inbox.take(host, snapshot)
        return _answered(200, "success")

    def _refuse_again(self, host: str, machine: str, digest: bytes) -> None:
        with self._lock:
            again = self._newest.get(host) == digest
            self._newest[host] = digest
        if again:
            words = "this very reading was posted before: not taken"
            self._inbox.refused(machine, "failed", f"failed: {words}. Was it recorded?")
            raise Refused("failed", words)

    def _check(self, machine: str, query: str) -> None:
        if not self._tokens.accepts(Caller(machine, _token(query))):
            words = "no token of web.vesta_token_file that is good for this name"
            self._inbox.refused(
                machine,
                "wrong token",
                f"wrong token: vesta's sender on {machine} came with {words}. Set its TOKEN",
            )
            raise Refused("wrong token", words)

    def _machine_of(self, identity: str) -> tuple[str, str] | None:
        """Return host and machine of an id; takes the same time whichever it is."""
        given, found = identity.encode("utf-8", "replace"), None
        with self._lock:
            for host, (known, machine) in self._ids.items():
                if hmac.compare_digest(given, known.encode()):
                    found = (host, machine)
        return found

    def _no(self, machine: str, refused: Refused, code: int | None = None) -> bottle.HTTPResponse:
        address = str(bottle.request.environ.get("REMOTE_ADDR", "?"))
        self._refusals.note(address, machine, str(refused))
        return _answered(code or 403, "ERROR", message=str(refused))


def _token(query: str) -> bytes:
    return _last(query, "token").encode("utf-8", "surrogatepass")


def _last(query: str, name: str) -> str:
    """Return a value of the query; "" where it does not stand there, or stands there oddly."""
    try:
        values = parse_qs(query, max_num_fields=20, errors="replace").get(name, [""])
    except ValueError:
        return ""
    return values[-1][:512]


def _answered(code: int, status: str, **more: Any) -> bottle.HTTPResponse:
    body = {"status": status, "status_code": code}
    body |= {key: clean(value, 300) for key, value in more.items()}
    return answer(encode(body), JSON)
