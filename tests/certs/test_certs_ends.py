"""Certificates that end soon: told long before, wherever somebody may look."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from pathlib import Path

import pytest
from cluster_tools import Clock, a_config, an_entry
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec import structs
from test_certs_wire import an_authority, polled, refused, tls

from gpumon.certs import authority
from gpumon.certs.authority import Limits, Names
from gpumon.certs.folder import CertsFolder
from gpumon.cluster.fleet import Fleet
from gpumon.cluster.metrics import PollCounts, metrics
from gpumon.cluster.sources.base import Reading
from gpumon.config import MetricsConfig, TlsConfig
from gpumon.http.certificates import Ends, certificate_end, ends_of, file_ends, soon
from gpumon.web.waste import wasted

NOW = dt.datetime.now(dt.timezone.utc)
DAY = 86_400.0


@pytest.fixture
def folder(tmp_path: Path) -> CertsFolder:
    return an_authority(tmp_path / "ca")


def files(folder: CertsFolder, name: str, days: int) -> TlsConfig:
    made = folder.add(Names((name,), (ipaddress.ip_address("127.0.0.1"),)), NOW, days, force=False)
    return TlsConfig(cert=made / "cert.pem", key=made / "key.pem", ca=made / "ca.pem")


@pytest.mark.parametrize("year", [1999, 2030, 2049, 2050, 9999])
def test_the_end_of_a_certificate_is_read_however_far_it_is(year):
    end = dt.datetime(year, 12, 31, 23, 59, 58, tzinfo=dt.timezone.utc)
    begin = end - dt.timedelta(days=300)
    made = authority.new_authority("an authority", Limits(), begin, days=300).certificate
    assert certificate_end(made.public_bytes(Encoding.DER)) == end.timestamp()


def test_what_is_no_certificate_has_no_end(tmp_path, folder):
    der = ssl.PEM_cert_to_DER_cert((folder.path / "ca.pem").read_text())
    for cut in range(120):
        with pytest.raises(ValueError, match=r"cut short|no certificate"):
            certificate_end(der[:cut])
    odd = tmp_path / "odd.pem"
    for text in (b"", b"no certificate", b"\xff" * 100, _pem("!!!"), _pem("MAA="), _pem("")):
        odd.write_bytes(text)
        assert file_ends(odd) == []
    assert file_ends(tmp_path / "missing.pem") == file_ends(None) == []
    assert ends_of(None) == ends_of(TlsConfig()) == Ends()


def _pem(body: str) -> bytes:
    return f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n".encode()


def test_of_an_old_and_a_new_authority_the_one_that_stays_counts(tmp_path):
    old = authority.new_authority("old", Limits(), NOW, days=5).certificate
    new = authority.new_authority("new", Limits(), NOW, days=900).certificate
    both = tmp_path / "both.pem"
    both.write_bytes(authority.pem(new) + authority.pem(old))
    assert ends_of(TlsConfig(ca=both)).authority == new.not_valid_after_utc.timestamp()


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (30.1, None),
        (29.9, "ends on 2027-01-29, in 29 days"),
        (1.5, "ends on 2027-01-01, tomorrow"),
        (0.5, "ends on 2026-12-31, today"),
        (-0.1, "ended on 2026-12-30"),
        (-400.0, "ended on 2025-11-26"),
    ],
)
def test_thirty_days_before_its_end_a_certificate_is_told_of_with_the_day(left, words):
    now = dt.datetime(2026, 12, 31, 1, tzinfo=dt.timezone.utc).timestamp()
    assert soon(now + left * DAY, now) == words
    assert soon(None, now) is None


def test_the_server_learns_from_the_handshake_when_an_agents_certificate_ends(tmp_path, folder):
    agent, server = files(folder, "gpu-01", 12), tls(folder, "server")
    assert agent.cert is not None
    # The third of three polls over one kept connection, which brings nothing new.
    assert polled(tmp_path, agent, server).certificate_ends == file_ends(agent.cert)[0]


def a_reading(tmp_path: Path, folder: CertsFolder, *, days: int) -> Reading:
    """Return what an agent answers whose certificate is good for `days`."""
    reading = polled(tmp_path, files(folder, "gpu-01", days), tls(folder, "server"))
    # Its sample is of long ago by its clock, which would be worth a note too.
    return structs.replace(reading, summary=structs.replace(reading.summary, time=None))


def _fleet(server: TlsConfig | None, *, hosts: int = 1, ask_over_tls: bool = True) -> Fleet:
    entries = [an_entry(f"gpu-{n:02}", 8043, tls=ask_over_tls) for n in range(1, hosts + 1)]
    clock = Clock()
    return Fleet(
        a_config(*entries, tls=server), monotonic=clock.monotonic, wall=lambda: NOW.timestamp()
    )


def test_a_host_whose_certificate_ends_soon_says_so_with_the_day_and_the_cure(tmp_path, folder):
    reading = a_reading(tmp_path, folder, days=12)
    fleet = _fleet(tls(folder, "page"))
    fleet.answered("gpu-01", reading, asked=0.0)
    [host] = fleet.status().hosts
    day = f"{NOW + dt.timedelta(days=12):%Y-%m-%d}"
    assert host.state == "fresh"
    assert host.notes == [
        f"the agent's certificate ends on {day}, in 12 days; without a good one it can't be asked. "
        "Renew it: run the playbook again, or gpumon certs renew where the authority lies"
    ]
    [row] = wasted(fleet.status())
    assert (row.kind, row.host, row.what) == ("warning", "gpu-01", host.notes[0])


def test_a_certificate_that_is_good_for_long_is_no_word_worth(tmp_path, folder):
    reading = a_reading(tmp_path, folder, days=40)
    fleet = _fleet(tls(folder, "page"))
    fleet.answered("gpu-01", reading, asked=0.0)
    assert fleet.status().hosts[0].notes == []
    assert wasted(fleet.status()) == []


def test_the_same_end_on_all_hosts_is_one_row(tmp_path, folder):
    reading = a_reading(tmp_path, folder, days=12)
    fleet = _fleet(None, hosts=40)
    for record in fleet.records():
        fleet.answered(record.entry.name, reading, asked=0.0)
    [row] = [row for row in wasted(fleet.status()) if row.kind == "warning"]
    assert (row.host, row.more_hosts) == ("gpu-01", 39)


def test_the_servers_own_certificate_and_its_authority_are_told_once_however_many_hosts(tmp_path):
    folder = CertsFolder(tmp_path / "ca")
    folder.init("an authority", Limits(), NOW, 20, force=False)
    own = files(folder, "monitor", 3)
    fleet = _fleet(own, hosts=40)
    status = fleet.status()
    client, authority_row = [row for row in wasted(status) if row.kind == "warning"]
    assert (client.host, client.more_hosts) == ("", 0)
    assert client.what.startswith("this server's certificate ends on ")
    assert "in 3 days; agents refuse it then, all at once. Renew it: run the" in client.what
    assert authority_row.what.startswith("the authority in tls.ca ends on ")
    text = metrics(status, PollCounts(), MetricsConfig()).decode()
    name = "gpumon_certificate_expires_timestamp_seconds"
    assert ends_of(own) == Ends(
        own=status.certificate_ends.client_ends_at,
        authority=status.certificate_ends.authority_ends_at,
    )
    for part, end in (("client", ends_of(own).own), ("authority", ends_of(own).authority)):
        _, told = text.split(f'\n{name}{{certificate="{part}"}} ')
        assert float(told.split()[0]) == end


def test_a_certificate_that_no_host_needs_is_not_told_of(tmp_path, folder):
    fleet = _fleet(files(folder, "monitor", 3), ask_over_tls=False)
    assert [row for row in wasted(fleet.status()) if row.kind == "warning"] == []
    assert (
        "certificate_expires" not in metrics(fleet.status(), PollCounts(), MetricsConfig()).decode()
    )


def test_a_new_certificate_of_the_server_counts_after_a_reload(tmp_path, folder):
    old, new = files(folder, "monitor", 3), files(folder, "monitor-2", 300)
    fleet = _fleet(old)
    assert fleet.status().certificate_ends.client_ends_at == ends_of(old).own
    clock = Clock()
    fleet._monotonic = clock.monotonic
    clock.seconds += 3600
    fleet.reconfigure(a_config(an_entry("gpu-01", 8043, tls=True), tls=new))
    assert fleet.status().certificate_ends.client_ends_at == ends_of(new).own


def test_of_a_host_that_went_dark_by_its_certificate_the_day_is_still_told(tmp_path, folder):
    reading = a_reading(tmp_path, folder, days=12)
    clock = Clock()
    fleet = Fleet(
        a_config(an_entry("gpu-01", 8043, tls=True)),
        monotonic=clock.monotonic,
        wall=lambda: NOW.timestamp() + clock.monotonic(),
    )
    fleet.answered("gpu-01", reading, asked=clock.monotonic())
    clock.seconds += 13 * DAY
    error = refused(
        tmp_path,
        tls(folder, "gpu-02", now=NOW - dt.timedelta(days=800), ip="127.0.0.1"),
        tls(folder, "server-2"),
    )
    fleet.failed("gpu-01", error.kind, str(error), asked=clock.monotonic())
    down, warning = wasted(fleet.status())
    assert "(certificate has expired)" in down.what
    assert (
        f"the agent's certificate ended on {NOW + dt.timedelta(days=12):%Y-%m-%d}" in warning.what
    )


def test_a_damaged_file_of_certificates_is_read_in_time(tmp_path):
    broken = tmp_path / "ca.crt"
    broken.write_text("-----BEGIN CERTIFICATE-----\n" * 20_000)
    assert list(file_ends(broken)) == []
