"""Debian trees that hosts are booted from, built once and kept below build/e2e/."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

BUILD = Path(__file__).parents[2] / "build" / "e2e"
LOGIN = "deploy"
PACKAGES = (
    "systemd,systemd-sysv,dbus,openssh-server,sudo,python3,iproute2,procps,curl,nginx-light,caddy"
)
"""No pip and no python3-venv: hosts must do without them."""

INIT = r"""#!/bin/sh
# The first program of a host. nspawn mounts the controllers of cgroups v1 read-only, and systemd
# then ignores MemoryMax=, TasksMax= and DeviceAllow= without a word.
for d in /sys/fs/cgroup/*/; do
  grep -q " ${d%/} cgroup " /proc/mounts && mount -o remount,bind,rw "$d"
done
# The nodes of GPUs with their real numbers. No driver is behind them: to open one fails with
# "no such device" where the rules of devices let it through, and with "not permitted" elsewhere.
if [ -e /etc/gpumon-lab-gpus ]; then
  mknod -m 666 /dev/nvidiactl c 195 255
  mknod -m 666 /dev/nvidia0 c 195 0
  mknod -m 666 /dev/nvidia1 c 195 1
fi
# systemd 256 and newer refuse controllers of v1 unless told otherwise on their command line.
exec /lib/systemd/systemd SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1
"""

SETUP = f"""
set -e
useradd -m -s /bin/bash {LOGIN}
echo '{LOGIN} ALL=(ALL) NOPASSWD:ALL' > /etc/sudoers.d/{LOGIN}
echo 'Defaults umask=0027, umask_override' >> /etc/sudoers.d/{LOGIN}
chmod 440 /etc/sudoers.d/{LOGIN}
install -d -m 700 -o {LOGIN} -g {LOGIN} /home/{LOGIN}/.ssh
useradd -m alice
useradd -m bob
printf '%s\\n' 'PasswordAuthentication no' 'PermitRootLogin no' 'UseDNS no' \
  > /etc/ssh/sshd_config.d/lab.conf
rm -f /etc/ssh/ssh_host_* /etc/resolv.conf
: > /etc/resolv.conf
: > /etc/machine-id
ln -sf /dev/null /etc/systemd/system/apt-daily.timer
ln -sf /dev/null /etc/systemd/system/apt-daily-upgrade.timer
ln -sf /dev/null /etc/systemd/system/dpkg-db-backup.timer
ln -sf /dev/null /etc/systemd/system/e2scrub_all.timer
systemctl disable nginx caddy >/dev/null 2>&1
echo LANG=C.UTF-8 > /etc/default/locale
mkdir -p /var/log/journal
"""


def tree(suite: str) -> Path:
    """Return the tree of a Debian release ("bookworm"), after building it where it is missing."""
    BUILD.mkdir(parents=True, exist_ok=True)
    sources = _sources(suite)
    content = "\n".join([PACKAGES, INIT, SETUP, sources.read_text()])
    stamp = hashlib.sha256(content.encode()).hexdigest()[:12]
    folder = BUILD / f"tree-{suite}-{stamp}"
    if folder.exists():
        return folder
    for old in BUILD.glob(f"tree-{suite}-*"):
        shutil.rmtree(old)
    new = BUILD / f"new-{suite}"
    shutil.rmtree(new, ignore_errors=True)
    excluded = [
        f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("man", "locale", "doc", "info")
    ]
    _run(
        [
            # Whatever it mounts is gone with it, however it ends.
            *("unshare", "--mount"),
            "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            f"--include={PACKAGES}",
            *excluded,
            suite,
            str(new),
            str(sources),
        ],
        seconds=600,
    )
    init = new / "usr/local/sbin/gpumon-lab-init"
    init.write_text(INIT)
    init.chmod(0o755)
    _run(["chroot", str(new), "/bin/sh", "-c", SETUP], seconds=60)
    new.rename(folder)
    return folder


def _sources(suite: str) -> Path:
    """Return this machine's own Debian sources, for another release."""
    for path in ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"):
        found = Path(path)
        if found.exists() and found.stat().st_size:
            name = re.search(r"VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text())
            own = name[1] if name else "bookworm"
            copy = BUILD / f"{suite}{found.suffix}"
            copy.write_text(re.sub(rf"\b{own}\b", suite, found.read_text()))
            return copy
    raise FileNotFoundError("no Debian sources below /etc/apt")


def _run(command: list[str], seconds: float) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, f"{command[0]} failed:\n{done.stderr[-3000:]}"
