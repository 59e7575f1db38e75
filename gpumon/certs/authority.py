"""Keys and certificates. No files. Moments are datetimes in UTC.

EC P-256 throughout. A host's certificate is for both sides: the server asks with it, the agent
answers with it.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gpumon.errors import SetupError

CA_DAYS = 3650
HOST_DAYS = 730
BACKDATED = dt.timedelta(hours=1)
"""Clocks of hosts differ; a new certificate is already good an hour ago."""

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAME = re.compile(
    r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*"
)


class Names(msgspec.Struct, frozen=True):
    """What a certificate is for."""

    dns: tuple[str, ...]
    ips: tuple[IpAddress, ...] = ()


class Limits(msgspec.Struct, frozen=True):
    """What an authority may sign for; nothing named: anything."""

    domains: tuple[str, ...] = ()
    networks: tuple[IpNetwork, ...] = ()

    def refusal(self, names: Names) -> str | None:
        """Return why the authority's certificates don't hold for `names`; None: they do."""
        for name in names.dns if self.domains else ():
            if not any(name == domain or name.endswith(f".{domain}") for domain in self.domains):
                return f"{name} is not under {', '.join(self.domains)}"
        for ip in names.ips if self.networks else ():
            if not any(ip in network for network in self.networks):
                return f"{ip} is not in {', '.join(map(str, self.networks))}"
        return None


class Authority(msgspec.Struct, frozen=True):
    """A certificate that may sign others, with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def host_name(text: str) -> str:
    """Return a DNS name as it stands in a certificate. Raises SetupError."""
    name = text.strip().lower().rstrip(".")
    if not _NAME.fullmatch(name) or len(name) > 253:
        raise SetupError(
            f'expected a host name such as gpu-01 or gpu-01.lab.org, found "{text[:80]}". '
            "For an IP address: --ip"
        )
    return name


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new key."""
    return ec.generate_private_key(ec.SECP256R1())


def new_authority(name: str, limits: Limits, now: dt.datetime, days: int = CA_DAYS) -> Authority:
    """Return a new authority. It signs hosts only, no further authorities."""
    key = new_key()
    subject = _subject(name)
    builder = _builder(subject, subject, key.public_key(), now, now + dt.timedelta(days=days))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(authority=True), critical=True)
    permitted: list[x509.GeneralName] = [x509.DNSName(domain) for domain in limits.domains]
    permitted += [x509.IPAddress(network) for network in limits.networks]
    if permitted:
        builder = builder.add_extension(x509.NameConstraints(permitted, None), critical=True)
    return Authority(_identified(builder, key, key).sign(key, hashes.SHA256()), key)


def issue(
    authority: Authority,
    public_key: ec.EllipticCurvePublicKey,
    names: Names,
    now: dt.datetime,
    days: int = HOST_DAYS,
) -> x509.Certificate:
    """Return a certificate for a host. It never outlives its authority. Raises SetupError."""
    refusal = limits_of(authority.certificate).refusal(names)
    if refusal is not None:
        raise SetupError(f"the authority may not sign this: {refusal}")
    end = min(now + dt.timedelta(days=days), authority.certificate.not_valid_after_utc)
    if end <= now:
        raise SetupError(
            f"the authority has expired on {authority.certificate.not_valid_after_utc:%Y-%m-%d}; "
            "make a new one in another folder: gpumon certs init DIR"
        )
    issuer = authority.certificate.subject
    builder = _builder(_subject(names.dns[0]), issuer, public_key, now, end)
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names.dns]
    alternatives += [x509.IPAddress(ip) for ip in names.ips]
    builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
    builder = builder.add_extension(_usage(authority=False), critical=True)
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    return _identified(builder, public_key, authority.key).sign(authority.key, hashes.SHA256())


def names_of(certificate: x509.Certificate) -> Names:
    """Return what a host's certificate is for. Raises SetupError where it names nothing."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError) as error:
        raise SetupError("the certificate names no host") from error
    dns = tuple(names.get_values_for_type(x509.DNSName))
    if not dns:
        raise SetupError("the certificate names no host")
    found = names.get_values_for_type(x509.IPAddress)
    # A network has no place in a host's certificate, though the type allows it.
    ips = (ipaddress.IPv4Address, ipaddress.IPv6Address)
    return Names(dns, tuple(ip for ip in found if isinstance(ip, ips)))


def limits_of(certificate: x509.Certificate) -> Limits:
    """Return what an authority may sign for."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.NameConstraints).value
    except x509.ExtensionNotFound:
        return Limits()
    permitted = found.permitted_subtrees or []
    return Limits(
        tuple(one.value for one in permitted if isinstance(one, x509.DNSName)),
        tuple(
            one.value
            for one in permitted
            if isinstance(one, x509.IPAddress)
            and isinstance(one.value, (ipaddress.IPv4Network, ipaddress.IPv6Network))
        ),
    )


def is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Return whether `authority` signed `certificate`."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate as its file holds it."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a key as its file holds it: without a password, since a service has to read it."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: dt.datetime,
    end: dt.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(end)
    )


def _identified(
    builder: x509.CertificateBuilder,
    key: ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
) -> x509.CertificateBuilder:
    """Add both key identifiers, which strict readers (Python 3.13) want to see."""
    public = key.public_key() if isinstance(key, ec.EllipticCurvePrivateKey) else key
    own = x509.SubjectKeyIdentifier.from_public_key(public)
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    return builder.add_extension(own, critical=False).add_extension(by, critical=False)


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
