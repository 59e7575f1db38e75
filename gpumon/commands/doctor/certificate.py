"""A certificate as the other side of the wire will judge it: by a handshake in memory.

Needs no library beyond Python's own, so that it works on every GPU host.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpumon.commands.doctor.finding import Finding, fault, ok, warning
from gpumon.config import TlsConfig
from gpumon.http.certificates import RENEW, RENEW_AUTHORITY, SOON_DAYS

WRONG_PURPOSE = 26
"""OpenSSL's number for a certificate that is not for servers."""


def certificates(tls: TlsConfig | None, now: float | None = None) -> Iterator[Finding]:
    """Look at the files of `tls`: who is accepted, and until when. `now`: epoch seconds."""
    name = "certificate"
    if tls is None:
        yield ok(name, "none configured: the wire is not encrypted by gpumon")
        return
    moment = time.time() if now is None else now
    if tls.ca is not None:
        yield from _authorities(tls.ca, moment)
    if tls.cert is None:
        return
    try:
        seen = seen_by_others(tls)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code == WRONG_PURPOSE:
            yield warning(
                name,
                f"{tls.cert} is for clients only: good for a machine without an agent",
                "An agent needs one for servers too (serverAuth), as gpumon certs makes them",
            )
            return
        yield fault(
            name,
            f"{tls.cert} is not accepted by the other side ({error.verify_message})",
            f"{RENEW}; tls.ca must be the authority that signed it",
        )
        return
    names = ", ".join(value for _, value in seen.get("subjectAltName", ()))
    more = f", for {names}" if names else ""
    yield _ends(name, str(tls.cert), seen["notAfter"], moment, more, RENEW)


def _authorities(path: Path, now: float) -> Iterator[Finding]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(path)
    for one in context.get_ca_certs():
        yield _ends("authority", str(path), str(one["notAfter"]), now, "", RENEW_AUTHORITY)


def _ends(check: str, path: str, end: str, now: float, more: str, cure: str) -> Finding:
    days = (ssl.cert_time_to_seconds(end) - now) / 86_400
    date = " ".join(end.split()[:2] + end.split()[3:4])
    if days <= 0:
        return fault(check, f"{path} expired on {date}{more}", cure)
    words = f"{path} is good until {date} ({int(days)} days){more}"
    return ok(check, words) if days >= SOON_DAYS else warning(check, words, cure)


def seen_by_others(tls: TlsConfig) -> dict[str, Any]:
    """Return what the certificate says to who believes the configured authority.

    Without an authority the certificate itself is believed. Raises ssl.SSLError or OSError.
    """
    assert tls.cert is not None
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tls.cert, tls.key or tls.cert, password=lambda: "")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False  # which name will be called, nobody knows here
    client.load_verify_locations(tls.ca or tls.cert)
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(back, there)
    far = server.wrap_bio(there, back, server_side=True)
    for _ in range(10):
        done = 0
        for side in (near, far):
            try:
                side.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                continue
        if done == 2:
            break
    found: dict[str, Any] = near.getpeercert() or {}
    return found
