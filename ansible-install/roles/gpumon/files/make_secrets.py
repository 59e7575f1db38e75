#!/usr/bin/env python3
"""Makes, on the controller, what a gpumon cluster keeps secret: token, authority, certificates.

    make_secrets.py FOLDER [--check] [--days 365] [--renew-days 45]  < {"NAME": ["DNS or IP", ...]}

What is there and good is kept. A certificate is made anew when it is near its end, when the names
of its host have changed, or when another authority signed it. Needs the program openssl and nothing
else. Prints {"changed": [files], "missing": [files], "warnings": [sentences]}; exit code 1 with one
line on stderr when something can't be made.

    FOLDER/.gitignore       keeps all of it out of git
    FOLDER/token            one token a line: the first is sent, all are accepted
    FOLDER/ca.key, ca.crt   the authority; the key never leaves this folder
    FOLDER/hosts/NAME.key, NAME.crt
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import ipaddress
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

CA_DAYS = 3650
CA_WARN_DAYS = 90
PAGE = "page-"
"""Begins the name of a proxy's certificate."""
KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
CONFIG = """
[req]
distinguished_name = dn
prompt = no
x509_extensions = ca
[dn]
CN = {name}
[ca]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[host]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = {usage}
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {names}
"""


class Refused(Exception):
    """What can't be done, and what to do about it."""


class Secrets:
    """One folder of secrets. With `check` nothing is written, only told."""

    def __init__(self, folder: Path, *, check: bool, days: int, renew_days: int) -> None:
        self.folder, self.check, self.days, self.renew_days = folder, check, days, renew_days
        self.changed: list[str] = []
        self.missing: list[str] = []
        self.warnings: list[str] = []

    def keep_out_of_git(self) -> None:
        path = self.folder / ".gitignore"
        if not self.check and not path.exists():
            write(path, "*\n")

    def token(self) -> None:
        path = self.folder / "token"
        if path.exists():
            return
        self._note(path)
        if not self.check:
            write(path, secrets.token_hex(32) + "\n")

    def authority(self) -> None:
        key, certificate = self.folder / "ca.key", self.folder / "ca.crt"
        if certificate.exists():
            if not lasts(certificate, 0):
                raise Refused(
                    f"the authority {certificate} has ended, and nobody believes a certificate of "
                    "it any more: move ca.key and ca.crt away and run again, then all certificates "
                    "become new (of an authority of your own: put its new ca.crt there)"
                )
            if not lasts(certificate, CA_WARN_DAYS):
                self.warnings.append(
                    f"the authority {certificate} ends within {CA_WARN_DAYS} days: change it "
                    'before, without a gap, as docs/install.md says under "When the authority ends"'
                )
            return
        if key.exists() and any(self.folder.glob("hosts/*.crt")):
            raise Refused(f"{key} is there without {certificate}: restore it from the backup")
        self._note(certificate)
        if self.check:
            return
        name = "gpumon cluster authority"
        with config(name, []) as file, whole(certificate) as made, whole(key) as made_key:
            openssl(
                "req", "-x509", *KEY, "-sha256", "-days", str(CA_DAYS), "-config", file,
                "-keyout", made_key, "-out", made,
            )  # fmt: skip

    def host(self, name: str, names: list[str]) -> None:
        base = self.folder / "hosts" / name
        certificate, key = base.with_name(f"{name}.crt"), base.with_name(f"{name}.key")
        listed = base.with_name(f"{name}.names")
        wanted = "\n".join(names) + "\n"
        ours = (self.folder / "ca.key").exists()
        if certificate.exists() and key.exists():
            if not ours and lasts(certificate, 0):
                return  # a site's own authority: what is there is what is wanted
            good = listed.exists() and listed.read_text() == wanted
            if good and lasts(certificate, self.renew_days) and self._signed_by_us(certificate):
                return
        elif not ours and (self.folder / "ca.crt").exists():
            raise Refused(
                f"{certificate} and {key} are missing, and there is no ca.key to make them with: "
                "put them there, signed by the authority in ca.crt"
            )
        self._note(certificate)
        if self.check:
            return
        request = base.with_name(f".{name}.csr")
        with config(name, names) as file, whole(certificate) as made, whole(key) as made_key:
            openssl("req", "-new", *KEY, "-config", file, "-keyout", made_key, "-out", str(request))
            openssl(
                "x509", "-req", "-sha256", "-in", str(request), "-days", str(self.days),
                "-CA", str(self.folder / "ca.crt"), "-CAkey", str(self.folder / "ca.key"),
                "-set_serial", str(secrets.randbits(120)), "-extfile", file, "-extensions", "host",
                "-out", made,
            )  # fmt: skip
        request.unlink()
        write(listed, wanted)

    def _signed_by_us(self, certificate: Path) -> bool:
        told = run("openssl", "verify", "-CAfile", str(self.folder / "ca.crt"), str(certificate))
        return told.returncode == 0

    def _note(self, path: Path) -> None:
        self.changed.append(str(path))
        if not path.exists():
            self.missing.append(str(path))


def lasts(certificate: Path, days: int) -> bool:
    """Return whether the certificate is good for so many days more."""
    seconds = str(days * 86400)
    told = run("openssl", "x509", "-in", str(certificate), "-noout", "-checkend", seconds)
    return told.returncode == 0


@contextlib.contextmanager
def config(name: str, names: list[str]):
    """Yield the path of a configuration of openssl for these names."""
    # The page's certificate is shown to browsers only; agents must not take it for the server's.
    usage = "serverAuth" if name.startswith(PAGE) else "serverAuth, clientAuth"
    kinds = ", ".join(f"{'IP' if is_address(entry) else 'DNS'}:{entry}" for entry in names)
    with tempfile.NamedTemporaryFile("w", suffix=".cnf") as file:
        file.write(CONFIG.format(name=name[:64], names=kinds or "DNS:unused", usage=usage))
        file.flush()
        yield file.name


@contextlib.contextmanager
def whole(path: Path):
    """Yield a path to write to; the file appears under its name when it is complete."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    yield str(new)
    new.replace(path)


def write(path: Path, text: str) -> None:
    with whole(path) as new:
        Path(new).write_text(text)


def openssl(*arguments: str) -> None:
    told = run("openssl", *arguments)
    if told.returncode != 0:
        last = (told.stderr.strip() or "no words").splitlines()[-1]
        raise Refused(f"openssl {arguments[0]} failed: {last}")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError as error:
        raise Refused(f"the controller needs the program {command[0]}: install it") from error


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def names_of(text: str) -> dict[str, list[str]]:
    """Return what is asked for on stdin. Names must do as file names and in certificates."""
    asked = json.loads(text)
    for name, names in asked.items():
        for entry in [name, *names]:
            if not is_address(entry) and not re.fullmatch(r"[A-Za-z0-9_*][A-Za-z0-9_.*-]*", entry):
                raise Refused(f'"{entry}" can\'t be the name of a host in a certificate')
    return {name: sorted(set(names)) for name, names in asked.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the secrets of a gpumon cluster.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing, tell what would be")
    parser.add_argument("--days", type=int, default=365, help="how long a certificate is good")
    parser.add_argument("--renew-days", type=int, default=45, help="renewed so long before its end")
    arguments = parser.parse_args()
    made = Secrets(
        arguments.folder,
        check=arguments.check,
        days=arguments.days,
        renew_days=arguments.renew_days,
    )
    os.umask(0o077)
    try:
        hosts = names_of(sys.stdin.read())
        with contextlib.ExitStack() as stack:
            if not arguments.check:
                arguments.folder.mkdir(parents=True, exist_ok=True)
                lock = stack.enter_context((arguments.folder / ".lock").open("w"))
                fcntl.flock(lock, fcntl.LOCK_EX)
            made.keep_out_of_git()
            made.token()
            made.authority()
            for name, names in hosts.items():
                made.host(name, names)
    except (Refused, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    told = {"changed": made.changed, "missing": made.missing, "warnings": made.warnings}
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
