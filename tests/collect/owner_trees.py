"""Recorded /proc folders of processes, for what this machine can't run."""

from __future__ import annotations

from pathlib import Path

HOST_MOUNTS = (
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "30 22 0:45 /homes /home rw,relatime shared:9 - xfs /dev/sdb1 rw\n"
    "31 22 0:60 / /home/carol rw,relatime - nfs4 nas:/export/carol rw\n"
)


def write(
    proc: Path,
    pid: int,
    *,
    uid: int = 0,
    parent: int = 1,
    start: int = 1000,
    comm: str = "python",
    argv: tuple[str, ...] = ("python", "train.py"),
    cgroup: str = "0::/\n",
    environment: dict[str, str] | None = None,
    mounts: str = "",
) -> None:
    """Write the folder of a process; `environment` None: it can't be read."""
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    tail = " ".join(["0"] * 30)
    (folder / "stat").write_text(
        f"{pid} ({comm}) S {parent} 1 1 0 -1 0 0 0 0 0 5 5 0 0 20 0 1 0 {start} 9999 256 {tail}\n"
    )
    (folder / "status").write_text(f"Name:\t{comm}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in argv))
    (folder / "cgroup").write_text(cgroup)
    (folder / "mountinfo").write_text(mounts)
    if environment is not None:
        entries = [f"{key}={value}\0".encode() for key, value in environment.items()]
        (folder / "environ").write_bytes(b"".join(entries))


def write_init(proc: Path) -> None:
    """Write process 1, whose mounts are the host's."""
    write(proc, 1, parent=0, comm="systemd", argv=("/sbin/init",), mounts=HOST_MOUNTS)
