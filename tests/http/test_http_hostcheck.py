"""The Host check: this machine's own names pass, a name that a web page brought does not."""

from __future__ import annotations

import os
import socket

import pytest
from http_serving import eventually

from gpumon.http.hostcheck import HostCheck


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:8043", "10.1.2.3:80", "[::1]", "[::1]:8043", "localhost:8043"],
)
def test_addresses_and_localhost_pass(host):
    assert HostCheck().accepts(host)


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        ":8043",
        "evil.example",
        "evil.example:8043",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "127.0.0.1@evil.example",
        "[::1].evil.example]",
        "2130706433.evil",
        "127.0.0.1 evil.example",
    ],
)
def test_foreign_names_do_not_pass(host):
    assert not HostCheck().accepts(host)


def test_the_machines_own_names_pass_in_any_spelling():
    name = os.uname().nodename
    for own in (name, name.upper(), f"{name}.", f"{name}:8043", name.partition(".")[0]):
        assert HostCheck().accepts(own), own


def test_a_foreign_name_that_begins_like_ours_does_not_pass():
    assert not HostCheck().accepts(os.uname().nodename.partition(".")[0] + ".evil.example")


def test_the_full_name_passes_once_it_is_known_and_nobody_waits_for_it(monkeypatch):
    import threading

    answer = threading.Event()

    def slow_dns() -> str:
        answer.wait(10)
        return "gpu7.lab.example"

    monkeypatch.setattr(socket, "getfqdn", slow_dns)
    check = HostCheck(["cluster.example"])
    assert not check.accepts("gpu7.lab.example")
    assert check.accepts("cluster.example:80")
    answer.set()
    assert eventually(lambda: check.accepts("GPU7.lab.example.:8043"))
