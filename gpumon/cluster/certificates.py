"""What is said of certificates that end soon: without them a cluster goes dark on one day. Pure."""

from __future__ import annotations

from gpumon.cluster.status import CertificateEnds
from gpumon.http.certificates import RENEW, RENEW_AUTHORITY, soon

_OF_AGENT = "the agent's certificate "


def agent_note(ends: float | None, now: float) -> str | None:
    """Return the note on a host whose agent's certificate ends at `ends` (epoch seconds)."""
    words = soon(ends, now)
    if words is None:
        return None
    return f"{_OF_AGENT}{words}; without a good one it can't be asked. {RENEW}"


def server_warnings(ends: CertificateEnds, now: float) -> list[str]:
    """Return what the server says of its own certificates."""
    warnings = []
    if (words := soon(ends.client_ends_at, now)) is not None:
        warnings.append(
            f"this server's certificate {words}; agents refuse it then, all at once. {RENEW}"
        )
    if (words := soon(ends.authority_ends_at, now)) is not None:
        warnings.append(
            f"the authority in tls.ca {words}; no agent is believed then. {RENEW_AUTHORITY}"
        )
    return warnings


def is_warning(note: str) -> bool:
    """Return whether the note of a host is the one above, which is more than a note."""
    return note.startswith(_OF_AGENT)
