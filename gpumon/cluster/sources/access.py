"""What opens the hosts to this server: its token, and TLS. Replaced as a whole by a reload."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

from gpumon.config import Config, TlsConfig
from gpumon.http.auth import Tokens
from gpumon.http.tls import client_context


class Access(NamedTuple):
    """One per server."""

    token: str | None
    tls: ssl.SSLContext | None
    """None: no host speaks TLS. The same object as before where nothing about it has changed."""
    made_of: tuple[bytes | None, ...]
    """The certificate that is shown to hosts, its key, and the authorities that are believed."""
    timeout: float
    """Seconds that a poll may take."""

    @classmethod
    def of(cls, config: Config, before: Access | None = None) -> Access:
        """Read the files of a configuration; `before` is what is in use.

        Raises SetupError where the token file or a certificate can't be used.
        """
        token = None if config.token_file is None else Tokens.load(config.token_file).first
        speaks_tls = any(entry.tls for entry in config.hosts)
        tls, made_of = _tls(config.tls or TlsConfig()) if speaks_tls else (None, ())
        if before is not None and before.tls is not None and made_of == before.made_of:
            tls = before.tls  # connections under it go on
        return cls(token=token, tls=tls, made_of=made_of, timeout=config.rpc_timeout)

    def opens_more_than(self, before: Access) -> bool:
        """Return whether a host that failed may answer now though nothing changed on it."""
        one_tls = self.tls is None or before.tls is None or self.tls is before.tls
        return not one_tls or (self.token, self.timeout) != (before.token, before.timeout)

    def head(self) -> bytes:
        """Return the lines that go to agents only."""
        lines = b"content-type: text/xml\r\n"
        if self.token is not None:
            lines += f"authorization: Bearer {self.token}\r\n".encode()
        return lines


def _tls(tls: TlsConfig) -> tuple[ssl.SSLContext, tuple[bytes | None, ...]]:
    # Read before, so that a file replaced in between makes another context the next time.
    own = [_content(path) for path in (tls.cert, tls.key)]
    context = client_context(tls)
    return context, (*own, *context.get_ca_certs(binary_form=True))


def _content(path: Path | None) -> bytes | None:
    """Return what is in the file; None where it can't be read, which `client_context` tells."""
    try:
        return None if path is None else path.read_bytes()
    except OSError:
        return None
