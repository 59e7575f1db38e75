"""How a sampler is started: its command, its options, the memory that it shares.

`gpumon snapshot` waits for this module, so it imports next to nothing.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from collections.abc import Iterable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpumon.agent.latest import SkippedGpu
    from gpumon.config import AgentConfig

FOLDER = "/"
"""Where it runs: "-m" puts the current folder first on Python's path, so it must be no one's."""

_PROGRESS = struct.Struct("<i")


def sampler_command(config: AgentConfig | None = None) -> list[str]:
    """Return the command of the real sampler, with the options that the configuration asks for."""
    command = [sys.executable, "-m", "gpumon.collect.sampler"]
    if config is None:
        return command
    if (state := _state_file(config)) is not None:
        command += ["--state-file", state]
    if config.owner_rules or config.container_socket is not None:
        socket = None if config.container_socket is None else str(config.container_socket)
        command += ["--owners", _json({"rules": config.owner_rules, "container_socket": socket})]
    return command


def with_options(
    command: list[str], interval: float, skip: Iterable[SkippedGpu], progress: Progress
) -> list[str]:
    """Return `command` with what each sampler is told: `skip` are the GPUs to be left alone."""
    told = {
        str(gpu.index): {"uuid": gpu.uuid, "name": gpu.name, "error": gpu.error} for gpu in skip
    }
    skipping = ["--skip", _json(told)] if told else []
    options = ["--interval", f"{interval:g}", *skipping, "--progress-fd", str(progress.descriptor)]
    return [*command, *options]


class Progress:
    """Memory shared with a sampler, where it notes the GPU that it is reading.

    Raises OSError when it can't be had. The sampler inherits `descriptor`; `started` closes it.
    """

    def __init__(self) -> None:
        self.descriptor = _anonymous_file()
        try:
            os.write(self.descriptor, _PROGRESS.pack(-1))
            self._shared = mmap.mmap(self.descriptor, _PROGRESS.size)
        except BaseException:
            self.started()
            raise

    def started(self) -> None:
        """Close the descriptor: the sampler has it, or there is none."""
        os.close(self.descriptor)

    def gpu(self) -> int | None:
        """Return the index of the GPU that is being read, None between GPUs."""
        (index,) = _PROGRESS.unpack(self._shared[: _PROGRESS.size])
        return None if index < 0 else int(index)

    def close(self) -> None:
        """Give the memory back."""
        self._shared.close()


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("gpumon-progress")
    import tempfile  # Python built for an old C library

    return os.open(tempfile.gettempdir(), os.O_TMPFILE | os.O_RDWR, 0o600)


def _json(value: object) -> str:
    from gpumon.model import encode

    return encode(value).decode()


def _state_file(config: AgentConfig) -> str | None:
    """Return where the sampler keeps its memory: as configured, else in systemd's place for it."""
    if config.state_file is not None:
        return str(config.state_file)
    folder = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    return os.path.join(folder, "health.json") if folder else None
