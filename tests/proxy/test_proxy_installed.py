"""nginx with the site that the playbook writes, and the login that docs/install.md puts into it."""

from __future__ import annotations

import base64
import http.client
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import jinja2
import pytest
import yaml
from commands.running import Command
from proxy.logins import PASSWORD, USER, password_hash, self_signed
from proxy.proxies import ROOT, Proxy, free_port, nginx_site

pytestmark = pytest.mark.system

CONFIG = "web: {user_header: X-Forwarded-User, admins: [root], anonymous_users: hidden}\n"


def written(settings: dict[str, str], page_port: int) -> str:
    """Return the site as the role writes it."""
    template = ROOT / "ansible-install/roles/gpumon_proxy/templates/nginx.j2"
    values = {
        "gpumon_proxy_seen": SimpleNamespace(
            listens={"80": [f"127.0.0.1:{free_port()}"], "443": ["443"]}
        ),
        "gpumon_proxy_server_names": ["localhost"],
        "gpumon_proxy_cert_file": "/etc/gpumon/page.crt",
        "gpumon_proxy_key_file": "/etc/gpumon/page.key",
        "gpumon_proxy_path": "/",
        "gpumon_proxy_upstream": f"127.0.0.1:{page_port}",
        "gpumon_proxy_user_header": "X-Forwarded-User",
        **settings,
    }
    return jinja2.Template(template.read_text(), trim_blocks=True).render(values)


def documented() -> dict[str, str]:
    """Return the settings of docs/install.md with a login and its two exceptions."""
    page = (ROOT / "docs/install.md").read_text()
    blocks = [yaml.safe_load(found) for found in re.findall(r"```yaml\n(.*?)```", page, re.S)]
    [settings] = [block for block in blocks if "gpumon_proxy_extra" in block]
    return {name: value for name, value in settings.items() if name.startswith("gpumon_proxy_")}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Proxy, ssl.SSLContext]]:
    page = tmp_path / "page"
    page.mkdir()
    command, port = Command(page), free_port()
    (page / "config.yml").write_text(CONFIG)
    process = command.start("demo", "--config", "config.yml", "--web-port", str(port))
    assert process.stderr is not None
    for line in process.stderr:
        if f":{port}/" in line:
            break
    try:
        pem, key = self_signed(tmp_path)
        users = tmp_path / "users"
        users.write_text(f"{USER}:{password_hash('nginx', tmp_path)}\n")
        text = written(documented(), port).replace("allow 10.0.0.9;", "allow 127.0.0.1;")
        proxy = nginx_site(text, tmp_path, port, crt=pem, key=key, htpasswd=users)
        yield proxy, ssl.create_default_context(cafile=pem)
        proxy.stop()
    finally:
        command.end_all()


def ask(
    site: tuple[Proxy, ssl.SSLContext], path: str, login: str | None = None, method: str = "GET"
) -> tuple[int, str]:
    proxy, tls = site
    connection = http.client.HTTPSConnection("localhost", proxy.port, timeout=10, context=tls)
    headers = {"Accept": "application/json"}
    if login is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


def test_the_login_of_the_guide_covers_all_but_what_it_lets_through(
    site: tuple[Proxy, ssl.SSLContext],
) -> None:
    for path in ("/", "/status.json", "/healthz", "/metrics/", "/metricsx", "/RPC2/"):
        assert ask(site, path)[0] == 401, path
    assert ask(site, "/status.json", f"{USER}:{PASSWORD}")[0] == 200
    status, metrics = ask(site, "/metrics")
    assert status == 200
    assert "gpumon_gpu_state" in metrics
    status, targets = ask(site, "/sd/prometheus")
    assert status == 200
    assert targets.startswith("[")
    assert ask(site, "/RPC2", method="POST")[0] not in (401, 403), "gpumon itself answers"


def test_nobody_is_an_admin_by_a_name_sent_to_what_is_let_through(
    site: tuple[Proxy, ssl.SSLContext],
) -> None:
    proxy, _ = site
    text = (proxy.log.parent / "nginx.conf").read_text()
    for block in re.findall(r"location [=~] .*?\}", text, re.S):
        assert 'proxy_set_header X-Forwarded-User "";' in block
    assert ask(site, "/status.json", "root:guess")[0] == 401
