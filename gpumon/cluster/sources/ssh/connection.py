"""One SSH connection to one host, kept for all polls, and one command at a time on it."""

from __future__ import annotations

import asyncio
import math
import socket
from contextlib import suppress

import aiohappyeyeballs
import asyncssh
import msgspec

from gpumon.cluster.sources.ssh.login import Logins
from gpumon.config import HostEntry

MOST_BYTES = 4 * 1024 * 1024
"""Of one command's output. 16 GPUs full of processes need a tenth of it."""
MOST_ERROR_BYTES = 4096
KEEPALIVE_SECONDS = 15.0
KEEPALIVE_COUNT = 2
"""A host that is silent for so many of these is gone, whatever TCP says."""


class Output(msgspec.Struct, frozen=True):
    """What a command printed, and its exit code; None: a signal ended it."""

    out: bytes
    err: bytes
    code: int | None


class TooLong(Exception):
    """The output has more than MOST_BYTES."""


class Cut(Exception):
    """The connection ended in the middle of an answer."""


class Unusable(Exception):
    """What the server needs for a connection can't be used. `str()` says what and why."""


class HostKeyRefused(Exception):
    """The host's key is not the one that is known. `known`: another one is."""

    def __init__(self, known: bool, fingerprint: str | None) -> None:
        super().__init__()
        self.known = known
        self.fingerprint = fingerprint


class _Client(asyncssh.SSHClient):
    """Believes no key that is not known; remembers which one the host showed."""

    fingerprint: str | None = None

    def validate_host_public_key(
        self, _host: str, _addr: str, _port: int, key: asyncssh.SSHKey
    ) -> bool:
        self.fingerprint = key.get_fingerprint()
        return False


class _Command(asyncssh.SSHClientSession[bytes]):
    """Collects what one command prints, and not a byte more than the limit."""

    def __init__(self) -> None:
        self.done: asyncio.Future[Output] = asyncio.get_running_loop().create_future()
        self._out = bytearray()
        self._err = bytearray()
        self._code: int | None = None
        self._ended = False

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        if datatype is not None:
            self._err += data[: MOST_ERROR_BYTES - len(self._err)]
        elif len(self._out) + len(data) > MOST_BYTES:
            self._fail(TooLong())
        else:
            self._out += data

    def exit_status_received(self, status: int) -> None:
        self._code, self._ended = status, True

    def exit_signal_received(
        self, _signal: str, _core_dumped: bool, _message: str, _lang: str
    ) -> None:
        self._ended = True

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None or not self._ended:
            self._fail(Cut())
        elif not self.done.done():
            self.done.set_result(Output(bytes(self._out), bytes(self._err), self._code))

    def _fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # seen: perhaps nobody waits any more


class Connection:
    """The connection to one host: opened when it is needed, dropped when anything goes wrong."""

    def __init__(self, entry: HostEntry, user: str, logins: Logins) -> None:
        self._entry = entry
        self._user = user
        self._logins = logins
        self._open: asyncssh.SSHClientConnection | None = None
        self.step = "connecting"
        """How far the poll has come: "name", "connecting", "logging in", "waiting"."""

    async def run(self, command: str, text: str) -> Output:
        """Return what `command` prints, with `text` as its stdin.

        A connection that was kept and is dead is replaced once. Raises HostKeyRefused, Unusable,
        TooLong, Cut, asyncssh.Error or OSError; after that, or cut off, the connection is dropped.
        The command's stdin stays open until then: a command that should not outlive it has to look.
        """
        kept = self._open is not None
        try:
            return await self._run(command, text)
        except (asyncssh.ConnectionLost, asyncssh.ChannelOpenError, Cut, OSError):
            if not kept:
                raise
        return await self._run(command, text)

    async def _run(self, command: str, text: str) -> Output:
        try:
            if self._open is None or self._open.is_closed():
                self._open = None
                self._open = await self._connect()
            self.step = "waiting"
            session = _Command()
            channel, _ = await self._open.create_session(
                lambda: session, command, encoding=None, env=(), send_env=(), request_pty=False
            )
            # A forced command may have ended without reading its stdin; its output tells.
            with suppress(OSError):
                channel.write(text.encode())
            return await session.done
        except BaseException:  # being cut off by the deadline included
            self.drop()
            raise

    async def _connect(self) -> asyncssh.SSHClientConnection:
        entry, logins = self._entry, self._logins
        try:
            trusted = logins.known_hosts.of(entry)
        except (OSError, ValueError) as error:
            raise Unusable(f"{logins.known_hosts} can't be read: {error}") from error
        self.step = "name"
        found = await logins.resolver.addresses(entry.host)
        self.step = "connecting"
        wire = await aiohappyeyeballs.start_connection(
            [
                (family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, entry.port))
                for family, address in found
            ],
            happy_eyeballs_delay=0.25,
        )
        self.step = "logging in"
        client = _Client()
        try:
            return await asyncssh.connect(
                entry.host,
                entry.port,
                sock=wire,
                client_factory=lambda: client,
                config=None,
                username=self._user,
                client_keys=logins.keys,
                known_hosts=trusted,
                x509_trusted_certs=None,
                preferred_auth="publickey",
                password_auth=False,
                kbdint_auth=False,
                host_based_auth=False,
                gss_auth=False,
                gss_kex=False,
                agent_path=None,
                # The poll's own deadline is shorter; this one is for what it could not cut off.
                login_timeout=math.ceil(logins.seconds) + 5,
                keepalive_interval=KEEPALIVE_SECONDS,
                keepalive_count_max=KEEPALIVE_COUNT,
            )
        except asyncssh.HostKeyNotVerifiable as error:
            raise HostKeyRefused(any(trusted[:2]), client.fingerprint) from error
        except ValueError as error:  # of asyncssh, on its options
            wire.close()
            raise Unusable(str(error)) from error
        except BaseException:
            wire.close()
            raise

    def drop(self) -> None:
        """Give up the connection, and with it what runs on the host. Waits for nothing."""
        if self._open is not None:
            self._open.close()
            self._open = None

    async def close(self) -> None:
        """Give up the connection for good."""
        connection = self._open
        self.drop()
        if connection is not None:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(connection.wait_closed(), 1.0)
