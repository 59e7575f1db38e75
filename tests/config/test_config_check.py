"""`gpumon check`: what would be used, what is wrong, what may not be meant."""

from __future__ import annotations

import datetime
import json
import logging
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gpumon import cli

TOKEN = "s3cret-token-of-this-test"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CONFIG", "WEB_PORT", "RPC_PORT", "TOKEN_FILE", "WEB_BIND", "AGENT_BIND"):
        monkeypatch.delenv(f"GPUMON_{name}", raising=False)
    monkeypatch.chdir(tmp_path)


def write(folder: Path, text: str, *, token: str | None = TOKEN, mode: int = 0o600) -> str:
    path = folder / "config.yml"
    path.write_text(text)
    if token is not None:
        (folder / "token").write_text(token + "\n")
        (folder / "token").chmod(mode)
    return str(path)


def check(capsys: pytest.CaptureFixture[str], path: str | None) -> tuple[int, str, str]:
    code = cli.main(["check", *(["--config", path] if path else [])])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def check_json(capsys: pytest.CaptureFixture[str], path: str) -> tuple[int, dict[str, object]]:
    code = cli.main(["check", "--json", "--config", path])
    captured = capsys.readouterr()
    assert captured.err == ""
    report: dict[str, object] = json.loads(captured.out)
    return code, report


def write_certificate(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gpu-01")])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=36500))
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def test_it_prints_what_would_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_certificate(tmp_path)
    path = write(
        tmp_path,
        "token_file: token\n"
        "tls: {cert: cert.pem, key: key.pem, ca: cert.pem}\n"
        "web: {prefix: gpus}\n"
        "hosts:\n"
        "  - self\n"
        "  - {name: dgx-3, address: 10.0.0.7, labels: {room: b12}, drained: true}\n",
    )
    code, out, err = check(capsys, path)
    assert (code, err) == (0, "")
    assert out == (
        f"file     {path}\n"
        'page     127.0.0.1:8042, path /gpus, title "GPUs"\n'
        "agent    0.0.0.0:8043, https, a sample every 5 s\n"
        f"token    {tmp_path}/token\n"
        f"tls      certificate {tmp_path}/cert.pem, key {tmp_path}/key.pem, "
        f"ca {tmp_path}/cert.pem\n"
        "polls    every 5 s, 2 s at most for a host\n"
        "hosts    2\n"
        "         self   this machine\n"
        "         dgx-3  https://10.0.0.7:8043  drained  room=b12\n"
    )


def test_without_a_file_it_says_so_and_what_holds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpumon.config.file.SYSTEM", "none.yml")
    code, out, err = check(capsys, None)
    assert (code, err) == (0, "")
    assert "file     none: every default holds\n" in out
    assert "agent    127.0.0.1:8043, http," in out
    assert "token    none\n" in out
    assert "warning: token_file: no token, so the agent answers on loopback only." in out


def test_faults_of_the_file_go_to_stderr_and_the_exit_code_is_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "web_port: x\nrpc_prot: 1\n")
    code, out, err = check(capsys, path)
    assert (code, out) == (2, "")
    assert [line.split(": ")[1] for line in err.splitlines()] == ["web_port", "rpc_prot"]


def test_a_missing_token_file_is_a_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = check(capsys, write(tmp_path, "token_file: token\n", token=None))
    assert code == 2
    assert err.startswith(f"token_file: {tmp_path}/token does not exist")
    assert "hosts    1" in out


def test_an_empty_token_file_is_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = check(capsys, write(tmp_path, "token_file: token\n", token="# none yet"))
    assert code == 2
    assert err.startswith(f"token_file: {tmp_path}/token holds no token")


def test_a_token_file_that_everybody_may_read_is_a_warning_and_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    code, out, err = check(capsys, write(tmp_path, "token_file: token\n", mode=0o644))
    assert (code, err) == (0, "")
    assert out.count(f"{tmp_path}/token can be read") == 1
    assert caplog.records == []
    assert logging.getLogger("gpumon").handlers == []


def test_the_token_is_never_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "token_file: token\nhosts: [host1]\n", mode=0o644)
    _, out, err = check(capsys, path)
    _, report = check_json(capsys, path)
    assert TOKEN not in out + err + json.dumps(report)


@pytest.mark.parametrize("broken", ["cert.pem", "key.pem", "ca.pem"])
@pytest.mark.parametrize("content", [None, "no pem"])
def test_tls_files_that_cannot_be_used_are_faults(
    broken: str, content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_certificate(tmp_path)
    (tmp_path / "ca.pem").write_bytes((tmp_path / "cert.pem").read_bytes())
    (tmp_path / broken).unlink()
    if content is not None:
        (tmp_path / broken).write_text(content)
    path = write(tmp_path, "tls: {cert: cert.pem, key: key.pem, ca: ca.pem}\n")
    code, _, err = check(capsys, path)
    assert code == 2
    assert len(err.splitlines()) == 1
    assert str(tmp_path / broken) in err


@pytest.mark.parametrize("content", [None, "no pem"])
def test_a_ca_alone_is_opened_too(
    content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "ca.pem").write_text(content)
    code, _, err = check(capsys, write(tmp_path, "tls: {ca: ca.pem}\n"))
    assert code == 2
    assert err.startswith(f"tls.ca: {tmp_path}/ca.pem can't be used")
    assert len(err.splitlines()) == 1


def test_faults_of_token_and_tls_are_told_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "token_file: token\ntls: {ca: ca.pem}\n", token=None)
    code, _, err = check(capsys, path)
    assert (code, len(err.splitlines())) == (2, 2)


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("{}", "token_file: no token"),
        ("agent: {allow_anonymous: true}", "agent.allow_anonymous: whoever reaches port 8043"),
        ("agent: {container_socket: none.sock}", "agent.container_socket: not there, or not for"),
        ('web: {bind: "::"}', "web.bind: the page has no login"),
        ("web: {trusted_proxies: [0.0.0.0/0]}", "web.trusted_proxies: 0.0.0.0/0 lets every caller"),
        ("web_port: 8043", "web_port and rpc_port are both 8043"),
        ("hosts: []", "hosts: none, so the page stays empty"),
        (
            "token_file: token\nhosts: [a, 'https://b', self, localhost, c]",
            "tls: the token travels unencrypted to 2 of the hosts: a, c.",
        ),
    ],
)
def test_what_works_and_may_not_be_meant_is_a_warning(
    text: str, warning: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = check(capsys, write(tmp_path, text + "\n"))
    assert (code, err) == (0, "")
    assert f"warning: {warning}" in out


@pytest.mark.parametrize("bind", ["127.0.0.1", "localhost", "::1"])
def test_an_agent_on_loopback_needs_no_token_and_no_warning(
    bind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = check(capsys, write(tmp_path, f"agent: {{bind: '{bind}'}}\n"))
    assert "warning" not in out


def test_a_person_sees_the_first_hosts_and_how_many_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "hosts: [" + ", ".join(f"gpu-{n}" for n in range(1000)) + "]\n")
    _, out, _ = check(capsys, path)
    assert "hosts    1000\n" in out
    assert out.count("http") < 40
    assert "         and 980 more; --json lists all\n" in out
    _, report = check_json(capsys, path)
    assert len(report["config"]["hosts"]) == 1000  # type: ignore[index]


def test_the_json_form_holds_the_same_for_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "token_file: token\nhosts: ['https://host3']\n")
    code, report = check_json(capsys, path)
    assert code == 0
    config = report.pop("config")
    assert report == {"ok": True, "faults": [], "warnings": []}
    assert isinstance(config, dict)
    assert config["path"] == path
    assert config["token_file"] == f"{tmp_path}/token"
    assert config["hosts"] == [
        {
            "name": "host3",
            "source": "xmlrpc",
            "address": "https://host3:8043",
            "host": "host3",
            "port": 8043,
            "tls": True,
            "path": "",
            "user": None,
            "labels": {},
            "drained": False,
        }
    ]


def test_the_json_form_of_a_file_that_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = check_json(capsys, write(tmp_path, "web_port: 0\n"))
    assert code == 2
    assert (report["ok"], report["config"]) == (False, None)
    assert report["faults"] == [
        f'{tmp_path}/config.yml:1: web_port: expected a number from 1 to 65535, found "0". '
        "Remove the line to use 8042."
    ]


def test_a_file_whose_name_is_not_text_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = f"{tmp_path}/caf\udce9.yml"
    Path(path).touch()
    code, out, _ = check(capsys, path)
    assert code == 0
    assert f"file     {tmp_path}/caf\ufffd.yml\n" in out


def test_weak_and_odd_tokens_are_doubted_by_their_line_and_never_told(capsys, tmp_path):
    path = write(tmp_path, "token_file: token\nweb: {push_token_file: pushing}\n", token=None)
    (tmp_path / "token").write_text(
        "# ours\n" + TOKEN + "\n\nshort-s3cret\ntwo words of s3cret-s\n"
    )
    (tmp_path / "pushing").write_text("gpu-09 long-s3cret-long-enough\ngpu-10 short\n")
    for name in ("token", "pushing"):
        (tmp_path / name).chmod(0o600)
    code, out, _ = check(capsys, path)
    doubts = [line for line in out.splitlines() if line.startswith("warning: ") and "line " in line]
    assert code == 0
    assert [doubt.partition(". ")[0] for doubt in doubts] == [
        f"warning: token_file: line 4 of {tmp_path}/token holds a token of less than 16 "
        "characters, which can be guessed",
        f"warning: token_file: line 5 of {tmp_path}/token has a blank in it, and the whole line is "
        "one token",
        f"warning: web.push_token_file: line 2 of {tmp_path}/pushing holds a token of less than 16 "
        "characters, which can be guessed",
    ]
    assert "s3cret" not in out


@pytest.mark.parametrize(
    ("text", "doubt"),
    [
        (
            "web: {admins: [root]}",
            "web.admins: nobody ever is one, since without web.user_header no reader has a name.",
        ),
        ("web: {command_lines: named}", "web.command_lines: nobody ever sees one, since without"),
        (
            "rpc_timeout: 10",
            "rpc_timeout: 10 s is more than poll_interval, 5 s: a host that hangs is asked no "
            "sooner than it is given up, and its last readings pass for fresh for 20 s.",
        ),
        (
            "agent: {bind: 192.0.2.77}",
            "agent.bind: 192.0.2.77 is no address of this machine, so the agent can't start here.",
        ),
        (
            "web: {bind: '2001:db8::77'}",
            "web.bind: 2001:db8::77 is no address of this machine, so the page can't start here.",
        ),
    ],
)
def test_what_works_here_and_has_no_effect_is_a_warning(capsys, tmp_path, text, doubt):
    code, out, err = check(capsys, write(tmp_path, text + "\n"))
    assert (code, err) == (0, "")
    assert f"warning: {doubt}" in out


@pytest.mark.parametrize(
    "text",
    [
        "web: {admins: [root], user_header: X-User, command_lines: admins}",
        "rpc_timeout: 5",
        "agent: {bind: 127.0.0.2}",
        "agent: {bind: localhost}",
        "agent: {bind: '::1'}",
    ],
)
def test_what_is_well_is_not_doubted(capsys, tmp_path, text):
    _, out, _ = check(capsys, write(tmp_path, text + "\n"))
    for word in ("web.admins", "web.command_lines", "warning: rpc_timeout", "no address of this"):
        assert word not in out


def test_a_login_of_its_own_stands_beside_the_host(capsys, tmp_path):
    pytest.importorskip("asyncssh")
    _, out, _ = check(capsys, write(tmp_path, "hosts: ['ssh://root@gpu-01', 'ssh://gpu-02']\n"))
    lines = out.splitlines()
    [ssh] = [line for line in lines if line.startswith("ssh ")]
    assert "user as here unless its entry names one, key" in ssh
    assert [line.split() for line in lines if "ssh://" in line] == [
        ["gpu-01", "ssh://gpu-01:22", "user", "root"],
        ["gpu-02", "ssh://gpu-02:22"],
    ]
