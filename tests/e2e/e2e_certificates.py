"""Certificates that something is wrong with."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key


def expire(certificate: Path, authority_key: Path) -> bytes:
    """Let a certificate be one that ended yesterday, and return it."""
    old = x509.load_pem_x509_certificate(certificate.read_bytes())
    key = load_pem_private_key(authority_key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    now = dt.datetime.now(dt.timezone.utc)
    builder = x509.CertificateBuilder(
        issuer_name=old.issuer,
        subject_name=old.subject,
        public_key=old.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - dt.timedelta(days=9),
        not_valid_after=now - dt.timedelta(days=1),
    )
    for extension in old.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    made = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    certificate.write_bytes(made)
    return made
