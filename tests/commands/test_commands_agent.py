"""`gpumon agent` as far as it needs no process: what is served, and what is said about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.agent.supervisor import Supervisor
from gpumon.commands.agent import agent_site
from gpumon.commands.check import examine
from gpumon.config import Config, TlsConfig


def test_with_a_ca_alone_the_agent_answers_without_tls_and_check_says_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = agent_site(Config(tls=TlsConfig(ca=tmp_path / "ca.pem")), Supervisor(interval=5.0), None)
    assert site.tls is None
    [said] = [record.getMessage() for record in caplog.records if "without TLS" in record.message]
    (tmp_path / "config.yml").write_text("tls: {ca: ca.pem}\n")
    assert said in examine(str(tmp_path / "config.yml")).warnings


def test_with_a_certificate_the_agent_speaks_tls(tmp_path: Path) -> None:
    tls = TlsConfig(cert=tmp_path / "cert.pem", key=tmp_path / "key.pem")
    assert agent_site(Config(tls=tls), Supervisor(interval=5.0), None).tls == tls
