"""The forms in which people write a host, and the names that come of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpumon.config import HostEntry
from gpumon.config.loader import load
from gpumon.errors import ConfigError


def hosts(tmp_path: Path, *entries: object, before: str = "") -> list[HostEntry]:
    path = tmp_path / "config.yml"
    path.write_text(before + f"hosts: {json.dumps(entries)}\n")
    return load(str(path), environ={}).hosts


FORMS = {
    "host1": ("host1", "host1:8043", "host1", 8043, False),
    "host2:9043": ("host2", "host2:9043", "host2", 9043, False),
    "10.0.0.7": ("10.0.0.7", "10.0.0.7:8043", "10.0.0.7", 8043, False),
    "[::1]": ("::1", "[::1]:8043", "::1", 8043, False),
    "[0:0::1]:9043": ("0:0::1", "[::1]:9043", "::1", 9043, False),
    "http://host1": ("host1", "host1:8043", "host1", 8043, False),
    "http://host1:80/": ("host1", "host1:80", "host1", 80, False),
    "https://host3": ("host3", "https://host3:8043", "host3", 8043, True),
    "https://host3:443//": ("host3", "https://host3:443", "host3", 443, True),
    "HTTPS://[FD00::7]:443/": ("FD00::7", "https://[fd00::7]:443", "fd00::7", 443, True),
    "  GPU-01.Lab.org \n": ("GPU-01.Lab.org", "gpu-01.lab.org:8043", "gpu-01.lab.org", 8043, False),
    "gpu-01.lab.org.": ("gpu-01.lab.org", "gpu-01.lab.org:8043", "gpu-01.lab.org", 8043, False),
    "gpu_01": ("gpu_01", "gpu_01:8043", "gpu_01", 8043, False),
    "localhost": ("localhost", "localhost:8043", "localhost", 8043, False),
    "simulated": ("simulated", "simulated:8043", "simulated", 8043, False),
    "selfish": ("selfish", "selfish:8043", "selfish", 8043, False),
    "http://self": ("self", "self:8043", "self", 8043, False),
}


@pytest.mark.parametrize("entry", FORMS)
@pytest.mark.parametrize("long", [False, True])
def test_a_host_is_taken_as_people_write_it(entry: str, long: bool, tmp_path: Path) -> None:
    [host] = hosts(tmp_path, {"address": entry} if long else entry)
    assert (host.name, host.address, host.host, host.port, host.tls) == FORMS[entry]
    assert host.source == "xmlrpc"


OTHER_KINDS = {
    "ssh://host4": ("host4", "ssh", "ssh://host4:22", "host4", 22, None),
    "SSH://gpu_monitor@Host4.": ("Host4", "ssh", "ssh://host4:22", "host4", 22, "gpu_monitor"),
    "ssh://a.b@lab.org@[::1]:2222/": ("::1", "ssh", "ssh://[::1]:2222", "::1", 2222, "a.b@lab.org"),
    "nvgpu://host5": ("host5", "nvgpu", "nvgpu+http://host5:1080", "host5", 1080, None),
    "nvgpu+http://host5:80/": ("host5", "nvgpu", "nvgpu+http://host5:80", "host5", 80, None),
    "nvgpu+https://host5": ("host5", "nvgpu", "nvgpu+https://host5:1080", "host5", 1080, None),
}


@pytest.mark.parametrize("entry", OTHER_KINDS)
@pytest.mark.parametrize("long", [False, True])
def test_hosts_of_other_kinds_are_told_by_their_scheme(
    entry: str, long: bool, tmp_path: Path
) -> None:
    before = "rpc_port: 9999\ntls: {ca: ca.pem}\n"
    [host] = hosts(tmp_path, {"address": entry} if long else entry, before=before)
    found = (host.name, host.source, host.address, host.host, host.port, host.user)
    assert found == OTHER_KINDS[entry]
    assert host.tls == entry.startswith("nvgpu+https")


def test_the_section_ssh_names_user_key_and_known_hosts(tmp_path: Path) -> None:
    path = tmp_path / "config.yml"
    path.write_text(
        "ssh: {user: gpumon, key_file: keys/id, known_hosts: /etc/gpumon/known_hosts}\n"
    )
    ssh = load(str(path), environ={}).ssh
    assert ssh.user == "gpumon"
    assert ssh.key_file == tmp_path / "keys" / "id"
    assert ssh.known_hosts == Path("/etc/gpumon/known_hosts")


@pytest.mark.parametrize("entry", ["self", " Self", {"address": "SELF"}])
def test_self_is_this_machine_without_a_network(entry: object, tmp_path: Path) -> None:
    [host] = hosts(tmp_path, entry)
    assert host == HostEntry(name="self", source="self", address="self")


def test_self_takes_name_labels_and_drained(tmp_path: Path) -> None:
    [host] = hosts(
        tmp_path, {"name": "gpu-01", "address": "self", "labels": {"a": "b"}, "drained": True}
    )
    assert host == HostEntry(
        name="gpu-01", source="self", address="self", labels={"a": "b"}, drained=True
    )


def test_the_port_of_the_file_holds_for_hosts_that_name_none(tmp_path: Path) -> None:
    found = hosts(tmp_path, "host1", "host2:1", "https://host3", before="rpc_port: 9999\n")
    assert [host.port for host in found] == [9999, 1, 9999]


def test_with_tls_only_hosts_written_with_http_are_reached_without(tmp_path: Path) -> None:
    found = hosts(
        tmp_path, "host1", "http://host2", "https://host3", "self", before="tls: {ca: ca.pem}\n"
    )
    assert [host.tls for host in found] == [True, False, True, False]
    assert found[0].address == "https://host1:8043"


def test_the_order_of_the_file_is_kept(tmp_path: Path) -> None:
    names = [host.name for host in hosts(tmp_path, "gpu-10", "gpu-2", "self", "alpha")]
    assert names == ["gpu-10", "gpu-2", "self", "alpha"]


def test_hosts_that_differ_by_port_carry_it_in_their_names(tmp_path: Path) -> None:
    names = [host.name for host in hosts(tmp_path, "host2:9043", "HOST2:9044", "host3:9043")]
    assert names == ["host2:9043", "HOST2:9044", "host3"]


def test_a_second_agent_on_a_host_does_not_rename_the_first(tmp_path: Path) -> None:
    names = [host.name for host in hosts(tmp_path, "host2", "host2:9043", "[::1]", "[::1]:1")]
    assert names == ["host2", "host2:9043", "::1", "[::1]:1"]


def test_a_name_that_somebody_gave_is_never_changed(tmp_path: Path) -> None:
    given = {"name": "host2", "address": "10.0.0.7:9043"}
    assert [host.name for host in hosts(tmp_path, given, "host2:9043")] == ["host2", "host2:9043"]


def test_a_given_name_and_a_host_of_that_name_without_a_port_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='the name "host2" stands twice'):
        hosts(tmp_path, {"name": "host2", "address": "10.0.0.7"}, "host2")


def test_http_and_https_on_one_port_are_one_address(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="host1:8043 stands twice"):
        hosts(tmp_path, "http://host1", {"name": "other", "address": "https://host1"})


def test_one_bad_entry_does_not_hide_the_faults_of_the_others(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        hosts(tmp_path, "a b", "host1", "c:0", "host1")
    places = [fault.split(": ")[1] for fault in caught.value.faults]
    assert places == ["hosts[0]", "hosts[2].port", "hosts[3]"]


def test_a_thousand_hosts_are_read(tmp_path: Path) -> None:
    found = hosts(tmp_path, *(f"gpu-{number}" for number in range(1000)))
    assert len({host.name for host in found}) == 1000


SERVERS = {
    "gpumon+http://North": ("north", "gpumon+http://north:8042", "north", 8042, False, ""),
    "gpumon+http://north:80/": ("north", "gpumon+http://north:80", "north", 80, False, ""),
    "gpumon+https://north/gpus/": (
        "north",
        "gpumon+https://north:443/gpus",
        "north",
        443,
        True,
        "/gpus",
    ),
}


@pytest.mark.parametrize("entry", SERVERS)
def test_another_gpumon_server_is_named_by_the_address_of_its_page(
    entry: str, tmp_path: Path
) -> None:
    [host] = hosts(tmp_path, entry)
    found = (host.name, host.address, host.host, host.port, host.tls, host.path)
    assert found == SERVERS[entry]
    assert host.source == "gpumon"


def test_a_host_that_pushes_is_named_by_what_it_calls_itself(tmp_path: Path) -> None:
    [host] = hosts(tmp_path, "push://GPU-09.lab")
    assert (host.name, host.address, host.host) == ("GPU-09.lab", "push://gpu-09.lab", "gpu-09.lab")
    assert host.source == "pushed"
