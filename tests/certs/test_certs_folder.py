"""An authority's folder: what is made, with which modes, and that nothing is lost."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import ssl
import stat
from pathlib import Path

import pytest

from gpumon.certs.authority import Limits, Names, host_name
from gpumon.certs.folder import CertsFolder, read_certificate
from gpumon.errors import SetupError, StartError

NOW = dt.datetime.now(dt.timezone.utc).replace(microsecond=0)
ANYTHING = Limits()


def a_folder(path: Path, limits: Limits = ANYTHING, now: dt.datetime = NOW) -> CertsFolder:
    folder = CertsFolder(path / "ca")
    folder.init("an authority", limits, now, 3650, force=False)
    return folder


def names(*dns: str, ips: tuple[str, ...] = ()) -> Names:
    return Names(dns, tuple(ipaddress.ip_address(ip) for ip in ips))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def add(folder: CertsFolder, *dns: str, now: dt.datetime = NOW, force: bool = False) -> Path:
    return folder.add(names(*dns), now, 730, force=force)


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_keys_are_for_their_owner_alone_whatever_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        folder = a_folder(tmp_path)
        host = add(folder, "gpu-01")
    finally:
        os.umask(before)
    assert mode(folder.path / "ca-key.pem") == mode(host / "key.pem") == 0o600
    assert mode(folder.path / "ca.pem") == mode(host / "cert.pem") == 0o644
    assert mode(folder.path) == mode(host) == 0o700
    assert sorted(path.name for path in host.iterdir()) == ["ca.pem", "cert.pem", "key.pem"]


def test_python_takes_what_was_made_as_server_and_as_client(tmp_path):
    host = a_folder(tmp_path).path
    made = add(CertsFolder(host), "gpu-01", "gpu-01.lab.org")
    for purpose in (ssl.Purpose.CLIENT_AUTH, ssl.Purpose.SERVER_AUTH):
        context = ssl.create_default_context(purpose, cafile=made / "ca.pem")
        context.load_cert_chain(made / "cert.pem", made / "key.pem")


def test_nothing_is_replaced_without_being_asked_to(tmp_path):
    folder = a_folder(tmp_path)
    host = add(folder, "gpu-01")
    before = {path: path.read_bytes() for path in folder.path.rglob("*.pem")}
    with pytest.raises(StartError, match="--force"):
        folder.init("another", ANYTHING, NOW, 10, force=False)
    with pytest.raises(StartError, match="exist already"):
        add(folder, "gpu-01")
    assert {path: path.read_bytes() for path in folder.path.rglob("*.pem")} == before
    add(folder, "gpu-01", force=True)
    assert (host / "key.pem").read_bytes() != before[host / "key.pem"]


def test_a_run_that_was_cut_off_is_not_taken_for_a_whole_one(tmp_path):
    folder = a_folder(tmp_path)
    (add(folder, "gpu-01") / "cert.pem").unlink()
    with pytest.raises(StartError, match=r"key\.pem exists already"):
        add(folder, "gpu-01")


def test_no_draft_is_left_behind_where_writing_fails(tmp_path, monkeypatch):
    folder = a_folder(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StartError, match="No space left"):
        add(folder, "gpu-01")
    assert list(folder.host_folder("gpu-01").iterdir()) == []


def test_a_host_gets_its_names_and_its_life_and_never_outlives_the_authority(tmp_path):
    folder = CertsFolder(tmp_path / "ca")
    folder.init("short", ANYTHING, NOW, 100, force=False)
    made = folder.add(names("gpu-01", ips=("10.0.0.1", "fd00::1")), NOW, 730, force=False)
    certificate = read_certificate(made / "cert.pem")
    assert certificate.not_valid_after_utc == NOW + dt.timedelta(days=100)
    assert certificate.not_valid_before_utc == NOW - dt.timedelta(hours=1)
    [authority, host] = folder.issued()
    assert authority.ends == host.ends
    assert host.names == ["gpu-01", "10.0.0.1", "fd00::1"]
    assert host.fault is None


def test_an_expired_authority_signs_nothing(tmp_path):
    folder = a_folder(tmp_path, now=NOW - dt.timedelta(days=4000))
    with pytest.raises(SetupError, match="has expired on"):
        add(folder, "gpu-01")


def test_an_authority_with_limits_signs_inside_them_only(tmp_path):
    limits = Limits(("lab.org",), (ipaddress.ip_network("10.0.0.0/8"),))
    folder = a_folder(tmp_path, limits)
    folder.add(names("gpu-01.lab.org", ips=("10.1.2.3",)), NOW, 10, force=False)
    for refused in (
        names("gpu-01.other.org"),
        names("gpu-01.lab.org.evil.org"),
        names("notlab.org"),
        names("gpu-02.lab.org", ips=("192.0.2.1",)),
    ):
        with pytest.raises(SetupError, match="may not sign this"):
            folder.add(refused, NOW, 10, force=False)


def test_a_renewed_certificate_has_the_same_key_and_names_and_a_later_end(tmp_path):
    folder = a_folder(tmp_path, now=NOW - dt.timedelta(days=700))
    host = add(folder, "gpu-01", "gpu-01.lab.org", now=NOW - dt.timedelta(days=700))
    key, old = (host / "key.pem").read_bytes(), read_certificate(host / "cert.pem")
    assert folder.renew("gpu-01", NOW) == NOW + dt.timedelta(days=730)
    new = read_certificate(host / "cert.pem")
    assert (host / "key.pem").read_bytes() == key
    assert new.public_key() == old.public_key()
    assert list(folder.issued())[1].names == ["gpu-01", "gpu-01.lab.org"]
    with pytest.raises(SetupError, match="holds no host gpu-02"):
        folder.renew("gpu-02", NOW)


def test_a_broken_certificate_costs_its_own_row(tmp_path):
    folder = a_folder(tmp_path)
    for name in ("gpu-01", "gpu-02", "gpu-03", "gpu-04"):
        add(folder, name)
    (folder.host_folder("gpu-01") / "cert.pem").write_text("no certificate")
    (folder.host_folder("gpu-02") / "cert.pem").unlink()
    other = CertsFolder(tmp_path / "other")
    other.init("other", ANYTHING, NOW, 10, force=False)
    stranger = add(other, "gpu-03") / "cert.pem"
    (folder.host_folder("gpu-03") / "cert.pem").write_bytes(stranger.read_bytes())
    (folder.path / "hosts" / "notes.txt").write_text("not a folder")
    rows = {row.name: row for row in folder.issued()}
    assert list(rows) == ["authority", "gpu-01", "gpu-02", "gpu-03", "gpu-04"]
    assert "expected a certificate in PEM" in rows["gpu-01"].fault
    assert "can't be read" in rows["gpu-02"].fault
    assert "signed by another authority" in rows["gpu-03"].fault
    assert rows["gpu-04"].fault is None


def test_a_folder_without_or_with_half_an_authority_says_what_to_do(tmp_path):
    with pytest.raises(SetupError, match="gpumon certs init"):
        CertsFolder(tmp_path).authority()
    folder = a_folder(tmp_path)
    other = CertsFolder(tmp_path / "other")
    other.init("other", ANYTHING, NOW, 10, force=False)
    (folder.path / "ca-key.pem").write_bytes((other.path / "ca-key.pem").read_bytes())
    with pytest.raises(SetupError, match="don't belong together"):
        folder.authority()
    (folder.path / "ca-key.pem").write_text("garbage")
    with pytest.raises(SetupError, match="expected a private key in PEM"):
        folder.authority()


@pytest.mark.parametrize(
    "text", ["", "../x", "a b", "-a", "a..b", "*.lab.org", "x" * 64, "10.0.0.1/8"]
)
def test_what_is_no_host_name_is_refused_with_what_is_wanted(text):
    with pytest.raises(SetupError, match="expected a host name"):
        host_name(text)


def test_names_are_taken_as_people_type_them():
    assert host_name(" GPU-01.Lab.org. ") == "gpu-01.lab.org"
