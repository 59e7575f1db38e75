"""Every reason that is put together of two parts, with each of the parts, as a person reads it."""

from __future__ import annotations

import errno
import socket

import msgspec
import pytest
from cluster_tools import WALL, Clock, a_config, a_gpu, a_process, a_snapshot, an_entry

from gpumon.agent import failures as sampler
from gpumon.cluster.fleet import Fleet
from gpumon.cluster.relayed import Relayed
from gpumon.cluster.sources import failures
from gpumon.cluster.sources.base import Reading
from gpumon.cluster.sources.pushed import watch_one
from gpumon.cluster.sources.ssh import failures as ssh_failures
from gpumon.cluster.sources.ssh.connection import HostKeyRefused
from gpumon.cluster.status import HostStatus
from gpumon.config import HostEntry
from gpumon.model import Gpu, MigInstance
from gpumon.states import not_fresh, uncorrected_errors
from gpumon.summary import HostSummary

ENTRY = an_entry("one", 1)


class Told:
    """A fleet of one host, or of more, to which things are told."""

    def __init__(self, *entries: HostEntry) -> None:
        self.clock = Clock()
        self.fleet = Fleet(
            a_config(*(entries or (ENTRY,))),
            monotonic=self.clock.monotonic,
            wall=self.clock.wall,
        )

    def answers(self, *gpus: Gpu, host: str = "one", **fields: object) -> Told:
        snapshot = a_snapshot(*gpus, **{"time": self.clock.wall(), **fields})
        self.fleet.answered(host, Reading.of(snapshot), asked=self.clock.seconds)
        return self

    def later(self, seconds: float) -> Told:
        self.clock.move(seconds)
        return self

    def row(self, number: int = 0) -> HostStatus:
        return self.fleet.status().hosts[number]


# Of a host


def test_a_host_that_was_not_asked_yet():
    assert Told().row().reason == "not asked yet"


def test_an_agent_that_answers_without_a_new_sample():
    old = Told().answers(a_gpu(), sample_age_seconds=40.0).row()
    assert old.reason == "no sample: the agent answers, but its last sample is 40s old"
    none = Told().answers(sample_age_seconds=None).row()
    assert none.reason == "no sample: the agent answers, but has no sample yet"
    why = Told().answers(sample_age_seconds=None, sampler_error="the driver hangs").row()
    assert why.reason == "the driver hangs"


@pytest.mark.parametrize(("off_by", "where"), [(31.0, "31s ahead of"), (-7200.0, "2h00 behind")])
def test_a_clock_that_is_off(off_by, where):
    row = Told().answers(a_gpu(), time=WALL + off_by).row()
    assert row.notes == [
        f"its clock is {where} this server's: starts of processes are off by that. Check its time "
        "service (chronyd)"
    ]


@pytest.mark.parametrize(
    ("count", "named"), [(2, "h1"), (3, "h1, h2"), (6, "h1, h2, h3, h4 and 1 more")]
)
def test_one_machine_under_several_names(count, named):
    names = [f"h{number}" for number in range(count)]
    told = Told(*(an_entry(name, 1) for name in names))
    for name in names:
        told.answers(a_gpu(), host=name)
    assert told.row().notes == [
        f"lists the same GPUs as {named}: one machine under two names in hosts, or a cloned agent. "
        "They are counted once"
    ]


NORTH = HostEntry(name="north", source="gpumon", address="north", host="north", port=1)


def test_a_host_of_another_server_that_is_silent_or_tells_nothing_new():
    south = Told().answers(a_gpu())
    told = Told(NORTH)
    reading = Reading(
        summary=HostSummary(),
        packed=b"",
        relayed=Relayed(status=south.fleet.status(), details=None),
    )
    told.fleet.answered("north", reading, asked=told.clock.seconds)
    row = told.later(16).row()
    words = "its server north answers, but has told nothing new for 16s"
    assert (row.reason, row.gpus[0].reason) == (words, words)
    told.fleet.failed("north", "refused", "refused: nothing listens there", asked=2000.0)
    row = told.later(16).row()
    assert row.reason == "its server north does not answer: refused: nothing listens there"


def test_a_host_that_pushes_or_does_not():
    entry = HostEntry(name="one", source="pushed", address="push://one", host="one")
    told = Told(entry)
    watch_one(told.fleet, told.fleet.record("one"), set())
    assert told.row().reason == (
        "silent: one has not pushed yet. Start 'gpumon agent --push URL' there"
    )
    told.later(1).answers(a_gpu()).later(60)
    watch_one(told.fleet, told.fleet.record("one"), set())
    assert told.row().reason == (
        "silent: one pushes every 5 s, and nothing came. Is its agent running, and does it reach "
        "this server? Its log says more: journalctl -u gpumon-agent"
    )


# Of a GPU


@pytest.mark.parametrize(
    ("gpu", "reason"),
    [
        (a_gpu(memory_used_mib=9000, processes=[]), "9000 MiB in use, no process visible"),
        (a_gpu(utilization_percent=30), "30 % used, no process visible"),
        (a_gpu(processes=None), "its processes could not be read"),
        (a_gpu(memory_used_mib=None), "its memory could not be read"),
        (a_gpu(unknown={"mig": "no"}), "whether MIG is on could not be read"),
        (
            a_gpu(mig_mode=True, mig=[MigInstance(index=0, processes=None)]),
            "not every MIG instance could be read",
        ),
        (
            a_gpu(clock_event_reasons=["hw_slowdown", "hw_thermal_slowdown"]),
            "slowed down by its hardware: hw slowdown, hw thermal slowdown",
        ),
    ],
)
def test_why_a_gpu_is_in_its_state(gpu, reason):
    assert Told().answers(gpu).row().gpus[0].reason == reason


def test_how_long_an_idle_gpu_was_not_used():
    told = Told(ENTRY)
    busy = a_gpu(processes=[a_process()], memory_used_mib=9000)
    for _ in range(31 * 12):
        told.answers(busy).later(5)
    assert told.row().gpus[0].reason == "held, not used for 30 min"


def test_what_is_known_of_the_gpus_of_a_host_that_is_not_fresh():
    assert not_fresh("stale") == "the host is stale"
    assert not_fresh("down") == "the host is down"
    assert not_fresh("never") == "the host has never answered"


def test_one_error_or_several():
    assert uncorrected_errors(1) == "1 uncorrected memory error since the last reset"
    assert uncorrected_errors(2) == "2 uncorrected memory errors since the last reset"


# Of a poll


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("name", "while looking up its name. Is its name server up?"),
        ("connecting", "while connecting. Is the host up, and no firewall in between?"),
        ("waiting", "while waiting for its answer. Is 'gpumon agent' running on that host?"),
        (
            "reading",
            "while reading its answer. Is the network slow, or rpc_timeout too short?",
        ),
    ],
)
def test_how_far_a_poll_came(step, words):
    assert str(failures.timed_out("one:1", 2.0, step)) == (
        f"timed out: no answer from one:1 within 2 s, {words}"
    )


def test_who_should_listen_there():
    refused = OSError(errno.ECONNREFUSED, "x")
    for who in ("'gpumon agent'", "nvgpu's agent", "'gpumon web'"):
        assert str(failures.way_failed(refused, "one:1", tls=False, who=who)) == (
            f"refused: nothing listens on one:1. Is {who} running on that host?"
        )
    again = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    assert str(failures.way_failed(again, "one:1", tls=False)) == (
        "name not found: one:1 has no address (Temporary failure in name resolution). Is its name "
        "server up?"
    )
    none = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert str(failures.way_failed(none, "one:1", tls=False)) == (
        "name not found: one:1 has no address (Name or service not known). Correct it in hosts or "
        "in DNS"
    )


def test_a_token_that_is_wrong_or_missing_and_a_status_with_words_or_without():
    def said(status: int, reason: str | None = None, *, token_sent: bool = False) -> str:
        return str(failures.bad_status("one:1", status, reason, token_sent=token_sent))

    assert said(401, token_sent=True) == (
        "wrong token: the agent on one:1 refused it (401). Put the agent's token first in "
        "token_file"
    )
    assert said(401) == (
        "wrong token: the agent on one:1 wants one (401) and none is configured. Set token_file"
    )
    start = "bad answer: expected an XML-RPC answer of a gpumon agent on one:1, found "
    assert said(502, "Bad Gateway") == start + "HTTP status 502 (Bad Gateway). Is rpc_port right?"
    assert said(502) == start + "HTTP status 502. Is rpc_port right?"
    assert said(302) == start + "a redirect (HTTP status 302). Is rpc_port right?"


def test_which_side_is_the_older_one():
    assert str(failures.other_schema("one:1", 1, 2)) == (
        "version too old: the agent on one:1 speaks schema 1, this server 2, and the agent is the "
        "older one. Update gpumon on that host"
    )
    assert str(failures.other_schema("one:1", 3, 2)).endswith(
        "this server 2, and the server is the older one. Update gpumon on this server"
    )


def test_the_key_of_a_host_that_is_unknown_or_another_one():
    entry = HostEntry(name="one", source="ssh", address="ssh://one", host="one", port=22)

    def said(known: bool, fingerprint: str | None, port: int = 22) -> str:
        told = msgspec.structs.replace(entry, port=port)
        return str(ssh_failures.host_key(told, HostKeyRefused(known, fingerprint), "/known"))

    compare = "Compare that with ssh-keygen -lf on the host, then add the line of: ssh-keyscan "
    unknown = "host key: no key of ssh://one in /known; it shows "
    assert said(False, "SHA256:x") == f"{unknown}SHA256:x. {compare}one"
    assert said(False, None, 2222) == f"{unknown}one. {compare}-p 2222 one"
    start = "host key: ssh://one shows another key"
    assert said(True, "SHA256:x").startswith(f"{start} (SHA256:x) than the one in /known. Was ")
    assert said(True, None).startswith(f"{start} than the one in /known. Was ")


# Of an agent's sampler


def test_how_a_sampler_failed(monkeypatch):
    monkeypatch.setattr(sampler, "clock", lambda _: "09:12:00")
    assert sampler.unanswered(WALL, None).what == "the driver has not answered since 09:12:00"
    assert sampler.unanswered(WALL, 3).what == (
        "the driver has not answered since 09:12:00 (GPU 3 was being read)"
    )
    assert sampler.ended(None, None).what == "the sampler closed its output at 09:12:00"
    assert sampler.ended(-11, 3).what == (
        "the sampler crashed (signal SIGSEGV) at 09:12:00 while GPU 3 was read"
    )
    assert sampler.ended(1, None, "no memory").what == (
        "the sampler ended (exit code 1) at 09:12:00: no memory"
    )
