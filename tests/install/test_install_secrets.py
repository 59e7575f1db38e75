"""Token, authority and certificates that the controller makes."""

from __future__ import annotations

import json
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "ansible-install/roles/gpumon/files/make_secrets.py"
HOSTS = {"gpu-01": ["gpu-01", "10.0.0.11"], "page-web": ["gpus.example.org"]}


def made(folder: Path, hosts: dict[str, list[str]] = HOSTS, *flags: str) -> dict[str, list[str]]:
    done = run(folder, hosts, *flags)
    assert done.returncode == 0, done.stderr
    told: dict[str, list[str]] = json.loads(done.stdout)
    return told


def run(folder: Path, hosts: dict[str, list[str]], *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), *flags],
        input=json.dumps(hosts),
        capture_output=True,
        text=True,
        timeout=60,
    )


def named(told: dict[str, list[str]]) -> list[str]:
    return [Path(path).name for path in told["changed"]]


def names_in(certificate: Path) -> set[str]:
    decoded = ssl._ssl._test_decode_cert(str(certificate))  # type: ignore[attr-defined]
    return {value for _, value in decoded["subjectAltName"]}


def shown(certificate: Path, *what: str) -> str:
    return subprocess.run(
        ["openssl", "x509", "-in", str(certificate), "-noout", *what],
        capture_output=True,
        text=True,
        timeout=10,
    ).stdout


def test_secrets_are_made_once_and_kept(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    assert named(made(folder)) == ["token", "ca.crt", "gpu-01.crt", "page-web.crt"]
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert named(made(folder)) == []
    assert {path: path.read_bytes() for path in before} == before
    assert len((folder / "token").read_text().strip()) == 64


def test_nobody_else_can_read_them(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    made(folder)
    for path in [folder, *folder.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_folder_of_secrets_in_somebodys_git_stays_out_of_it(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True, timeout=10)
    made(tmp_path / "gpumon-secrets")
    shown = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=all"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    )
    assert shown.stdout == ""


def test_check_writes_nothing_and_tells_what_would_be_made(tmp_path: Path) -> None:
    told = made(tmp_path / "secrets", HOSTS, "--check")
    assert [Path(path).name for path in told["missing"]] == named(told)
    assert len(named(told)) == 4
    assert not (tmp_path / "secrets").exists()


def test_a_certificate_names_its_host_and_is_signed_by_the_authority(tmp_path: Path) -> None:
    made(tmp_path)
    certificate = tmp_path / "hosts/gpu-01.crt"
    assert names_in(certificate) == {"gpu-01", "10.0.0.11"}
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    context.load_cert_chain(certificate, tmp_path / "hosts/gpu-01.key")
    done = subprocess.run(
        ["openssl", "verify", "-CAfile", str(tmp_path / "ca.crt"), str(certificate)],
        capture_output=True,
        timeout=10,
    )
    assert done.returncode == 0


def test_the_pages_certificate_does_not_open_the_agents(tmp_path: Path) -> None:
    made(tmp_path)
    assert "Client" in shown(tmp_path / "hosts/gpu-01.crt", "-ext", "extendedKeyUsage")
    assert "Client" not in shown(tmp_path / "hosts/page-web.crt", "-ext", "extendedKeyUsage")


def test_a_certificate_near_its_end_is_made_anew_and_the_others_are_kept(tmp_path: Path) -> None:
    made(tmp_path, {"gpu-01": ["gpu-01"]}, "--days", "30")
    made(tmp_path, {"gpu-02": ["gpu-02"]}, "--days", "300")
    both = {"gpu-01": ["gpu-01"], "gpu-02": ["gpu-02"]}
    assert named(made(tmp_path, both, "--renew-days", "45")) == ["gpu-01.crt"]
    assert named(made(tmp_path, both, "--renew-days", "45")) == []


def test_an_expired_certificate_is_made_anew(tmp_path: Path) -> None:
    made(tmp_path, {"gpu-01": ["gpu-01"]}, "--days", "0", "--renew-days", "0")
    expired = tmp_path / "hosts/gpu-01.crt"
    poll(lambda: "will expire" in shown(expired, "-checkend", "0"))
    assert named(made(tmp_path, {"gpu-01": ["gpu-01"]})) == ["gpu-01.crt"]
    assert "will not expire" in shown(expired, "-checkend", "0")


def test_an_authority_near_its_end_is_warned_of_and_one_that_has_ended_stops_the_run(
    tmp_path: Path,
) -> None:
    made(tmp_path)
    renew(tmp_path, days=60)
    [warning] = made(tmp_path)["warnings"]
    assert "ends within 90 days" in warning
    assert '"When the authority ends"' in warning
    renew(tmp_path, days=0)
    poll(lambda: run(tmp_path, HOSTS).returncode == 1)
    told = run(tmp_path, HOSTS).stderr
    assert "has ended" in told
    assert "move ca.key and ca.crt away" in told


def test_the_authority_is_changed_without_a_gap(tmp_path: Path) -> None:
    """As docs/install.md says: first everybody believes both, then the certificates become new."""
    made(tmp_path)
    old, ca = tmp_path / "old", tmp_path / "ca.crt"
    old.mkdir()
    for name in ("ca.key", "ca.crt"):
        (tmp_path / name).rename(old / name)
    assert named(made(tmp_path, {})) == ["ca.crt"]
    new = ca.read_text()
    ca.write_text(new + (old / "ca.crt").read_text())
    certificate = tmp_path / "hosts/gpu-01.crt"
    assert named(made(tmp_path)) == [], "certificates of the old one are good still"
    assert verified(old / "ca.crt", certificate)
    for path in tmp_path.glob("hosts/*.crt"):
        path.unlink()
    assert named(made(tmp_path)) == ["gpu-01.crt", "page-web.crt"]
    ca.write_text(new)
    assert verified(ca, certificate)
    assert named(made(tmp_path)) == []


def verified(authority: Path, certificate: Path) -> bool:
    command = ["openssl", "verify", "-CAfile", str(authority), str(certificate)]
    return subprocess.run(command, capture_output=True, timeout=10).returncode == 0


def renew(folder: Path, days: int) -> None:
    """Let the authority end in so many days."""
    command = ["openssl", "x509", "-in", f"{folder}/ca.crt", "-signkey", f"{folder}/ca.key"]
    command += ["-days", str(days), "-out", f"{folder}/new"]
    subprocess.run(command, check=True, capture_output=True, timeout=10)
    (folder / "new").replace(folder / "ca.crt")


def poll(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_another_name_or_another_authority_makes_a_new_certificate(tmp_path: Path) -> None:
    made(tmp_path, {"gpu-01": ["gpu-01"]})
    assert named(made(tmp_path, {"gpu-01": ["gpu-01", "10.0.0.1"]})) == ["gpu-01.crt"]
    (tmp_path / "ca.crt").unlink()
    (tmp_path / "ca.key").unlink()
    assert named(made(tmp_path, {"gpu-01": ["gpu-01", "10.0.0.1"]})) == ["ca.crt", "gpu-01.crt"]


def test_certificates_of_a_sites_own_authority_are_kept(tmp_path: Path) -> None:
    made(tmp_path, {"gpu-01": ["gpu-01"]})
    (tmp_path / "ca.key").unlink()
    assert named(made(tmp_path, {"gpu-01": ["other-name"]})) == []
    done = run(tmp_path, {"gpu-02": ["gpu-02"]})
    assert done.returncode == 1
    assert "there is no ca.key to make them with" in done.stderr


@pytest.mark.parametrize("name", ["a b", "../up", "-x", "a\nb", ""])
def test_a_name_that_can_not_be_one_is_refused_in_a_sentence(tmp_path: Path, name: str) -> None:
    done = run(tmp_path / "secrets", {name: ["gpu-01"]})
    assert done.returncode == 1
    assert "can't be the name of a host" in done.stderr
    assert not list(tmp_path.rglob("*.key"))
