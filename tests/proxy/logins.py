"""A proxy with HTTPS and a login in front, as docs/reverse-proxy.md shows it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from proxy.proxies import Proxy, caddy_site, example, nginx_site

USER = "alice"
PASSWORD = "correct horse"


def self_signed(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for localhost; return its file and that of the key."""
    pem, key = folder / "site.pem", folder / "site.key"
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = "-subj /CN=localhost -addext subjectAltName=DNS:localhost"
    command = [*make.split(), *names.split(), "-keyout", str(key), "-out", str(pem)]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    return pem, key


def with_login(
    program: str, folder: Path, page_port: int, certificate: tuple[Path, Path], place: str = ""
) -> Proxy:
    """Start a proxy with HTTPS and a login for alice, at the root or as the example `place` says.

    `place` is the rest of a heading, such as " under /gpus/".
    """
    pem, key = certificate
    hashed = password_hash(program, folder)
    site = example(f"{program}, HTTPS and a login")
    if place:
        site = _moved(program, site, example(program + place))
    if program == "nginx":
        users = folder / "users"
        users.write_text(f"{USER}:{hashed}\n")
        return nginx_site(site, folder, page_port, pem=pem, key=key, htpasswd=users)
    paths = {"/etc/ssl/certs/gpus.pem": str(pem), "/etc/ssl/private/gpus.key": str(key)}
    return caddy_site(site, folder, page_port, HASH=hashed, **paths)


def _moved(program: str, login: str, place: str) -> str:
    """Return the site `place` with all that makes the login in the site `login`."""
    if program == "nginx":
        lines = re.findall(r"^ *(?:listen|ssl|auth).*\n", login, re.M)
        site = re.sub(r"^ *listen 80;\n", lambda _: "".join(lines), place, flags=re.M)
        names = re.findall(
            r"^ *proxy_set_header (?:X-Forwarded-User|Authorization).*\n", login, re.M
        )
        anonymous = r"^ *proxy_set_header X-Forwarded-User.*\n"
    else:
        [opening] = re.findall(r"\A.*?\n\t}\n", login, re.S)  # up to the end of basicauth
        site = re.sub(r"^:80 {\n", lambda _: opening, place)
        names = re.findall(r"^\t*header_up.*\n", login, re.M)
        anonymous = r"^\t*header_up -X-Forwarded-User\n"
    assert len(names) == 2
    return re.sub(anonymous, lambda _: "".join(names), site, flags=re.M)


def password_hash(program: str, folder: Path) -> str:
    if program == "nginx":
        command = ["openssl", "passwd", "-apr1", PASSWORD]
    else:
        command = ["caddy", "hash-password", "--plaintext", PASSWORD]
    done = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin"},
    )
    return done.stdout.strip()
