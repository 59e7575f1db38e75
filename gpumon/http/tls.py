"""From the files of `tls:` in config.yml to the TLS contexts of servers and clients."""

from __future__ import annotations

import ssl
from pathlib import Path

from gpumon.config import TlsConfig
from gpumon.errors import SetupError
from gpumon.http.pem import pem_words


def server_context(tls: TlsConfig) -> ssl.SSLContext:
    """Return the context of a server: TLS 1.2 or newer; with `ca`, clients must show a certificate.

    Raises SetupError with the file and what is wrong with it.
    """
    if tls.cert is None:
        raise SetupError(
            "tls.cert is not set: to serve HTTPS, config.yml needs tls: {cert: FILE, key: FILE}"
        )
    for name, path in (("tls.cert", tls.cert), ("tls.key", tls.key), ("tls.ca", tls.ca)):
        if path is not None:
            _readable(name, path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    key = tls.key or tls.cert
    try:
        # A password by callback: without one, OpenSSL asks at the terminal and waits for ever.
        context.load_cert_chain(tls.cert, key, password=lambda: "")
    except (ssl.SSLError, OSError) as error:
        raise SetupError(
            f"certificate tls.cert {tls.cert} and key tls.key {key} can't be used: "
            f"{pem_words(error, tls.cert, key)}; both must be PEM, belong to each other, and the "
            "key must have no password"
        ) from error
    if tls.ca is not None:
        try:
            context.load_verify_locations(tls.ca)
        except (ssl.SSLError, OSError) as error:
            raise SetupError(
                f"tls.ca {tls.ca} can't be used: {pem_words(error, tls.ca)}; it must hold one or "
                "more certificates in PEM"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(tls: TlsConfig) -> ssl.SSLContext:
    """Return how another machine is asked over TLS: who is believed, and which certificate we show.

    Without `ca`, whom the system believes. Raises SetupError naming the file.
    """
    try:
        context = ssl.create_default_context(cafile=tls.ca)
    except OSError as error:
        words = str(error) if tls.ca is None else pem_words(error, tls.ca)
        raise SetupError(
            f"tls.ca: {tls.ca} can't be used ({words}). "
            "Give a PEM file with the certificates of your authority"
        ) from error
    if tls.cert is not None:
        try:
            # A password by callback: without one, OpenSSL asks at the terminal and waits for ever.
            context.load_cert_chain(tls.cert, tls.key, password=lambda: "")
        except OSError as error:
            words = pem_words(error, tls.cert, tls.key or tls.cert)
            raise SetupError(
                f"tls.cert: {tls.cert} with tls.key {tls.key} can't be used ({words}). Both must "
                "be readable PEM files that belong together, the key without a password"
            ) from error
    return context


def _readable(name: str, path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise SetupError(
            f"{name}: {path} can't be read ({error.strerror}); the user that runs gpumon must be "
            "allowed to read it"
        ) from error
