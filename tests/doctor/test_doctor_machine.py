"""The checks of a machine's own things: driver, devices, /proc, clock, files, certificates."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

import msgspec
import pytest
from agent_examples import gpu, host
from cryptography.x509 import ExtendedKeyUsage
from cryptography.x509.oid import ExtendedKeyUsageOID

from gpumon.certs import authority
from gpumon.certs.authority import Limits, Names
from gpumon.certs.folder import CertsFolder
from gpumon.commands.check import Report
from gpumon.commands.doctor import certificate, files, gpu_host
from gpumon.commands.doctor.clock import TIME_ERROR, clock, kernel_clock_state
from gpumon.commands.doctor.finding import Finding
from gpumon.config import AgentConfig, Config, TlsConfig
from gpumon.errors import CollectError
from gpumon.model import HostSnapshot

NOW = dt.datetime.now(dt.timezone.utc)


def only(found) -> Finding:
    [finding] = found
    return finding


# ---- The GPU host. ----


def test_a_driver_that_works_is_told_with_its_versions():
    found = only(gpu_host.driver(lambda: host(gpu(0), gpu(1))))
    assert (found.level, found.text) == ("ok", "driver 550.54.15, CUDA 12.4, 2 GPUs")


def test_a_driver_that_can_not_be_used_is_a_fault_in_its_own_words():
    def fails() -> HostSnapshot:
        raise CollectError("version mismatch", "the library is newer than the driver: reboot")

    found = only(gpu_host.driver(fails))
    assert (found.level, found.text) == ("fault", "the library is newer than the driver: reboot")
    silent = HostSnapshot(errors=["no driver is loaded"])
    assert only(gpu_host.driver(lambda: silent)).level == "fault"


def test_no_gpu_is_a_warning_and_a_broken_gpu_a_fault_of_its_own():
    assert only(gpu_host.driver(lambda: host())).level == "warning"
    lost = gpu(1, error="GPU is lost")
    found = list(gpu_host.driver(lambda: host(gpu(0), lost)))
    assert [(f.level, f.check) for f in found] == [("ok", "driver"), ("fault", "gpu")]
    assert found[1].text == "GPU 1: GPU is lost"


def test_persistence_mode_that_is_off_is_one_warning_for_all_gpus():
    off = "persistence mode is off: it takes seconds. Turn it on: nvidia-persistenced"
    found = list(gpu_host.driver(lambda: host(*(gpu(n, hints=[off]) for n in range(3)))))
    assert [f.level for f in found] == ["ok", "warning"]
    assert found[1].text == "GPU 0, 1, 2: persistence mode is off: it takes seconds"
    assert found[1].cure == "Turn it on: nvidia-persistenced"


def test_device_files_are_looked_at_and_missing_ones_are_said(tmp_path):
    assert only(gpu_host.devices(tmp_path)).level == "warning"
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-modeset"):
        (tmp_path / name).touch()
    found = only(gpu_host.devices(tmp_path))
    assert (found.level, found.text) == (
        "ok",
        "4 device files of NVIDIA, all open to this user",
    )


def test_device_files_that_are_closed_to_this_user_are_a_fault(tmp_path, monkeypatch):
    for name in ("nvidia0", "nvidiactl"):
        (tmp_path / name).touch()
    real = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path).name != "nvidia0" and real(path, mode)
    )
    found = only(gpu_host.devices(tmp_path))
    assert found.level == "fault"
    assert "may not open nvidia0 in" in found.text


@pytest.mark.parametrize(
    ("options", "uid", "groups", "level"),
    [
        ("rw,nosuid", 1000, [], "ok"),
        ("rw,hidepid=0", 1000, [], "ok"),
        ("rw,hidepid=2", 1000, [], "warning"),
        ("rw,hidepid=invisible", 1000, [], "warning"),
        ("rw,hidepid=ptraceable", 1000, [], "warning"),
        ("rw,gid=997,hidepid=2", 1000, [10], "warning"),
        ("rw,gid=997,hidepid=2", 1000, [10, 997], "ok"),
        ("rw,hidepid=2", 0, [], "ok"),
    ],
)
def test_hidden_processes_are_noticed(tmp_path, monkeypatch, options, uid, groups, level):
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(os, "getgroups", lambda: groups)
    monkeypatch.setattr("gpumon.collect.procfs.in_initial_pid_namespace", lambda: True)
    mounts = tmp_path / "mounts"
    mounts.write_text(f"proc /proc proc rw 0 0\nproc /proc proc {options} 0 0\ntmpfs /tmp x rw\n")
    assert only(gpu_host.processes(mounts)).level == level


def test_a_pid_namespace_of_its_own_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr("gpumon.collect.procfs.in_initial_pid_namespace", lambda: False)
    mounts = tmp_path / "mounts"
    mounts.write_text("proc /proc proc rw 0 0\n")
    found = only(gpu_host.processes(mounts))
    assert (found.level, "--pid=host" in (found.cure or "")) == ("warning", True)


def test_the_clock_is_right_where_the_kernel_says_so():
    assert only(clock(lambda: 0)).level == "ok"
    assert only(clock(lambda: TIME_ERROR)).level == "warning"
    assert only(clock(lambda: -1)).level == "warning"
    assert -1 <= kernel_clock_state() <= TIME_ERROR


# ---- Files. ----


def test_faults_and_warnings_of_the_configuration_are_lines_of_their_own():
    report = Report(None, ["config.yml:2: wrong"], ["not what was meant"])
    found = list(files.configuration(report))
    assert [(f.level, f.text) for f in found] == [
        ("fault", "config.yml:2: wrong"),
        ("warning", "not what was meant"),
    ]
    assert only(files.configuration(Report(Config(), [], []))).level == "ok"


def test_a_token_is_counted_and_never_told(tmp_path):
    path = tmp_path / "token"
    path.write_text("# new\n" + "s3cret-" * 5 + "\n" + "older-s3cret-" * 3 + "\n")
    path.chmod(0o600)
    found = only(files.tokens(path))
    assert (found.level, found.text) == ("ok", f"2 tokens in {path}, mode 0600")


def test_without_a_token_file_that_is_said(tmp_path):
    assert only(files.tokens(None)).level == "ok"
    assert list(files.tokens(tmp_path / "missing")) == []  # the configuration's line says it


def state(path: Path) -> Finding:
    return only(files.state(Config(agent=AgentConfig(state_file=path))))


def test_the_folder_of_the_state_must_be_there_and_open_and_have_room(tmp_path, monkeypatch):
    assert state(tmp_path / "health.json").level == "ok"
    assert state(tmp_path / "missing" / "health.json").level == "fault"
    assert only(files.state(Config())).level == "ok"

    class Full:
        f_bavail, f_frsize = 10, 4096

    monkeypatch.setattr(os, "statvfs", lambda _: Full)
    assert state(tmp_path / "health.json").level == "warning"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert state(tmp_path / "health.json").level == "fault"


# ---- Certificates. ----


def made(path: Path, days: int, ago: int = 0) -> TlsConfig:
    folder = CertsFolder(path)
    then = NOW - dt.timedelta(days=ago)
    folder.init("an authority", Limits(), then, 3650, force=False)
    host = folder.add(Names(("gpu-01",)), then, days, force=False)
    return TlsConfig(cert=host / "cert.pem", key=host / "key.pem", ca=host / "ca.pem")


def test_a_certificate_is_told_with_its_end_and_its_names(tmp_path):
    found = list(certificate.certificates(made(tmp_path / "ca", 730)))
    assert [(f.check, f.level) for f in found] == [("authority", "ok"), ("certificate", "ok")]
    assert "(729 days), for gpu-01" in found[1].text


def test_a_certificate_that_ends_soon_is_a_warning(tmp_path):
    tls = made(tmp_path / "ca", 730)
    later = NOW.timestamp() + 710 * 86_400
    found = list(certificate.certificates(tls, later))
    assert [f.level for f in found] == ["ok", "warning"]


def test_an_expired_certificate_and_an_expired_authority_are_faults(tmp_path):
    found = list(certificate.certificates(made(tmp_path / "a", 10, ago=30)))
    assert found[-1].level == "fault"
    assert "certificate has expired" in found[-1].text
    found = list(certificate.certificates(made(tmp_path / "b", 10, ago=4000)))
    assert [f.level for f in found] == ["fault", "fault"]


def test_a_certificate_of_another_authority_is_a_fault(tmp_path):
    tls, other = made(tmp_path / "ca", 730), made(tmp_path / "other", 730)
    mixed = TlsConfig(cert=tls.cert, key=tls.key, ca=other.ca)
    assert list(certificate.certificates(mixed))[-1].level == "fault"


def test_a_certificate_for_clients_only_is_a_warning(tmp_path, monkeypatch):
    clients = [ExtendedKeyUsageOID.CLIENT_AUTH]
    monkeypatch.setattr(authority.x509, "ExtendedKeyUsage", lambda _: ExtendedKeyUsage(clients))
    found = list(certificate.certificates(made(tmp_path / "ca", 730)))
    assert [f.level for f in found] == ["ok", "warning"]
    assert "for clients only" in found[1].text


def test_a_certificate_without_an_authority_is_read_all_the_same(tmp_path):
    tls = made(tmp_path / "ca", 730)
    found = only(certificate.certificates(TlsConfig(cert=tls.cert, key=tls.key)))
    assert (found.level, "729 days" in found.text) == ("ok", True)


def test_the_checks_need_no_library_beyond_pythons_own():
    source = Path(certificate.__file__).read_text()
    assert "cryptography" not in source
    assert msgspec.json.encode(only(certificate.certificates(None)))
