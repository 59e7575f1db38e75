"""Until when certificates are good, and what to do before that. Needs Python's own library only.

The end stands in the certificate's DER (RFC 5280, 4.1): Certificate > TBSCertificate > Validity.
`ssl` shows it only of certificates that it accepts, and one that has expired is not.
"""

from __future__ import annotations

import datetime as dt
import re
import ssl
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gpumon.config import TlsConfig

SOON_DAYS = 30
"""A certificate that ends within so many days is told of everywhere."""
RENEW = "Renew it: run the playbook again, or gpumon certs renew where the authority lies"
RENEW_AUTHORITY = (
    "Make another: move gpumon-secrets/ca.key and ca.crt away and run the playbook, or see "
    "docs/certificates.md"
)

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")
_MOST_BYTES = 4 * 1024 * 1024
_SEQUENCE, _VERSION, _UTC_TIME, _TIME = 0x30, 0xA0, 0x17, 0x18
_NOTHING = (0, b"")
_DAY = 86_400


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """When this machine's certificates end, in epoch seconds; None: none is set or can be read."""

    own: float | None = None
    """Of the first certificate in `tls.cert`: the machine's own."""
    authority: float | None = None
    """Of the last authority in `tls.ca` that ends: there may be an old and a new one."""


def ends_of(tls: TlsConfig | None) -> Ends:
    """Return when the files of `tls` end. What can't be read is told where it is used."""
    if tls is None:
        return Ends()
    return Ends(
        own=next(iter(file_ends(tls.cert)), None),
        authority=max(file_ends(tls.ca), default=None),
    )


def file_ends(path: Path | None) -> list[float]:
    """Return the ends of all certificates in a PEM file, in its order; [] where it can't be read.

    In epoch seconds.
    """
    if path is None:
        return []
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES).decode("ascii", "replace")
        return [certificate_end(ssl.PEM_cert_to_DER_cert(one)) for one in _PEM.findall(text)]
    except (OSError, ValueError):
        return []


def certificate_end(der: bytes) -> float:
    """Return when a certificate ends, in epoch seconds. Raises ValueError."""
    _, certificate = next(_values(der), _NOTHING)
    _, signed = next(_values(certificate), _NOTHING)
    fields = [field for field in _values(signed) if field[0] != _VERSION]
    # serial number, algorithm, issuer, validity
    if len(fields) < 4 or fields[3][0] != _SEQUENCE:
        raise ValueError("no certificate")
    times = list(_values(fields[3][1]))
    if len(times) != 2:
        raise ValueError("a certificate without an end")
    kind, text = times[1]
    digits = text.decode("ascii")
    if kind == _UTC_TIME:  # two digits of the year: 1950 to 2049
        digits = ("20" if digits < "50" else "19") + digits
    elif kind != _TIME:
        raise ValueError("a certificate whose end is no time")
    return dt.datetime.strptime(f"{digits}+0000", "%Y%m%d%H%M%SZ%z").timestamp()


def _values(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and content of each value of a sequence. Raises ValueError."""
    place = 0
    while place < len(der):
        tag, place = der[place], place + 1
        size = int.from_bytes(der[place : place + 1], "big")
        place += 1
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(der[place : place + count], "big")
            place += count
        if place + size > len(der):
            raise ValueError("cut short")
        yield tag, der[place : place + size]
        place += size


def soon(ends: float | None, now: float) -> str | None:
    """Return "ends on 2027-01-31, in 12 days" where that is near, or "ended on ..."; else None.

    Both in epoch seconds; days are those of UTC's calendar.
    """
    if ends is None or ends - now >= SOON_DAYS * _DAY:
        return None
    day, today = (dt.datetime.fromtimestamp(at, dt.timezone.utc).date() for at in (ends, now))
    if ends <= now:
        return f"ended on {day}"
    days = (day - today).days
    return f"ends on {day}, " + {0: "today", 1: "tomorrow"}.get(days, f"in {days} days")
