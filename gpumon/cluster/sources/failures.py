"""What went wrong on the way to an agent -> one SourceError: a short word, a whole sentence.

Every sentence says which host, what was found and what to do. Foreign text is cleaned and cut.
"""

from __future__ import annotations

import errno
import socket
import ssl

from gpumon.cluster.sources import answer
from gpumon.cluster.sources.connections import HandshakeError
from gpumon.cluster.sources.exchange import ClosedError
from gpumon.errors import SourceError
from gpumon.text import clean

_NO_ROUTE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)
_RESET = (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED)
_TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)

_CERTIFICATE_WANTED = (
    "Does it ask for a certificate of this server? Then set tls.cert and tls.key. Is the one that "
    "this server has expired, or of another authority? The agent's log says"
)
_AGENT_THERE = "Does gpumon's agent listen there? If it speaks TLS, write https:// in hosts"


def bad_answer(where: str, found: str, hint: str = answer.Unexpected.hint) -> SourceError:
    """Say that something answered that is no agent, or not in a form that can be read."""
    return SourceError(
        "bad answer",
        f"bad answer: expected an XML-RPC answer of a gpumon agent on {where}, found {found}. "
        f"{hint}",
    )


def bad_status(where: str, status: int, reason: str | None, *, token_sent: bool) -> SourceError:
    """Say what an HTTP status other than 200 means."""
    if status == 401:
        if token_sent:
            what = f"the agent on {where} refused it (401). Put the agent's token first in"
        else:
            what = f"the agent on {where} wants one (401) and none is configured. Set"
        return SourceError("wrong token", f"wrong token: {what} token_file")
    if status == 429:
        return SourceError(
            "wrong token",
            f"wrong token: the agent on {where} had too many from this server's address (429) and "
            "looks at none for a while. Put the agent's token first in token_file",
        )
    if status == 421:
        return bad_answer(
            where,
            "one that does not go by this name (421)",
            "Write the host's own name or its IP address in hosts, or set token_file on both sides",
        )
    if 300 <= status < 400:
        return bad_answer(where, f"a redirect (HTTP status {status})")
    words = clean(reason, 40)
    return bad_answer(where, f"HTTP status {status}{f' ({words})' if words else ''}")


def no_poll_method(where: str) -> SourceError:
    """Say that an XML-RPC server answers that is no agent, of gpumon's or gpumonitor's."""
    return SourceError(
        "version too old",
        f"version too old: what speaks XML-RPC on {where} has neither the method poll() of "
        "gpumon's agent nor gpu_stats() of gpumonitor's. Install gpumon's agent on that host",
    )


def other_schema(where: str, theirs: int, ours: int) -> SourceError:
    """Say that the agent's answer is of another age and can't be read."""
    behind, host = ("agent", "that host") if theirs < ours else ("server", "this server")
    return SourceError(
        "version too old",
        f"version too old: the agent on {where} speaks schema {theirs}, this server {ours}, and "
        f"the {behind} is the older one. Update gpumon on {host}",
    )


def agent_fault(where: str, code: object, text: object) -> SourceError:
    """Say what the agent itself reports as an XML-RPC fault."""
    words, number = clean(str(text), 200), clean(str(code), 20)
    return SourceError(
        "failed",
        f"failed: the agent on {where} reports: {words} (fault {number}). "
        "Its log says more: journalctl -u gpumon-agent",
    )


def timed_out(where: str, seconds: float, step: str, who: str = "'gpumon agent'") -> SourceError:
    """Say that the deadline of `seconds` for a whole poll passed while at `step`."""
    return SourceError(
        "timed out",
        f"timed out: no answer from {where} within {seconds:g} s, {_STEPS[step].format(who=who)}",
    )


_STEPS = {
    "name": "while looking up its name. Is its name server up?",
    "connecting": "while connecting. Is the host up, and no firewall in between?",
    "waiting": "while waiting for its answer. Is {who} running on that host?",
    "reading": "while reading its answer. Is the network slow, or rpc_timeout too short?",
    "reading much": "and more than 1 MiB of it came. Is that an agent? Is rpc_port right?",
}
"""What a poll can be at, in order, and what is said when it got no further."""


def way_failed(
    error: OSError, where: str, *, tls: bool, who: str = "'gpumon agent'"
) -> SourceError:
    """Say what an error of resolution, connection or TLS means; `who` should listen there."""
    if isinstance(error, socket.gaierror):
        found = clean(error.strerror, 80)
        if error.errno == socket.EAI_AGAIN:
            hint = "Is its name server up?"
        else:
            hint = "Correct it in hosts or in DNS"
        return SourceError(
            "name not found", f"name not found: {where} has no address ({found}). {hint}"
        )
    if isinstance(error, HandshakeError):
        return _tls_failed(error.__cause__, where)
    if isinstance(error, ssl.SSLError):
        return _tls_failed(error, where)
    if isinstance(error, ClosedError) or error.errno in _RESET:
        # So ends, with TLS 1.3, a connection on which the client should have shown a certificate.
        # And so one that speaks TLS, when it is asked without.
        if tls:
            return SourceError("tls", f"tls: {where} closed the connection. {_CERTIFICATE_WANTED}")
        return bad_answer(where, "a connection closed without an answer", _AGENT_THERE)
    return _not_reached(error, where, who)


def _tls_failed(error: BaseException | None, where: str) -> SourceError:
    if isinstance(error, ssl.SSLCertVerificationError):
        what = (
            f"the certificate of {where} is not accepted ({clean(error.verify_message, 120)}). "
            "Set tls.ca to the authority that signed it, and use the name it is for"
        )
    elif isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
        what = f"{where} refused the connection ({_words(error)}). {_CERTIFICATE_WANTED}"
    else:
        found = f" ({_words(error)})" if isinstance(error, ssl.SSLError) else ""
        what = (
            f"{where} broke off the handshake{found}. Does its agent speak TLS? "
            "If not, write its entry in hosts without https://"
        )
    return SourceError("tls", f"tls: {what}")


def _words(error: ssl.SSLError) -> str:
    return clean((error.reason or str(error)).replace("_", " ").lower(), 80)


def _not_reached(error: OSError, where: str, who: str) -> SourceError:
    number = error.errno
    if number == errno.ECONNREFUSED:
        return SourceError(
            "refused",
            f"refused: nothing listens on {where}. Is {who} running on that host?",
        )
    if number in _NO_ROUTE:
        return SourceError(
            "no route",
            f"no route: no way to {where} ({errno.errorcode[number]}). Is the host up?",
        )
    if number == errno.ETIMEDOUT:
        return SourceError("timed out", f"timed out: {where} does not answer. Is the host up?")
    if number in _TOO_MANY_FILES:
        return SourceError(
            "failed",
            f"failed: this server has too many open files to ask {where}. Raise LimitNOFILE of "
            "its service",
        )
    words = clean(str(error), 120) or type(error).__name__
    return SourceError("failed", f"failed: {where} could not be asked ({words})")
