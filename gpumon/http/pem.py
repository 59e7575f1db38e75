"""Why a certificate or its key can't be used, in words: OpenSSL says "PEM lib" to nearly all."""

from __future__ import annotations

import ssl
from pathlib import Path

_REASONS = {
    "KEY_VALUES_MISMATCH": "the key does not belong to the certificate",
    "NO_CERTIFICATE_OR_CRL_FOUND": "it holds no certificate in PEM",
}
_MOST_BYTES = 4 * 1024 * 1024


def pem_words(error: OSError, cert: Path, key: Path | None = None) -> str:
    """Return why OpenSSL could not load a certificate, and with `key` its key, from these files."""
    if not isinstance(error, ssl.SSLError):
        return error.strerror or str(error)
    reason: str | None = getattr(error, "reason", None)  # None, though its type says otherwise
    if reason:
        return _REASONS.get(reason, reason.replace("_", " ").lower())
    if "-----BEGIN CERTIFICATE-----" not in _text(cert):
        return f"{cert} holds no certificate in PEM"
    if key is None or not _is_certificate(cert):
        return f"the certificate in {cert} is damaged"
    text = _text(key)
    if "PRIVATE KEY-----" not in text:
        return f"{key} holds no private key in PEM"
    if "ENCRYPTED" in text:
        return f"the key in {key} has a password, and nobody is there to type it"
    return f"the key in {key} is damaged"


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("latin-1")
    except OSError:
        return ""


def _is_certificate(path: Path) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except OSError:
        return False
    return True
