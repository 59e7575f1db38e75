"""A host without an agent, asked over SSH."""

from __future__ import annotations

import math

import asyncssh

from gpumon.cluster.sources.base import Reading
from gpumon.cluster.sources.foreign import as_reading
from gpumon.cluster.sources.ssh import failures
from gpumon.cluster.sources.ssh.columns import COLUMNS, Query
from gpumon.cluster.sources.ssh.connection import (
    Connection,
    Cut,
    HostKeyRefused,
    Output,
    TooLong,
    Unusable,
)
from gpumon.cluster.sources.ssh.login import Logins
from gpumon.cluster.sources.ssh.script import (
    COMMAND,
    MOST_BYTES,
    CutShort,
    Part,
    new_mark,
    script,
    taken_apart,
)
from gpumon.cluster.sources.ssh.snapshot import refused_columns, snapshot
from gpumon.cluster.sources.trust import foreign_snapshot
from gpumon.config import HostEntry
from gpumon.errors import SourceError

_NEEDED = ("host", "gpus", "processes")


class SshSource:
    """One host. Remembers what its nvidia-smi refused, and whether MIG is on."""

    def __init__(self, entry: HostEntry, logins: Logins) -> None:
        """Raises SetupError where there is no login name to use."""
        self._entry = entry
        self._where = entry.address
        self._logins = logins
        self._user = logins.user(entry)
        self._connection = Connection(entry, self._user, logins)
        self._query = Query()
        self._driver: str | None = None
        self._mig = False
        self._ended_well = True
        """Whether the last poll left nothing behind on the host."""

    async def poll(self) -> Reading:
        """Return the host's reading. Raises SourceError."""
        guard, self._ended_well = not self._ended_well, False
        try:
            reading = await self._ask(guard)
        except HostKeyRefused as error:
            raise failures.host_key(self._entry, error, self._logins.known_hosts) from error
        except asyncssh.PermissionDenied as error:
            raise failures.refused_login(self._where, self._user) from error
        except (asyncssh.Error, OSError, TooLong, Cut, Unusable) as error:
            raise failures.way_failed(error, self._where) from error
        self._ended_well = True
        return reading

    def timed_out(self, seconds: float) -> SourceError:
        """Return what to say of a poll that was cut off."""
        return failures.timed_out(self._where, seconds, self._connection.step)

    async def close(self) -> None:
        """Give up the connection."""
        await self._connection.close()

    async def _ask(self, guard: bool) -> Reading:
        # nvidia-smi refuses one column at a time.
        for _ in range(2 * len(COLUMNS)):
            mark = new_mark()
            text = script(
                self._query.names,
                mark=mark,
                seconds=math.ceil(self._logins.seconds) + 1,
                instances=self._mig,
                guard=guard,
            )
            output = await self._connection.run(COMMAND, text)
            if output.out.lstrip()[:1] == b"{":
                return self._of_gpumon(output)
            parts = self._parts(output, mark)
            refused = [name for name in refused_columns(parts["gpus"]) if self._query.refuse(name)]
            if not refused:
                return self._read(parts)
        raise failures.not_understood(self._where, "an nvidia-smi that refuses every column", b"")

    def _parts(self, output: Output, mark: str) -> dict[str, Part]:
        if len(output.out) > MOST_BYTES:
            found = f"an output of more than {MOST_BYTES // 2**20} MiB"
            raise failures.not_understood(self._where, found, output.err)
        try:
            parts = taken_apart(output.out, mark)
        except CutShort as error:
            last = str(error)
            found = f"an output that ends after the part {last!r}" if last else "no output of ours"
            found += "" if output.code is None else f" (exit code {output.code})"
            raise failures.not_understood(self._where, found, output.err or output.out) from error
        if "stuck" in parts:
            raise failures.stuck(self._where, parts["stuck"].text)
        if not all(name in parts for name in _NEEDED):
            raise failures.not_understood(self._where, "an output with parts missing", output.err)
        return parts

    def _read(self, parts: dict[str, Part]) -> Reading:
        found = snapshot(parts)
        if found.driver_version != self._driver:
            # Another driver may know what the last one refused: from the next poll on.
            if self._driver is not None:
                self._query.forget()
            self._driver = found.driver_version or self._driver
        self._mig = any(gpu.mig_mode for gpu in found.gpus)
        try:
            return as_reading(found)
        except ValueError as error:
            raise failures.not_understood(self._where, str(error), b"") from error

    def _of_gpumon(self, output: Output) -> Reading:
        """Return the reading of a key whose forced command is `gpumon snapshot --json`."""
        try:
            return as_reading(foreign_snapshot(output.out))
        except ValueError as error:
            found = f"JSON that is no snapshot of gpumon's ({error})"
            raise failures.not_understood(self._where, found, output.err) from error
