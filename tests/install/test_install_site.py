"""The page's site in a real nginx or Caddy that has other sites: beside them, or not at all."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import http.client
import http.server
import os
import platform
import re
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from install.healthy_page import HealthyPage
from install.install_module import run_module

BOTH = pytest.mark.parametrize("program", ["nginx", "caddy"])
needs_proxies = pytest.mark.skipif(
    shutil.which("nginx") is None or shutil.which("caddy") is None, reason="no nginx and Caddy"
)
pytestmark = needs_proxies


class Proxy:
    """A proxy with a site of its own on a free port, and a systemctl that starts the real thing."""

    def __init__(self, program: str, folder: Path, upstream: int) -> None:
        self.program, self.folder, self.upstream = program, folder, upstream
        self.port, self.admin = free_port(), free_port()
        self.sites, self.programs = folder / "sites", folder / "programs"
        self.site = self.sites / ("gpumon.conf" if program == "nginx" else "gpumon.caddy")
        for new in (self.sites, self.programs):
            new.mkdir()
        openssl = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
        openssl += "-subj /CN=page -addext subjectAltName=DNS:page.lab,DNS:wiki.lab "
        openssl += f"-keyout {folder}/page.key -out {folder}/page.crt"
        subprocess.run(openssl.split(), check=True, capture_output=True, timeout=20)
        self.tls = f"{folder}/page.crt {folder}/page.key"
        self.main = folder / "main"
        self.main.write_text(self._main())
        start = {
            "nginx": f"nginx -c {self.main}",
            "caddy": f"caddy start --adapter caddyfile --config {self.main} >/dev/null 2>&1",
        }[program]
        reload = {
            "nginx": f"nginx -c {self.main} -s reload",
            "caddy": f"caddy reload --adapter caddyfile --config {self.main} "
            f"--address 127.0.0.1:{self.admin}",
        }[program]
        self.stop = {
            "nginx": f"nginx -c {self.main} -s quit",
            "caddy": f"caddy stop --address 127.0.0.1:{self.admin}",
        }[program]
        (self.programs / "systemctl").write_text(
            "#!/bin/sh\n"
            f"cd {folder}; export HOME={folder} XDG_DATA_HOME={folder} XDG_CONFIG_HOME={folder}\n"
            f"echo $1 >> {folder}/verbs\n"
            "case $1 in\n"
            "  is-active) test -e running ;;\n"
            "  is-enabled) test -e enabled ;;\n"
            "  enable) touch enabled ;;\n"
            "  disable) rm -f enabled ;;\n"
            f"  start) {start} && touch running ;;\n"
            f"  reload) {reload} ;;\n"
            f"  stop) {self.stop} && rm -f running ;;\n"
            "esac\n"
        )
        (self.programs / "journalctl").write_text("#!/bin/sh\nexit 1\n")
        for path in self.programs.iterdir():
            path.chmod(0o755)

    def _main(self) -> str:
        if self.program == "nginx":
            return (
                f"pid {self.folder}/pid; error_log {self.folder}/log; events {{}}\n"
                f"http {{ access_log off; include {self.sites}/*.conf; {self.nginx('wiki.lab')} }}"
            )
        # The port of HTTP would be bound to lead to HTTPS.
        options = f"admin 127.0.0.1:{self.admin}\n\tauto_https off"
        return f"{{\n\t{options}\n}}\n{self.caddy('wiki.lab')}"

    def nginx(self, name: str, more: str = "return 200 wiki;") -> str:
        """Return a site of nginx's."""
        cert, key = self.tls.split()
        return (
            f"server {{ listen {self.port} ssl; server_name {name}; ssl_certificate {cert}; "
            f"ssl_certificate_key {key}; location / {{ {more} }} }}\n"
        )

    def caddy(self, name: str, more: str = "respond wiki") -> str:
        """Return a site of Caddy's."""
        return f"https://{name}:{self.port} {{\n\ttls {self.tls}\n\t{more}\n}}\n"

    def page(self, name: str = "page.lab", upstream: int | None = None) -> str:
        """Return the page's site."""
        target = f"127.0.0.1:{upstream or self.upstream}"
        if self.program == "nginx":
            return self.nginx(name, f"proxy_pass http://{target};")
        return self.caddy(name, f"reverse_proxy {target}")

    def module(self, content: str, **parameters: Any) -> dict[str, Any]:
        return run_module(
            "gpumon_site",
            path_first=self.programs,
            program=self.program,
            names=["page.lab"],
            path=str(self.site),
            main=str(self.main),
            content=content,
            port=self.port,
            authority=f"{self.folder}/page.crt",
            files=[f"{self.folder}/page.crt"],
            good=str(self.folder / "good"),
            **{"patience": 1, "steady": 0.3, **parameters},
        )

    def run_already(self) -> None:
        """Let it run as before the installation, with its own site."""
        for verb in ("start", "enable"):
            subprocess.run([self.programs / "systemctl", verb], check=True, timeout=20)

    def shows(self, name: str, words: str) -> bool:
        """Return whether a reader gets it: soon, since the workers of before may still answer."""
        end = time.monotonic() + 10
        while words not in self.ask(name):
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def ask(self, name: str) -> str:
        """Return what a reader gets under a name, "" where nobody answers."""
        context = ssl.create_default_context(cafile=f"{self.folder}/page.crt")
        with contextlib.suppress(OSError):
            plain = socket.create_connection(("127.0.0.1", self.port), 5)
            with context.wrap_socket(plain, server_hostname=name) as stream:
                connection = http.client.HTTPConnection(name)
                connection.sock = stream
                connection.request("GET", "/")
                return connection.getresponse().read().decode()
        return ""

    def verbs(self) -> list[str]:
        """Return what systemd was asked to do since the last time."""
        told = (self.folder / "verbs").read_text().split()
        (self.folder / "verbs").write_text("")
        return [verb for verb in told if not verb.startswith("is-")]


@pytest.fixture
def upstream() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), HealthyPage) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture
def proxy(program: str, tmp_path: Path, upstream: int) -> Iterator[Proxy]:
    made = Proxy(program, tmp_path, upstream)
    yield made
    if (tmp_path / "running").exists():
        subprocess.run([made.programs / "systemctl", "stop"], capture_output=True, timeout=20)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


# ---- Beside other sites. ----


@pytest.mark.system
@BOTH
def test_a_proxy_with_its_own_site_serves_both_and_a_second_run_does_nothing(proxy: Proxy) -> None:
    proxy.run_already()
    assert proxy.shows("wiki.lab", "wiki")
    proxy.verbs()
    told = proxy.module(proxy.page())
    assert told.get("changed") is True, told
    assert proxy.verbs() == ["reload"], "no restart: the other site has its readers"
    assert proxy.shows("page.lab", "hosts_fresh")
    assert proxy.shows("wiki.lab", "wiki")
    again = proxy.module(proxy.page())
    assert (again["changed"], proxy.verbs()) == (False, [])
    assert "failed" not in proxy.module("", state="asked")


@pytest.mark.system
@BOTH
def test_check_mode_shows_the_site_and_writes_nothing(proxy: Proxy) -> None:
    before = proxy.main.read_text()
    told = proxy.module(proxy.page(), check=True)
    assert told["changed"] is True
    assert any(proxy.page() == part["after"] for part in told["diff"])
    assert (proxy.main.read_text(), proxy.site.exists()) == (before, False)


@pytest.mark.system
@BOTH
def test_a_new_certificate_is_loaded(proxy: Proxy) -> None:
    proxy.module(proxy.page())
    assert proxy.verbs() == ["start", "enable"]
    with (proxy.folder / "page.crt").open("a") as file:
        file.write("\n")
    told = proxy.module(proxy.page())
    assert told["reasons"] == ["it has not been loaded since a change"]
    assert proxy.verbs() == ["reload"]


@pytest.mark.system
@BOTH
def test_what_a_run_that_was_cut_off_has_not_loaded_is_loaded_by_the_next(proxy: Proxy) -> None:
    proxy.module(proxy.page())
    proxy.verbs()
    (proxy.folder / "good").unlink()
    assert proxy.module(proxy.page())["changed"] is True
    assert proxy.verbs() == ["reload"]


# ---- Not at all. ----


@pytest.mark.system
@BOTH
def test_a_site_that_the_proxy_does_not_take_leaves_the_others_as_they_were(proxy: Proxy) -> None:
    proxy.run_already()
    before = proxy.main.read_text()
    told = proxy.module(proxy.page() + "nonsense {\n\tmore nonsense\n}\n")
    assert told["failed"] is True
    assert f"{proxy.program} does not take its configuration" in told["msg"]
    assert re.search(r"nonsense|gpumon\.caddy:\d+", told["msg"]), "and why"
    assert "runs as before" in told["msg"]
    assert (proxy.main.read_text(), proxy.site.exists()) == (before, False)
    assert proxy.shows("wiki.lab", "wiki")


@pytest.mark.system
@BOTH
def test_a_site_without_its_page_is_taken_back_and_the_one_of_before_serves_on(
    proxy: Proxy,
) -> None:
    proxy.module(proxy.page())
    good = proxy.site.read_text()
    told = proxy.module(proxy.page(upstream=free_port()))
    assert "gives no page of gpumon (HTTP status 502)" in told["msg"]
    assert proxy.site.read_text() == good
    assert proxy.shows("page.lab", "hosts_fresh")
    assert proxy.module(proxy.page())["changed"] is False, "a later run has nothing to repair"


@pytest.mark.system
@BOTH
def test_a_proxy_that_did_not_run_is_stopped_again_where_the_page_is_not_well(
    proxy: Proxy,
) -> None:
    told = proxy.module(proxy.page(upstream=free_port()))
    assert "is stopped, as before" in told["msg"]
    assert "stop" in proxy.verbs()
    assert not (proxy.folder / "enabled").exists()


@pytest.mark.system
@pytest.mark.parametrize("program", ["nginx"])
def test_a_login_in_front_is_well_without_the_page_being_seen(proxy: Proxy) -> None:
    closed = proxy.nginx("page.lab", "return 401;")
    assert "HTTP status 401" in proxy.module(closed)["msg"]
    assert proxy.module(closed, login=True)["changed"] is True


# ---- Seen before anything is changed. ----


def examined(
    tmp_path: Path, program: str, main: str, names: list[str], own: tuple[str, ...] = ()
) -> dict[str, Any]:
    (tmp_path / "main").write_text(main)
    return run_module(
        "gpumon_site",
        state="examined",
        program=program,
        names=names,
        own_names=list(own),
        path=str(tmp_path / "gpumon.conf"),
        main=str(tmp_path / "main"),
    )


def nginx(tmp_path: Path, sites: str) -> str:
    (tmp_path / "others.conf").write_text(sites)
    return f"pid {tmp_path}/pid; events {{}} http {{ include {tmp_path}/*.conf; }}"


def test_a_site_of_nginx_with_the_same_name_is_named_with_its_file(tmp_path: Path) -> None:
    main = nginx(
        tmp_path,
        'server { listen 80; server_name "GPUs.lab" other.lab; # listen 443; }\n'
        "  location / { if ($host) { return 404; } return 200 '}'; } }\n"
        "server { listen 8080; server_name elsewhere.lab; }",
    )
    [fault] = examined(tmp_path, "nginx", main, ["gpus.lab", "elsewhere.lab"])["faults"]
    assert f"nginx has a site for gpus.lab already ({tmp_path}/others.conf, port 80)" in fault
    assert "gpumon_proxy_names" in fault


def test_a_site_of_caddy_with_the_same_name_is_named_with_its_file(tmp_path: Path) -> None:
    [fault] = examined(tmp_path, "caddy", "gpus.lab, b.lab {\n\trespond a\n}\n", ["gpus.lab"])[
        "faults"
    ]
    assert f"caddy has a site for gpus.lab already ({tmp_path}/main)" in fault


def test_the_pages_own_site_of_an_earlier_run_is_no_stranger(tmp_path: Path) -> None:
    site = "server { listen 80; server_name gpus.lab; }"
    (tmp_path / "gpumon.conf").write_text(site)
    assert examined(tmp_path, "nginx", nginx(tmp_path, ""), ["gpus.lab"])["faults"] == []
    (tmp_path / "gpumon.conf").write_text("gpus.lab {\n\trespond a\n}\n")
    main = f"b.lab {{\n\trespond b\n}}\nimport {tmp_path}/gpumon.conf\n"
    assert examined(tmp_path, "caddy", main, ["gpus.lab"])["faults"] == []
    assert len(examined(tmp_path, "caddy", main, ["b.lab"])["faults"]) == 1


def test_the_machines_own_names_are_left_to_sites_that_nginx_has(tmp_path: Path) -> None:
    """Readers who come by the address get the site that they got before."""
    names, own = ["gpus.lab", "web1", "10.0.0.2"], ("web1", "10.0.0.2")
    other = nginx(tmp_path, "server { listen 80; server_name wiki.lab; }")
    told = examined(tmp_path, "nginx", other, names, own)
    assert (told["faults"], told["names"]) == ([], ["gpus.lab"])
    bare = nginx(tmp_path, "server { listen 80 default_server; server_name _; }")
    assert examined(tmp_path, "nginx", bare, names, own)["names"] == names


def test_a_name_of_the_machine_that_a_site_of_caddys_has_is_left_to_it(tmp_path: Path) -> None:
    names, own = ["gpus.lab", "web1", "10.0.0.2"], ("web1", "10.0.0.2")
    told = examined(tmp_path, "caddy", "web1 {\n\trespond a\n}\n", names, own)
    assert (told["faults"], told["names"]) == ([], ["gpus.lab", "10.0.0.2"])


def test_the_site_is_read_after_all_others_of_nginx(tmp_path: Path) -> None:
    told = examined(tmp_path, "nginx", nginx(tmp_path, ""), ["gpus.lab"])
    assert told["site"] == f"{tmp_path}/gpumon.conf", "as it was asked for"
    (tmp_path / "sites-enabled").mkdir()
    main = f"pid {tmp_path}/p; events {{}} http {{\n include {tmp_path}/*.conf;\n"
    main += f" include {tmp_path}/sites-enabled/*;\n}}"
    told = examined(tmp_path, "nginx", main, ["gpus.lab"])
    assert told["site"] == f"{tmp_path}/sites-enabled/zz-gpumon"
    (tmp_path / "sites-enabled/zz-gpumon").write_text("server { server_name gpus.lab; }")
    assert examined(tmp_path, "nginx", main, ["gpus.lab"])["faults"] == []


@pytest.mark.system
@pytest.mark.parametrize("program", ["nginx"])
def test_a_site_that_stood_elsewhere_moves(proxy: Proxy) -> None:
    before = proxy.sites / "before.conf"
    before.write_text(proxy.page())
    proxy.run_already()
    told = proxy.module(proxy.page(), places=[str(before), str(proxy.site)])
    assert told.get("changed") is True, told
    assert (before.exists(), proxy.site.exists()) == (False, True)
    assert proxy.shows("page.lab", "hosts_fresh")


def test_nginx_listens_where_other_sites_would_take_its_readers_away(tmp_path: Path) -> None:
    main = nginx(
        tmp_path,
        "server { listen 127.0.0.1:443 ; server_name a; } server { listen localhost; }"
        f"server {{ listen unix:{tmp_path}/s; listen 127.0.0.1:8443; server_name b; }}",
    )
    listens = examined(tmp_path, "nginx", main, ["gpus.lab"])["listens"]
    assert listens["443"][-1] == "127.0.0.1:443"
    assert listens["80"][-1] == "localhost:80"
    assert not any("8443" in one for one in listens["443"])


def test_nginx_does_not_listen_twice_where_one_socket_is_for_both_families(tmp_path: Path) -> None:
    if not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("no IPv6 here")
    main = nginx(tmp_path, "server { listen [::]:443 ipv6only=off; server_name a; }")
    listens = examined(tmp_path, "nginx", main, ["gpus.lab"])["listens"]
    assert listens == {"80": ["80", "[::]:80"], "443": ["[::]:443"]}


@BOTH
def test_a_proxy_that_is_broken_already_is_told_before_its_site_is_blamed(
    tmp_path: Path, program: str
) -> None:
    [fault] = examined(tmp_path, program, "nonsense {\n\tmore nonsense\n}", ["gpus.lab"])["faults"]
    assert fault.startswith(f"{program} does not take its configuration: ")
    assert f"Mend that first: {program} " in fault


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter is written for x86_64")
def test_without_ipv6_in_the_kernel_nginx_is_not_told_to_listen_on_it(tmp_path: Path) -> None:
    """The kernel's refusal is real: a filter lets it answer as one that was booted without IPv6."""
    main = tmp_path / "main"
    main.write_text(nginx(tmp_path, "server { listen [::]:443; }"))
    judged = subprocess.run(
        ["nginx", "-t", "-q", "-c", main], capture_output=True, preexec_fn=refuse_ipv6, timeout=20
    )
    assert b"Address family not supported" in judged.stderr, "such a site would not be loaded"
    main.write_text(nginx(tmp_path, ""))
    told = run_module(
        "gpumon_site",
        preexec=refuse_ipv6,
        state="examined",
        program="nginx",
        names=["gpus.lab"],
        path=str(tmp_path / "gpumon.conf"),
        main=str(main),
    )
    assert told["listens"] == {"80": ["80"], "443": ["443"]}


def refuse_ipv6() -> None:
    """Let socket(AF_INET6, ...) fail with EAFNOSUPPORT in this process, by a filter of seccomp."""
    code = [
        (0x20, 0, 0, 0),  # the number of the call
        (0x15, 0, 3, 41),  # socket? else allow
        (0x20, 0, 0, 16),  # its first argument
        (0x15, 0, 1, socket.AF_INET6),
        (0x06, 0, 0, 0x00050000 | errno.EAFNOSUPPORT),
        (0x06, 0, 0, 0x7FFF0000),
    ]
    lines = b"".join(struct.pack("HBBI", *line) for line in code)
    buffer = ctypes.create_string_buffer(lines)
    program = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # no new privileges
    assert libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
