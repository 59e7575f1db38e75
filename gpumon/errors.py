"""All errors of gpumon, as one tree.

    GpumonError
     ├── ConfigError      the configuration can't be used        exit code 2
     ├── StartError       a daemon can't start (port in use ...) exit code 1
     │    └── SetupError  a file that it names can't be used     exit code 2
     ├── CollectError     the driver or library doesn't answer   exit code 1
     └── SourceError      a poll of one host failed              shown on that host's row

A message says where, what was expected, what was found and what to do. It is shown to people as it
stands, so it holds no traceback and no secret.
"""

from __future__ import annotations


class GpumonError(Exception):
    """Base of all errors that gpumon raises on purpose."""

    exit_code = 1


class ConfigError(GpumonError):
    """The configuration can't be used. `faults` holds one complete sentence per fault."""

    exit_code = 2

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class StartError(GpumonError):
    """A daemon can't start: port in use, no right to bind."""


class SetupError(StartError):
    """A file that the configuration names (tokens, certificates) can't be used."""

    exit_code = 2


class CollectError(GpumonError):
    """NVML can't be used on this host. `kind` is one of `KINDS`."""

    KINDS = ("no library", "no driver", "version mismatch", "no permission", "failed")

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class SourceError(GpumonError):
    """One poll of one host failed. `kind` is a short word, the message the whole sentence."""

    KINDS = (
        "refused",
        "no route",
        "name not found",
        "timed out",
        "bad answer",
        "wrong token",
        "version too old",
        "tls",
        "silent",
        "loop",
        "host key",
        "login refused",
        "failed",
    )

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
