"""`gpumon agent --push URL`: for a host that no server can reach, the agent calls the server.

One push at a time, the newest sample only, nothing is queued: what could not be sent is forgotten
as soon as there is a newer one. What the server answers, see cluster/sources/pushed.py.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import random
import re
import socket
import ssl
import time
import xmlrpc.client
from collections.abc import Callable

import h11

from gpumon.agent.answers import Answers
from gpumon.agent.latest import Latest
from gpumon.agent.post import Answer, PostClient
from gpumon.config import TlsConfig
from gpumon.http import xmlrpc as rpc
from gpumon.http.tls import client_context
from gpumon.model import encode
from gpumon.text import clean
from gpumon.version import __version__

log = logging.getLogger(__name__)

DEADLINE_SECONDS = 10.0
"""One push, from the look-up of the name to the answer."""
LONGEST_PAUSE_SECONDS = 60.0
"""Between two tries of a server that does not answer."""
JITTER = 0.1
"""Pauses vary by this share, so that a rack that started together does not push together."""
MOST_TRIES = 3
"""Calls that one push may take: with the ticket that the server wants, or with everything."""

_TICKET = re.compile(r"[A-Za-z0-9-]{1,200}")
_CALL = (
    b"<?xml version='1.0'?>\n<methodCall>\n<methodName>push</methodName>\n<params>\n",
    b"</params>\n</methodCall>\n",
)


class PushFailed(Exception):
    """A push was not taken. `kind` is a short word, `str()` a sentence."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind


class Pusher:
    """Sends every sample of this host to one server."""

    def __init__(
        self,
        latest: Callable[[], Latest],
        *,
        url: str,
        name: str,
        token: Callable[[], str],
        tls: TlsConfig | None = None,
        clock: Callable[[], float] = time.monotonic,
        luck: Callable[[], float] = random.random,
    ) -> None:
        """`latest` is a supervisor's, `clock` the one that its times are of.

        `url` is that of the server's front page, `name` what this host is called there. `token` is
        asked for every connection, so that it may change. Raises SetupError for files of `tls`.
        """
        self._answers = Answers(latest)
        self._latest = latest
        self._where = url
        self._name = name
        self._token = token
        self._clock = clock
        self._luck = luck
        self._context = client_context(tls or TlsConfig()) if url.startswith("https:") else None
        self._client: tuple[str, PostClient] | None = None
        self._ticket: tuple[str, float] = ("", 0.0)
        """The next ticket, and when it came."""
        self._known: str | None = None
        """The revision that the server has."""
        self._sent = ""

    async def run(self) -> None:
        """Push until cancelled. Nothing that the server does ends it."""
        failures, said = 0, ""
        try:
            while True:
                try:
                    await self.push()
                except PushFailed as failure:
                    failures += 1
                    if failure.kind != said:
                        log.warning("push to %s: %s", self._where, failure)
                    said = failure.kind
                except Exception:  # the loop must live; what is unforeseen is a failure like others
                    failures += 1
                    if said != "fault":
                        log.exception("push to %s failed by a fault of gpumon's", self._where)
                    said = "fault"
                else:
                    if failures or not said:
                        log.info("push to %s: taken, as %s", self._where, self._name)
                    failures, said = 0, "taken"
                await asyncio.sleep(self.pause(failures))
        finally:
            await self.close()

    async def close(self) -> None:
        """Drop the connection to the server."""
        if self._client is not None:
            await self._client[1].end()

    def pause(self, failures: int) -> float:
        """Return the seconds until the next push, after so many failures in a row."""
        interval = max(1.0, self._latest().interval)
        if not failures:
            return interval * (1.0 - JITTER + 2 * JITTER * self._luck())
        longest = max(LONGEST_PAUSE_SECONDS, interval)
        return min(longest, interval * 2.0 ** min(failures, 16)) * (1.0 - 0.5 * self._luck())

    async def push(self) -> None:
        """Push what is new, once, within DEADLINE_SECONDS. Raises PushFailed."""
        try:
            await asyncio.wait_for(self._push(), DEADLINE_SECONDS)
        except asyncio.TimeoutError:
            words = f"timed out: no answer within {DEADLINE_SECONDS:g} s"
            raise self._failed("timed out", words) from None
        except (OSError, h11.RemoteProtocolError) as error:
            raise self._failed(*_words(error)) from error

    def _failed(self, kind: str, words: str) -> PushFailed:
        self._known = None  # whether it arrived can't be told
        return PushFailed(kind, words)

    async def _push(self) -> None:
        for _ in range(MOST_TRIES):
            verdict, ticket = self._understood(await self._post(self._body()))
            self._ticket = (ticket, self._clock())
            if verdict == "taken":
                return
            if verdict == "send all":
                self._known = None
        raise self._failed("not taken", "not taken: the server wanted other tickets all the time")

    async def _post(self, body: bytes) -> Answer:
        token = self._token()
        if self._client is None or self._client[0] != token:
            if self._client is not None:
                self._client[1].close()
            login = base64.b64encode(f"{self._name}:{token}".encode()).decode()
            headers = {
                "Authorization": f"Basic {login}",
                "Content-Type": "text/xml",
                "User-Agent": f"gpumon/{__version__}",
            }
            client = PostClient(f"{self._where}/RPC2", headers, self._context)
            self._client = (token, client)
        return await self._client[1].post(body)

    def _body(self) -> bytes:
        """Return the call push(): a greeting without a ticket, what is new, or that nothing is."""
        ticket, came = self._ticket
        forms, now = self._answers.now(), self._clock()
        latest = forms.latest
        held = b"<value><double>%.3f</double></value>\n" % max(0.0, now - came)
        values = [rpc.string(ticket.encode()), held, rpc.string(latest.revision.encode())]
        if not ticket:
            values.append(rpc.string(b"{}"))  # small: it asks for a ticket, and whether we may
        elif latest.revision == self._known:
            age = latest.age(now)
            news = {"sample_age_seconds": age, "sampler_error": latest.sampler_error}
            values.append(rpc.string(rpc.json_text(encode(news))))
        else:
            values.append(rpc.string(rpc.json_text(latest.summary_json(now))))
            values.append(rpc.string(forms.packed()))
        self._sent = latest.revision
        parameters = b"".join(b"<param>\n" + value + b"</param>\n" for value in values)
        return _CALL[0] + parameters + _CALL[1]

    def _understood(self, answer: Answer) -> tuple[str, str]:
        """Return the server's verdict and the next ticket. Raises PushFailed."""
        if answer.status != 200:
            self._ticket = ("", 0.0)
            raise self._failed(*_status_words(answer.status, self._name))
        try:
            if b"<!DOCTYPE" in answer.body:
                raise ValueError("a document type declaration")
            [value], _ = xmlrpc.client.loads(answer.body.decode())
        except xmlrpc.client.Fault as fault:
            raise self._failed("refused", f"refused: {clean(fault.faultString, 300)}") from fault
        except Exception as error:  # a foreign parser over foreign text: any type
            raise self._failed("bad answer", f"bad answer: {_NO_SERVER}") from error
        match value:
            case [str(verdict), str(ticket)] if _TICKET.fullmatch(ticket):
                if verdict == "taken":
                    self._known = self._sent
                return verdict, ticket
        raise self._failed("bad answer", f"bad answer: {_NO_SERVER}")


_NO_SERVER = "no gpumon server that takes pushes answers there. Is the address that of its page?"


def _status_words(status: int, name: str) -> tuple[str, str]:
    if status == 401:
        return "wrong token", (
            f"wrong token: the server knows no token of ours for {name} (401). The first of "
            "token_file must stand in its web.push_token_file; a proxy's login in front of it "
            "must let /RPC2 through"
        )
    if status == 413:
        return "too large", (
            "too large: the server takes 1 MiB a push at most (413). Let it ask this host instead, "
            "without push://"
        )
    if status in (404, 405):
        return "bad answer", (
            f"bad answer: the server takes no pushes ({status}). Set web.push_token_file there, "
            "and write the address of its front page here"
        )
    if 300 <= status < 400:
        return (
            "bad answer",
            f"bad answer: a redirect ({status}). Write the address that it leads to",
        )
    return "bad answer", f"bad answer: HTTP status {status}"


def _words(error: OSError | h11.RemoteProtocolError) -> tuple[str, str]:
    if isinstance(error, h11.RemoteProtocolError):
        return "bad answer", f"bad answer: {_NO_SERVER}"
    if isinstance(error, socket.gaierror):
        return "name not found", f"name not found: {clean(error.strerror, 80)}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return "tls", (
            f"tls: the server's certificate is not accepted ({clean(error.verify_message, 120)}). "
            "Set tls.ca to the authority that signed it, and push to the name it is for"
        )
    if isinstance(error, ssl.SSLError):
        return "tls", f"tls: {clean(error.reason or str(error), 80).replace('_', ' ').lower()}"
    if isinstance(error, ConnectionRefusedError):
        return "refused", "refused: nothing listens there. Is 'gpumon web' or its proxy running?"
    return "failed", f"failed: {clean(error.strerror or str(error), 120) or type(error).__name__}"
