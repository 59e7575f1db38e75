#!/usr/bin/python
"""Puts a release of gpumon beside those that are there. Nothing that runs is touched."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpumon_release
short_description: Install a release of gpumon from its archive of wheels
description:
  - Makes a virtual environment of its own for each release, without the network and without the
    host's pip. A release that is complete and whose Python runs is left alone.
  - Removes releases that no service points to, now or as the one before.
options:
  archive:
    description: The archive that build_release.py made, on the host.
    type: path
    required: true
  path:
    description: Folder of the release.
    type: path
    required: true
  version:
    description: Version of gpumon in it.
    type: str
    required: true
  extras:
    description: Sets of libraries beyond the agent's.
    type: list
    elements: str
    default: []
  python:
    description: The host's Python.
    type: path
    default: /usr/bin/python3
author:
  - The gpumon contributors (@gpumon)
"""

EXAMPLES = r"""
- name: Install the release
  gpumon_release:
    archive: /opt/gpumon/archives/gpumon-0.1.0-1a2b3c4d-py3.11-x86_64.tar
    path: /opt/gpumon/0.1.0-1a2b3c4d-py3.11
    version: 0.1.0
"""

RETURN = r"""
removed:
  description: What was removed because nothing needs it any more.
  returned: always
  type: list
  elements: str
"""

import contextlib
import fcntl
import glob
import json
import os
import shutil
import tarfile
import tempfile
import time

from ansible.module_utils.basic import AnsibleModule

MARK = "gpumon-release.json"
"""In the release's folder, written last: a release without it is half done."""
WAIT_SECONDS = 120.0
"""So long another run may be at work here; what it does takes ten seconds, more on a slow host."""


class Release:
    def __init__(self, module):
        self.module = module
        self.path = module.params["path"]
        self.root = os.path.dirname(self.path)
        self.python = os.path.join(self.path, "bin", "python")
        self.extras = sorted(module.params["extras"])

    def state(self):
        """Return why it has to be made, None where it is good."""
        try:
            with open(os.path.join(self.path, MARK)) as file:
                made_with = json.load(file)
        except (OSError, ValueError):
            return "it is not there, or half done"
        if not set(self.extras) <= set(made_with["extras"]):
            return "it lacks libraries of: {}".format(", ".join(self.extras))
        if version_of(self.module, self.python) != version_of(
            self.module, self.module.params["python"]
        ):
            return "its Python does not run, or is not the host's any more"
        return None

    def make(self):
        if os.path.exists(self.path):
            # A service may still run from it: it keeps its open files and is restarted soon.
            shutil.rmtree(self.path)
        with tempfile.TemporaryDirectory(dir=self.root, prefix=".unpacked-") as folder:
            wheels = os.path.join(folder, "wheels")
            os.mkdir(wheels)
            with tarfile.open(self.module.params["archive"]) as archive:
                for entry in archive.getmembers():
                    if not entry.isfile() or os.path.dirname(entry.name) != "wheels":
                        raise ValueError(f"{entry.name} does not belong into a release")
                    with open(os.path.join(folder, entry.name), "wb") as file:
                        shutil.copyfileobj(archive.extractfile(entry), file)
            self._run(self.module.params["python"], "-I", "-m", "venv", "--without-pip", self.path)
            pip = os.path.join(glob.glob(os.path.join(wheels, "pip-*.whl"))[0], "pip")
            wanted = "gpumon-cluster{}=={}".format(
                "[{}]".format(",".join(self.extras)) if self.extras else "",
                self.module.params["version"],
            )
            self._run(
                self.python, pip, "--isolated", "--no-cache-dir", "--disable-pip-version-check",
                "install", "--quiet", "--no-index", "--find-links", wheels, wanted,
            )  # fmt: skip
        self._run(self.python, "-I", "-m", "gpumon", "--version")
        with open(os.path.join(self.path, MARK), "w") as file:
            json.dump({"extras": self.extras, "version": self.module.params["version"]}, file)

    def _run(self, *command):
        status, out, err = self.module.run_command(list(command), cwd="/")
        if status != 0:
            last = ((err or out).strip() or "no words").splitlines()[-1]
            raise ValueError(f"{os.path.basename(command[-1])} failed: {last}")

    def superfluous(self):
        """Return the releases and archives that nothing points to."""
        kept = {os.path.realpath(self.path)}
        for link in glob.glob(os.path.join(self.root, "*")):
            if os.path.islink(link):
                kept.add(os.path.realpath(link))
        names = {os.path.basename(path) for path in kept}
        found = [
            path
            for path in glob.glob(os.path.join(self.root, "*-py3.*"))
            if os.path.isdir(path) and not os.path.islink(path) and path not in kept
        ]
        for archive in glob.glob(os.path.join(self.root, "archives", "gpumon-*.tar")):
            release = os.path.basename(archive)[len("gpumon-") :].rpartition("-")[0]
            if release not in names:
                found.append(archive)
        return sorted(found)


@contextlib.contextmanager
def alone(root):
    """Keep other runs out. One whose controller is gone may still be at work on this host."""
    folder = os.open(root, os.O_RDONLY)
    deadline = time.monotonic() + WAIT_SECONDS
    try:
        while True:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ValueError(
                        f"another run is at work in {root}, for {WAIT_SECONDS:.0f} s now; "
                        "see what it does (pgrep -af gpumon), and run again when it has ended"
                    ) from None
            time.sleep(0.2)
        yield
    finally:
        os.close(folder)


def version_of(module, python):
    """Return what a Python calls itself, None where it does not run."""
    if not os.path.exists(python):
        return None
    status, out, _err = module.run_command([python, "-I", "-c", "import sys; print(sys.version)"])
    return out if status == 0 else None


def main():
    module = AnsibleModule(
        argument_spec={
            "archive": {"type": "path", "required": True},
            "path": {"type": "path", "required": True},
            "version": {"type": "str", "required": True},
            "extras": {"type": "list", "elements": "str", "default": []},
            "python": {"type": "path", "default": "/usr/bin/python3"},
        },
        supports_check_mode=True,
    )
    os.umask(0o022)  # the service's user must be able to read it, whatever root's umask
    release = Release(module)
    try:
        with contextlib.nullcontext() if module.check_mode else alone(release.root):
            told = install(module, release)
    except (OSError, ValueError, LookupError, tarfile.TarError) as error:
        module.fail_json(msg=f"the release {release.path} can't be installed: {error}")
    module.exit_json(**told)


def install(module, release):
    """Make it where that is needed; return what came of it."""
    reason = release.state()
    diff = {"before": "", "after": f"{release.path}\n" if reason else ""}
    removed = release.superfluous() if reason else []
    if reason and not module.check_mode:
        try:
            release.make()
        except BaseException:
            shutil.rmtree(release.path, ignore_errors=True)
            raise
        for path in removed:
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
    return {"changed": bool(reason), "reason": reason, "removed": removed, "diff": diff}


if __name__ == "__main__":
    main()
