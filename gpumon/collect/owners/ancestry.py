"""From where a process was started: tmux, screen, Jupyter, an ssh session. A hint, no evidence."""

from __future__ import annotations

import re

from gpumon.collect import procfs
from gpumon.collect.program import program

_MOST_ANCESTORS = 16

_NAMES = {
    b"tmux: server": "tmux",
    b"tmux": "tmux",
    b"screen": "screen",
    b"sshd": "ssh session",
    b"sshd-session": "ssh session",
}
_MAY_BE_JUPYTER = (b"jupyter", b"python", b"pypy")
_JUPYTER = re.compile(
    r"(?:python (?:-m )?)?jupyter(?:lab|hub)?(?:-[a-z]+)?\Z"
    r"|python -m (?:notebook|jupyterhub\.\w+)\Z"
)


class Ancestors:
    """Finds telling ancestors. `proc` is where /proc is mounted."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._read: dict[int, tuple[int, int, str | None]] = {}

    def begin(self) -> None:
        """Begin a sample: within one, an ancestor of many processes is read once."""
        self._read = {}

    def started_from(self, pid: int, uid: int, own_program: str | None) -> str | None:
        """Return what the nearest telling ancestor of a process is; None where none tells.

        Only ancestors of the same user count, sixteen at most. A process whose parent has ended has
        lost its ancestors.
        """
        if own_program == "jupyter":  # a kernel says so itself
            return "jupyter"
        try:
            parent = procfs.read_stat(f"{self._proc}/{pid}").parent
            for _ in range(_MOST_ANCESTORS):
                if parent <= 1:
                    return None
                parent, owner, name = self._look_at(parent)
                if owner != uid:
                    return None
                if name is not None:
                    return name
        except (OSError, ValueError, IndexError):
            pass  # an ancestor ended meanwhile or is hidden: then nothing is told
        return None

    def slurm_step(self, pid: int) -> str | None:
        """Return the title of Slurm's process that started this one: "slurmstepd: [123.0]".

        It must be root's, so that it is no program of that name. None where there is none.
        """
        try:
            parent = procfs.read_stat(f"{self._proc}/{pid}").parent
            for _ in range(_MOST_ANCESTORS):
                if parent <= 1:
                    return None
                folder = f"{self._proc}/{parent}"
                stat = procfs.read_stat(folder)
                if stat.comm == b"slurmstepd" and procfs.read_uid(folder) == 0:
                    return " ".join(procfs.read_arguments(folder))
                parent = stat.parent
        except (OSError, ValueError, IndexError):
            pass  # as above
        return None

    def _look_at(self, pid: int) -> tuple[int, int, str | None]:
        """Return parent, owner and telling name of an ancestor."""
        known = self._read.get(pid)
        if known is None:
            folder = f"{self._proc}/{pid}"
            stat = procfs.read_stat(folder)
            known = stat.parent, procfs.read_uid(folder), _name(stat.comm, folder)
            self._read[pid] = known
        return known


def _name(comm: bytes, folder: str) -> str | None:
    if comm.startswith(_MAY_BE_JUPYTER):
        name = program(comm, procfs.read_arguments(folder))
        return "jupyter" if _JUPYTER.match(name or "") else None
    return _NAMES.get(comm)
