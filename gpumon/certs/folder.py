"""An authority's folder: `ca.pem`, `ca-key.pem`, and `hosts/NAME/` with what goes to each host.

Every file appears whole or not at all, and none is overwritten unless that is asked for.
"""

from __future__ import annotations

import datetime as dt
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gpumon.certs.authority import (
    HOST_DAYS,
    Authority,
    Limits,
    Names,
    is_signed_by,
    issue,
    key_pem,
    names_of,
    new_authority,
    new_key,
    pem,
)
from gpumon.errors import SetupError, StartError
from gpumon.text import clean
from gpumon.unwritable import why_unwritable

CERT, KEY, CA = "cert.pem", "key.pem", "ca.pem"


class Issued(msgspec.Struct, frozen=True):
    """A certificate in the folder."""

    name: str
    """The host's folder; "authority" for the authority itself."""
    names: list[str]
    ends: dt.datetime | None
    """None: the file can't be read."""
    fault: str | None = None
    """What is wrong with it, in words."""


class CertsFolder:
    """One authority and the hosts that it signed for. `now` is a moment in UTC."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def init(self, name: str, limits: Limits, now: dt.datetime, days: int, *, force: bool) -> None:
        """Make the authority. Raises StartError."""
        key_file, cert_file = self.path / "ca-key.pem", self.path / CA
        _make_folder(self.path)
        _refuse_existing([key_file, cert_file], force)
        authority = new_authority(name, limits, now, days)
        _write(key_file, key_pem(authority.key), 0o600, force)
        _write(cert_file, pem(authority.certificate), 0o644, force)

    def authority(self) -> Authority:
        """Return the authority. Raises SetupError."""
        if not (self.path / CA).exists():
            raise SetupError(
                f"{self.path} holds no authority. Make one: gpumon certs init {self.path}"
            )
        certificate = read_certificate(self.path / CA)
        key = _read_key(self.path / "ca-key.pem")
        if certificate.public_key() != key.public_key():
            raise SetupError(f"ca.pem and ca-key.pem in {self.path} don't belong together")
        return Authority(certificate, key)

    def host_folder(self, name: str) -> Path:
        """Return where a host's files lie."""
        return self.path / "hosts" / name

    def add(self, names: Names, now: dt.datetime, days: int, *, force: bool) -> Path:
        """Make key and certificate of a host; return its folder. Raises StartError."""
        authority, key = self.authority(), new_key()
        certificate = issue(authority, key.public_key(), names, now, days)
        folder = self.host_folder(names.dns[0])
        _make_folder(folder.parent)
        _make_folder(folder)
        _refuse_existing([folder / KEY, folder / CERT], force)
        _write(folder / KEY, key_pem(key), 0o600, force)
        _write(folder / CERT, pem(certificate), 0o644, force)
        _write(folder / CA, pem(authority.certificate), 0o644, force=True)
        return folder

    def renew(self, name: str, now: dt.datetime, days: int = HOST_DAYS) -> dt.datetime:
        """Give a host a new certificate for the same key and names; return its end.

        Only the certificate changes, in one step. Raises StartError.
        """
        authority, folder = self.authority(), self.host_folder(name)
        if not (folder / CERT).exists():
            raise SetupError(f"{self.path} holds no host {name}. gpumon certs list shows all")
        names = names_of(read_certificate(folder / CERT))
        certificate = issue(authority, _read_key(folder / KEY).public_key(), names, now, days)
        _write(folder / CERT, pem(certificate), 0o644, force=True)
        _write(folder / CA, pem(authority.certificate), 0o644, force=True)
        return certificate.not_valid_after_utc

    def issued(self) -> Iterator[Issued]:
        """Yield the authority and every host, by name. A broken file costs its own row."""
        authority = self.authority().certificate
        yield Issued("authority", [], authority.not_valid_after_utc)
        for folder in sorted(path for path in (self.path / "hosts").glob("*") if path.is_dir()):
            try:
                certificate = read_certificate(folder / CERT)
                names = names_of(certificate)
            except StartError as error:
                yield Issued(folder.name, [], None, str(error))
                continue
            signed = is_signed_by(certificate, authority)
            yield Issued(
                folder.name,
                [*names.dns, *map(str, names.ips)],
                certificate.not_valid_after_utc,
                None if signed else "signed by another authority than this folder's",
            )


def read_certificate(path: Path) -> x509.Certificate:
    """Return the first certificate in a file. Raises SetupError."""
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError as error:
        raise SetupError(f"{path}: expected a certificate in PEM; {_words(error)}") from error


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(_read(path), password=None)
    except (ValueError, TypeError) as error:  # TypeError: it has a password
        raise SetupError(
            f"{path}: expected a private key in PEM, without a password; {_words(error)}"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise SetupError(f"{path}: expected a key of the kind EC, found another one")
    return key


def _words(error: Exception) -> str:
    return clean(str(error), 120)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SetupError(f"{path} can't be read: {error.strerror}") from error


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StartError(f"the folder {path} can't be made: {error.strerror}") from error


def _refuse_existing(paths: list[Path], force: bool) -> None:
    there = [str(path) for path in paths if path.exists() or path.is_symlink()]
    if there and not force:
        raise StartError(
            f"{' and '.join(there)} exist{'s' if len(there) == 1 else ''} already. "
            "To replace what is there: --force"
        )


def _write(path: Path, data: bytes, mode: int, force: bool) -> None:
    """Put a file in place in one step, with its mode from the start. Raises StartError."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(file.fileno(), mode)  # whatever the umask
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if force:
                os.replace(draft, path)
            else:
                os.link(draft, path)  # fails where another run was faster
        finally:
            draft.unlink(missing_ok=True)
    except FileExistsError as error:
        raise StartError(f"{path} exists already. To replace it: --force") from error
    except OSError as error:
        raise StartError(f"{path} can't be written: {why_unwritable(error)}") from error
