"""What can go wrong between the server and a host that it asks by SSH, each as one sentence."""

from __future__ import annotations

import asyncssh

from gpumon.cluster.sources import failures
from gpumon.cluster.sources.ssh.connection import MOST_BYTES, Cut, HostKeyRefused, TooLong
from gpumon.config import HostEntry
from gpumon.errors import SourceError
from gpumon.text import clean

_STEPS = {
    "name": "while looking up its name. Is its name server up?",
    "connecting": "while connecting. Is the host up, and no firewall in between?",
    "logging in": "while logging in. Raise rpc_timeout: the first login of a host takes longest",
    "waiting": "while nvidia-smi or ps ran. Set persistence mode there (nvidia-smi -pm 1), or "
    "raise rpc_timeout",
}


def timed_out(where: str, seconds: float, step: str) -> SourceError:
    """Say that the deadline of `seconds` for a whole poll passed while at `step`."""
    return SourceError(
        "timed out", f"timed out: no answer from {where} within {seconds:g} s, {_STEPS[step]}"
    )


def host_key(entry: HostEntry, refused: HostKeyRefused, known_hosts: object) -> SourceError:
    """Say that the host showed another key than the known one, or that none is known."""
    shown = refused.fingerprint
    port = "" if entry.port == 22 else f"-p {entry.port} "
    if refused.known:
        key = "another key" if shown is None else f"another key ({shown})"
        what = (
            f"{entry.address} shows {key} than the one in {known_hosts}. Was the host "
            "installed anew? Then replace its line there; if not, somebody stands in between"
        )
    else:
        what = (
            f"no key of {entry.address} in {known_hosts}; it shows {shown or 'one'}. Compare that "
            f"with ssh-keygen -lf on the host, then add the line of: ssh-keyscan {port}{entry.host}"
        )
    return SourceError("host key", f"host key: {what}")


def refused_login(where: str, user: str) -> SourceError:
    """Say that the host did not take the server's key."""
    return SourceError(
        "login refused",
        f"login refused: {where} takes none of the server's keys for the user {clean(user, 64)}. "
        "Put the public part of ssh.key_file into that user's authorized_keys",
    )


def way_failed(error: Exception, where: str) -> SourceError:
    """Say what an error of the connection or of SSH means."""
    if isinstance(error, TooLong):
        return _bad_answer(where, f"an answer of more than {MOST_BYTES // 2**20} MiB")
    if isinstance(error, Cut):
        return _bad_answer(where, "a connection that ended in the middle of the answer")
    if isinstance(error, asyncssh.ChannelOpenError):
        return SourceError(
            "failed",
            f"failed: {where} lets the server log in, but opens no session "
            f"({clean(error.reason, 80)}). Look at MaxSessions of its sshd",
        )
    if isinstance(error, (asyncssh.ConnectionLost, ConnectionResetError, BrokenPipeError)):
        return _bad_answer(
            where,
            "a connection closed before the login. Does sshd listen there, with room for one more "
            "(MaxStartups)?",
        )
    if isinstance(error, asyncssh.KeyExchangeFailed):
        return SourceError(
            "failed",
            f"failed: no common ground with sshd on {where} ({clean(error.reason, 120)}). Is it "
            "very old, or has known_hosts a key of another kind?",
        )
    if isinstance(error, (asyncssh.ProtocolError, asyncssh.ProtocolNotSupported)):
        return _bad_answer(where, "something that is not SSH. Is the port right?")
    if isinstance(error, OSError):
        return failures.way_failed(error, where, tls=False, who="sshd")
    words = error.reason if isinstance(error, asyncssh.Error) else str(error)
    return SourceError("failed", f"failed: {where} could not be asked ({clean(words, 120)})")


def not_understood(where: str, found: str, words: bytes) -> SourceError:
    """Say that the command printed something else than it should; `words` is its stderr."""
    told = clean(words, 160)
    return _bad_answer(where, found + (f", and the words: {told}" if told else ""))


def stuck(where: str, seconds: str) -> SourceError:
    """Say that an nvidia-smi of an earlier poll still runs, so that no other was started."""
    return SourceError(
        "timed out",
        f"timed out: on {where} the nvidia-smi of an earlier poll has run for "
        f"{clean(seconds, 12)} s and can't be ended, so no other is started. Its driver hangs: "
        "look at dmesg there, reboot",
    )


def _bad_answer(where: str, found: str) -> SourceError:
    return SourceError(
        "bad answer", f"bad answer: expected readings over SSH from {where}, found {found}"
    )
