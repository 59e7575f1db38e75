"""How the server logs in: its own key, and the keys of the hosts that it believes.

asyncssh is an optional library (the extra `ssh`): nothing outside this package imports it.
"""

from __future__ import annotations

import logging
import os
import pwd
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncssh

from gpumon.cluster.sources.resolver import Resolver
from gpumon.config import Config, HostEntry, SshConfig
from gpumon.errors import SetupError

log = logging.getLogger(__name__)

_USUAL_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
_MAKE_ONE = "Make one: ssh-keygen -t ed25519 -N '' -f FILE"


class KnownHosts:
    """The keys of the hosts, read again when a file changes: a new host needs no restart."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self._stamp: object = None
        self._keys = asyncssh.import_known_hosts("")

    def keys(self) -> asyncssh.SSHKnownHosts:
        """Return the keys as of now. Raises OSError or ValueError where a file can't be used."""
        found = [(path, path.stat()) for path in self.paths if os.path.exists(path)]
        stamp = [(path, status.st_mtime_ns, status.st_size) for path, status in found]
        if stamp != self._stamp:
            text = "\n".join(path.read_text(encoding="utf-8") for path, _ in found)
            self._keys = asyncssh.import_known_hosts(text)
            self._stamp = stamp
        return self._keys

    def of(self, entry: HostEntry) -> Sequence[Any]:
        """Return the keys of one host: lists of trusted keys, of authorities, of revoked keys, ...

        By its name alone, as in `hosts`: whoever turns the name to the address of another known
        host gains nothing. Raises what `keys` raises.
        """
        return self.keys().match(entry.host, "", None if entry.port == 22 else entry.port)

    def __str__(self) -> str:
        return " and ".join(str(path) for path in self.paths)


class Logins:
    """One per server: what all hosts that are asked by SSH share."""

    def __init__(self, config: Config, resolver: Resolver | None = None) -> None:
        """Raises SetupError where the key or the file with the hosts' keys can't be used."""
        ssh = config.ssh
        self.seconds = config.rpc_timeout
        """What a poll may take; may be set to another value."""
        self.resolver = resolver or Resolver()
        self.keys = _private_keys(ssh)
        self.known_hosts = _known_hosts(ssh)
        self._user = ssh.user
        self._made_of = (ssh, [key.public_data for key in self.keys])
        # It tells of every connection at the level INFO.
        logging.getLogger("asyncssh").setLevel(logging.WARNING)

    def same_as(self, other: Logins) -> bool:
        """Return whether both lead to the same logins, so that connections may go on."""
        return self._made_of == other._made_of

    def user(self, entry: HostEntry) -> str:
        """Return the login name for a host. Raises SetupError where there is none to use."""
        if entry.user is not None:
            return entry.user
        return self._user if self._user is not None else _own_name()

    async def close(self) -> None:
        await self.resolver.close()


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:  # a user without an entry in the account database
        return None


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError as error:
        raise SetupError(
            "ssh.user: expected a login name, found none, and the user that runs gpumon has no "
            "name of its own. Set ssh.user"
        ) from error


def _private_keys(ssh: SshConfig) -> list[asyncssh.SSHKey]:
    if ssh.key_file is not None:
        return [_private_key(ssh.key_file)]
    home = _home()
    usual = [] if home is None else [home / ".ssh" / name for name in _USUAL_KEYS]
    keys = [_private_key(path) for path in usual if os.path.exists(path)]
    if not keys:
        looked = ", ".join(map(str, usual)) or "no home of the user that runs gpumon"
        raise SetupError(
            f"ssh.key_file: not set, and there is no key in {looked}. {_MAKE_ONE}, and set "
            "ssh.key_file"
        )
    return keys


def _private_key(path: Path) -> asyncssh.SSHKey:
    try:
        status = path.stat()
        key = asyncssh.read_private_key(str(path))
    except FileNotFoundError as error:
        raise SetupError(f"ssh.key_file: {path} does not exist. {_MAKE_ONE}") from error
    except OSError as error:
        raise SetupError(
            f"ssh.key_file: {path} can't be read ({error.strerror}); the user that runs gpumon "
            "must be allowed to read it"
        ) from error
    except asyncssh.KeyEncryptionError as error:
        raise _locked(path) from error
    except asyncssh.KeyImportError as error:
        if "passphrase" in str(error).lower():
            raise _locked(path) from error
        raise SetupError(f"ssh.key_file: {path} is no private key. {_MAKE_ONE}") from error
    if stat.S_IMODE(status.st_mode) & (stat.S_IRWXO | stat.S_IWGRP):
        log.warning(
            "ssh.key_file: %s can be read or written by more users than needed (mode %04o); close "
            "it with: chmod 600 %s",
            path,
            stat.S_IMODE(status.st_mode),
            path,
        )
    return key


def _locked(path: Path) -> SetupError:
    return SetupError(
        f"ssh.key_file: {path} has a passphrase, and nobody is there to type it. Use a key without "
        "one that can do nothing but print the GPUs (docs/sources.md shows the line for it)"
    )


def _known_hosts(ssh: SshConfig) -> KnownHosts:
    if ssh.known_hosts is None:
        home = _home()
        usual = [Path("/etc/ssh/ssh_known_hosts")]
        return KnownHosts(usual if home is None else [home / ".ssh" / "known_hosts", *usual])
    known = KnownHosts([ssh.known_hosts])
    try:
        ssh.known_hosts.stat()
        known.keys()
    except FileNotFoundError as error:
        raise SetupError(
            f"ssh.known_hosts: {ssh.known_hosts} does not exist. Make it with ssh-keyscan HOST, "
            "and compare the keys with those on the hosts"
        ) from error
    except OSError as error:
        raise SetupError(
            f"ssh.known_hosts: {ssh.known_hosts} can't be read ({error.strerror}); the user that "
            "runs gpumon must be allowed to read it"
        ) from error
    except ValueError as error:
        raise SetupError(
            f"ssh.known_hosts: {ssh.known_hosts} is no file of host keys ({error})"
        ) from error
    return known
