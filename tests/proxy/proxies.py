"""nginx and Caddy as real processes, with the examples of docs/reverse-proxy.md."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 20.0


def example(heading: str) -> str:
    """Return the code block under a heading of the page, as it stands there."""
    page = (ROOT / "docs" / "reverse-proxy.md").read_text()
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    assert section, f"docs/reverse-proxy.md has no heading {heading!r}"
    block = re.search(r"```(?:nginx|caddy)\n(.*?)```", section[1], re.S)
    assert block, f"no example under {heading!r}"
    return block[1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Proxy:
    """A running proxy; `port` is where it listens."""

    def __init__(self, command: list[str], port: int, folder: Path) -> None:
        self.port = port
        self.log = folder / "proxy.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder)},
            )
        self._wait()

    def _wait(self) -> None:
        limit = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < limit:
            assert self._process.poll() is None, self.log.read_text()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.05)
        raise AssertionError(f"the proxy does not listen: {self.log.read_text()}")

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=10)


def nginx(heading: str, folder: Path, page_port: int, **files: Path) -> Proxy:
    """Start nginx with the example under `heading`; `files` stand for the paths in it."""
    return nginx_site(example(heading), folder, page_port, **files)


def nginx_site(site: str, folder: Path, page_port: int, **files: Path) -> Proxy:
    """Start nginx with such a site."""
    port = free_port()
    site = site.replace("127.0.0.1:8042", f"127.0.0.1:{page_port}")
    site = re.sub(r"listen (80|443)", f"listen 127.0.0.1:{port}", site)
    for name, path in files.items():
        site = re.sub(rf"\S*/\S*\.{name};", f"{path};", site)
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = folder / "nginx.conf"
    config.write_text(
        f"daemon off;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\n"
        f"user root;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}{site}}}\n"
    )
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, "nginx is not installed: tests/install-packages"
    command = [program, "-e", f"{folder}/error.log", "-p", str(folder), "-c", str(config)]
    return Proxy(command, port, folder)


def caddy(heading: str, folder: Path, page_port: int, **values: str) -> Proxy:
    """Start Caddy with the example under `heading`; `values` replace texts in it."""
    return caddy_site(example(heading), folder, page_port, **values)


def caddy_site(site: str, folder: Path, page_port: int, **values: str) -> Proxy:
    """Start Caddy with such a site."""
    port = free_port()
    site = site.replace("127.0.0.1:8042", f"127.0.0.1:{page_port}")
    site = re.sub(r"^:80", f"http://127.0.0.1:{port}", site, flags=re.M)
    site = site.replace("https://gpus.example.org", f"https://localhost:{port}")
    for text, value in values.items():
        site = site.replace(text, value)
    config = folder / "Caddyfile"
    config.write_text(f"{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{site}")
    program = shutil.which("caddy")
    assert program, "caddy is not installed: tests/install-packages"
    return Proxy([program, "run", "--adapter", "caddyfile", "--config", str(config)], port, folder)
