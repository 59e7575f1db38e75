"""docs/scripts.md: what it shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
import xmlrpc.client
from pathlib import Path

import pytest
from agent_examples import gpu, host, latest
from http_serving import running

from gpumon.agent.app import make_app
from gpumon.http.auth import Tokens
from gpumon.http.server import Site

DOCS = (Path(__file__).parents[2] / "docs" / "scripts.md").read_text()


def ask(port: int, folder: Path, token: str) -> subprocess.CompletedProcess[str]:
    """Run the first script of the page against an agent."""
    [script, *_] = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
    (folder / "token").write_text(f"{token}\nan-older-one\n")
    script = script.replace("/etc/gpumon/token", str(folder / "token"))
    script = script.replace("gpu-01:8043", f"127.0.0.1:{port}")
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False
    )


def test_the_script_of_the_page_works_and_no_error_of_it_holds_the_token(tmp_path):
    app = make_app(lambda: latest(host(gpu(0, processes=[]))), Tokens(["right"]))
    with running(Site(name="agent", app=app, binds=["127.0.0.1:0"])) as [port]:
        assert ask(port, tmp_path, "right").stdout.startswith("[")
        failed = ask(port, tmp_path, "wrong-token").stderr
        assert failed.rstrip().endswith(": 401 Unauthorized>")
        assert "wrong-token" not in failed
        with (
            xmlrpc.client.ServerProxy(f"http://gpumon:wrong-token@127.0.0.1:{port}") as short,
            pytest.raises(xmlrpc.client.ProtocolError, match="gpumon:wrong-token@"),
        ):
            short.free(1)
