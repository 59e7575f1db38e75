#!/usr/bin/env python3
"""Packs, on the controller, everything that hosts of one kind need: one archive of wheels.

    build_release.py SOURCE OUT --python 3.11 [--arch x86_64] [--refresh]

SOURCE is a folder with gpumon's source, or its wheel. For hosts with another Python or processor
than the controller's the wheels of that kind are fetched. The hosts themselves need no pip and no
internet: pip travels in the archive. An archive that is there is used again, so that a second run
fetches nothing; --refresh looks for newer libraries. OUT can be carried to a controller without
internet.

Prints {"id": "0.1.0-1a2b3c4d", "version": "0.1.0", "archive": PATH, "changed": true}.
"""

from __future__ import annotations

import argparse
import email
import fcntl
import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

NAME = "gpumon-cluster"
EXTRAS = ("server", "ssh")
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "gpumon")
# What every Linux with Python 3.10 or newer can load: glibc 2.28 and older.
GLIBC_MINORS = (28, 27, 26, 24, 17, 12, 5)
OLD_NAMES = ("manylinux2014", "manylinux2010", "manylinux1")


class Refused(Exception):
    """What can't be done, and what to do about it."""


def fingerprint(source: Path) -> str:
    """Return a hash of what would be built."""
    digest = hashlib.sha256()
    for path in _files(source):
        digest.update(str(path.relative_to(source)).encode() if path != source else b"wheel")
        digest.update(b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _files(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    if not (source / "pyproject.toml").exists():
        raise Refused(f"{source} is neither a wheel of gpumon nor a folder with its source")
    found: list[Path] = []
    for name in SOURCES:
        path = source / name
        found += sorted(path.rglob("*")) if path.is_dir() else [path]
    return [path for path in found if path.is_file() and "__pycache__" not in path.parts]


def build_wheel(source: Path, out: Path) -> Path:
    """Return the wheel of gpumon itself."""
    if source.is_file():
        return Path(shutil.copy(source, out))
    with tempfile.TemporaryDirectory() as folder:
        # Not in the source's own folder: setuptools leaves traces there, and finds old ones.
        for path in _files(source):
            there = Path(folder) / path.relative_to(source)
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, there)
        pip("wheel", "--no-deps", "--wheel-dir", str(out), folder)
    return next(out.glob("gpumon_cluster-*.whl"))


def fetch(requirements: list[str], out: Path, python: str, arch: str) -> None:
    """Fetch wheels for that Python and processor, with what they need as this Python sees it."""
    tag = python.replace(".", "")
    platforms = [f"manylinux_2_{minor}_{arch}" for minor in GLIBC_MINORS]
    platforms += [f"{name}_{arch}" for name in OLD_NAMES] + ["any"]
    pip(
        "download", "--dest", str(out), "--find-links", str(out), "--only-binary=:all:",
        "--implementation", "cp", "--python-version", python,
        "--abi", f"cp{tag}", "--abi", "abi3", "--abi", "none",
        *(f"--platform={name}" for name in platforms), *requirements,
    )  # fmt: skip


def lacking(out: Path, python: str) -> list[str]:
    """Return requirements that the hosts' Python has and the controller's has not.

    pip judges "only for Python before 3.11" by the Python that runs it.
    """
    from pip._vendor.packaging.requirements import Requirement
    from pip._vendor.packaging.utils import canonicalize_name, parse_wheel_filename

    target = {"python_version": python, "python_full_version": f"{python}.0"}
    wheels = {parse_wheel_filename(path.name)[0]: path for path in out.glob("*.whl")}
    missing = set()
    for path in wheels.values():
        for line in metadata(path).get_all("Requires-Dist") or []:
            wanted = Requirement(line)
            extras = ("", *EXTRAS) if path.name.startswith("gpumon_cluster-") else ("",)
            applies = wanted.marker is None or any(
                wanted.marker.evaluate({**target, "extra": extra}) for extra in extras
            )
            if applies and canonicalize_name(wanted.name) not in wheels:
                wanted.marker = None
                missing.add(str(wanted))
    return sorted(missing)


def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(entry for entry in archive.namelist() if entry.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    told = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if told.returncode == 0:
        return
    if "No module named pip" in told.stderr:
        raise Refused(
            f"{sys.executable} has no pip: set gpumon_controller_python to a Python that has one"
        )
    errors = [line for line in told.stderr.splitlines() if line.startswith("ERROR")]
    last = (errors or told.stderr.strip().splitlines() or ["no words"])[-1]
    raise Refused(
        f"pip {arguments[0]} failed on the controller: {last} (without internet: make the archive "
        "on another machine with build_release.py and copy it, see docs/install.md)"
    )


def build(source: Path, out: Path, python: str, arch: str, mark: str) -> dict[str, object]:
    """Return what the archive is called, after making it."""
    with tempfile.TemporaryDirectory(dir=out, prefix=".new-") as folder:
        wheels = Path(folder) / "wheels"
        wheels.mkdir()
        own = build_wheel(source, wheels)
        version = str(metadata(own)["Version"])
        fetch([f"{NAME}[{','.join(EXTRAS)}] @ {own.as_uri()}", "pip"], wheels, python, arch)
        while more := lacking(wheels, python):
            fetch(more, wheels, python, arch)
        names = sorted(path.name for path in wheels.glob("*.whl"))
        digest = hashlib.sha256("\n".join([mark, *names]).encode()).hexdigest()
        made = {"id": f"{version}-{digest[:8]}", "version": version, "wheels": names}
        made["archive"] = f"gpumon-{made['id']}-py{python}-{arch}.tar"
        new = Path(folder) / "archive"
        with tarfile.open(new, "w") as archive:
            for name in names:
                archive.add(wheels / name, f"wheels/{name}", filter=_plain)
        new.replace(out / str(made["archive"]))
    return made


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mode, entry.mtime = 0o644, 0
    return entry


def main() -> int:
    parser = argparse.ArgumentParser(description="Pack what hosts of one kind need.")
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--python", required=True, help="the hosts' Python, such as 3.11")
    parser.add_argument("--arch", default=platform.machine(), help="as uname -m says on the hosts")
    parser.add_argument("--refresh", action="store_true", help="look for newer libraries")
    arguments = parser.parse_args()
    out, source = arguments.out.resolve(), arguments.source.resolve()
    try:
        if not re.fullmatch(r"3\.\d+", arguments.python):
            raise Refused(f'--python: expected something like 3.11, found "{arguments.python}"')
        out.mkdir(parents=True, exist_ok=True)
        with (out / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            mark = fingerprint(source)
            kind = f"{mark[:16]}-py{arguments.python}-{arguments.arch}"
            record = out / f"{kind}.json"
            changed = True
            if record.exists() and not arguments.refresh:
                made = json.loads(record.read_text())
                changed = not (out / made["archive"]).exists()
            if changed:
                made = build(source, out, arguments.python, arguments.arch, mark)
                record.write_text(json.dumps(made))
    except (Refused, OSError, subprocess.TimeoutExpired) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps({**made, "archive": str(out / made["archive"]), "changed": changed}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
