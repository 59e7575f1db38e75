"""What an agent pushes: tickets in place of clocks, and a row that says why it is silent."""

from __future__ import annotations

import asyncio
import base64
import gzip
import logging
import math

import msgspec
import pytest
from cluster_tools import Clock, a_config, a_gpu, a_snapshot

from gpumon.cluster.fleet import Fleet
from gpumon.cluster.sources.pushed import (
    LONGEST_WAY_SECONDS,
    MOST_NEWCOMERS,
    PushInbox,
    Refused,
    watch_one,
)
from gpumon.config import HostEntry
from gpumon.model import HostSnapshot, encode
from gpumon.summary import summarize

GPU_09 = HostEntry(name="gpu-09", source="pushed", address="push://gpu-09", host="gpu-09")
SNAPSHOT = a_snapshot(a_gpu(), sample_age_seconds=1.0)


class Desk:
    """An inbox with a clock of its own, and a sender that does everything right."""

    def __init__(self, *entries: HostEntry, accept_new: bool = False) -> None:
        self.clock = Clock()
        config = a_config(*(entries or (GPU_09,)), poll_interval=5.0)
        self.fleet = Fleet(config, monotonic=self.clock.monotonic, wall=self.clock.wall)
        self.inbox = PushInbox(self.fleet, accept_new=accept_new)
        self.ticket = ""
        self.silent: set[str] = set()

    def push(
        self,
        snapshot: HostSnapshot = SNAPSHOT,
        *,
        ticket: str | None = None,
        held: float = 0.0,
        revision: str = "a-1",
        summary: str | None = None,
        packed: str | None = None,
    ) -> str:
        verdict, self.ticket = self.inbox.push(
            "gpu-09",
            self.ticket if ticket is None else ticket,
            held,
            revision,
            encode(summarize(snapshot)).decode() if summary is None else summary,
            base64.b64encode(gzip.compress(encode(snapshot))).decode()
            if packed is None
            else packed,
        )
        return verdict

    def news(self, revision: str, age: float) -> str:
        text = encode({"sample_age_seconds": age, "sampler_error": None}).decode()
        verdict, self.ticket = self.inbox.push_known("gpu-09", self.ticket, 0.0, revision, text)
        return verdict

    def greet(self) -> None:
        assert self.news("a-1", 0.0) == "again"

    def watch(self) -> None:
        watch_one(self.fleet, self.fleet.record("gpu-09"), self.silent)

    def host(self):
        self.clock.move(3)  # past the tick of the picture
        [host] = self.fleet.status().hosts
        return host


def test_a_push_is_shown_with_its_age_and_opens_like_a_poll():
    desk = Desk()
    desk.greet()
    assert desk.push() == "taken"
    host = desk.host()
    assert (host.state, host.age_seconds) == ("fresh", 4.0)
    assert host.gpus[0].state == "free"
    assert desk.fleet.detail("gpu-09").gpus == SNAPSHOT.gpus


def test_the_first_push_without_a_ticket_brings_no_reading_but_a_ticket():
    desk = Desk()
    assert desk.push(ticket="") == "again"
    assert desk.fleet.record("gpu-09").answered is None
    assert desk.push() == "taken"


def test_a_push_that_was_recorded_and_is_sent_again_is_not_taken_and_logged(caplog):
    desk = Desk()
    desk.greet()
    used = desk.ticket
    assert desk.push(held=0.0) == "taken"
    first = desk.fleet.record("gpu-09")
    desk.clock.move(4)
    due = desk.ticket
    with caplog.at_level(logging.WARNING):
        assert desk.push(ticket=used) == "again"
    after = desk.fleet.record("gpu-09")
    assert (after.reading, after.answered, after.sampled) == (
        first.reading,
        first.answered,
        first.sampled,
    )
    assert "used before" in after.failure.message
    assert "used before" in caplog.text
    assert used not in caplog.text
    # It gives nothing away and takes nothing from the real sender: its ticket is still the one due.
    assert desk.ticket == due
    assert desk.push(ticket=due, held=4.0) == "taken"


def test_a_ticket_of_another_life_of_the_server_is_replaced_without_a_word(caplog):
    desk = Desk()
    with caplog.at_level(logging.WARNING):
        assert desk.push(ticket="0badcafe-0123456789abcdef") == "again"
    assert caplog.text == ""
    assert desk.push() == "taken"


def test_the_way_of_a_push_counts_as_age_without_comparing_clocks():
    desk = Desk()
    desk.greet()
    desk.clock.move(10)
    # The sender had the ticket for 7 of these 10 seconds: 3 went by on the way.
    assert desk.push(a_snapshot(a_gpu(), sample_age_seconds=1.0, time=12.0), held=7.0) == "taken"
    assert desk.fleet.record("gpu-09").age(desk.clock.monotonic()) == 4.0


@pytest.mark.parametrize("held", [0.0, math.nan, -math.inf, -1e9])
def test_a_push_that_was_held_back_on_its_way_is_not_taken(held: float):
    desk = Desk()
    desk.greet()
    desk.clock.move(LONGEST_WAY_SECONDS + 1)
    assert desk.push(held=held) == "again"
    assert desk.fleet.record("gpu-09").answered is None


def test_who_claims_to_have_held_the_ticket_longer_than_it_exists_is_not_younger_than_now():
    desk = Desk()
    desk.greet()
    assert desk.push(held=1e9) == "taken"
    assert desk.fleet.record("gpu-09").age(desk.clock.monotonic()) == 1.0


def test_a_sample_from_the_future_is_as_old_as_its_arrival():
    desk = Desk()
    desk.greet()
    assert desk.push(a_snapshot(a_gpu(), sample_age_seconds=-500.0)) == "taken"
    assert desk.fleet.record("gpu-09").age(desk.clock.monotonic()) == 0.0


def test_a_known_revision_is_not_sent_again_and_grows_old():
    desk = Desk()
    desk.greet()
    desk.push(revision="a-1")
    packed = desk.fleet.record("gpu-09").reading.packed
    desk.clock.move(5)
    assert desk.inbox.push_known("gpu-09", desk.ticket, 5.0, "a-1", '{"sample_age_seconds": 6.0}')
    record = desk.fleet.record("gpu-09")
    assert record.age(desk.clock.monotonic()) == 6.0
    assert record.reading.packed is packed


def test_news_of_an_unknown_revision_ask_for_everything():
    desk = Desk()
    desk.greet()
    assert desk.news("a-7", 1.0) == "send all"
    assert desk.push(revision="a-7") == "taken"
    assert desk.news("a-7", 1.0) == "taken"


def test_an_unknown_age_stays_unknown():
    desk = Desk()
    desk.greet()
    desk.push(a_snapshot(sample_age_seconds=None, gpu_count=None))
    assert desk.host().age_seconds is None


BAD = {
    "no json": ({"summary": "<html>"}, "can't be read"),
    "another schema": (
        {"summary": '{"schema": 99, "gpus": 7}'},
        "it pushes schema 99",
    ),
    "not base64": ({"packed": "no base64!"}, "not base64"),
    "too many GPUs": (
        {"summary": encode(summarize(a_snapshot(*map(a_gpu, range(65))))).decode()},
        "at most 64 GPUs",
    ),
    "brackets": ({"summary": "[" * 100_000}, "can't be read"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_push_that_can_not_be_read_is_refused_and_said_on_the_row(case: str):
    desk = Desk()
    desk.greet()
    fields, words = BAD[case]
    with pytest.raises(Refused, match=words):
        desk.push(**fields)
    host = desk.host()
    assert host.state == "never"
    assert words in host.reason
    assert len(host.reason) < 400


def test_a_packed_bomb_costs_its_own_page_only():
    desk = Desk()
    desk.greet()
    bomb = base64.b64encode(gzip.compress(b"[" + b" " * 40_000_000 + b"]", 9)).decode()
    assert len(bomb) < 100_000
    assert desk.push(packed=bomb) == "taken"
    assert desk.host().gpus[0].state == "free"
    assert "can't be opened" in desk.fleet.detail("gpu-09").errors[0]


def test_a_host_that_nobody_expects_is_refused_with_the_line_to_write():
    with pytest.raises(Refused, match="write push://gpu-10 into hosts"):
        Desk().inbox.host_of("GPU-10")


def test_the_name_of_a_host_that_is_asked_is_not_taken_by_a_push():
    asked = HostEntry(name="gpu-01", source="xmlrpc", address="gpu-01:8043", host="gpu-01")
    for accept_new in (False, True):
        with pytest.raises(Refused):
            Desk(asked, accept_new=accept_new).inbox.host_of("gpu-01")


def test_a_flood_of_repeated_pushes_is_one_line_a_minute(caplog):
    desk = Desk()
    desk.greet()
    used = desk.ticket
    desk.push()
    for _ in range(100):
        desk.push(ticket=used)
        desk.clock.move(1)
    assert caplog.text.count("used before") == 2


@pytest.mark.parametrize(
    "name", ["", " ", "a/b", "a b", "\x1b[31m", "n" * 65, "..", "self:1", "\x00"]
)
def test_a_name_that_is_none_is_not_taken_in_even_where_new_ones_are_allowed(name: str):
    desk = Desk(accept_new=True)
    with pytest.raises(Refused, match="expected a name of letters") as caught:
        desk.inbox.host_of(name)
    assert "\x1b" not in str(caught.value)
    assert len(desk.fleet.records()) == 1


def test_new_hosts_are_taken_in_where_that_is_allowed_up_to_a_bound():
    desk = Desk(accept_new=True)
    for number in range(MOST_NEWCOMERS):
        assert desk.inbox.host_of(f"New-{number}") == f"new-{number}"
    assert desk.inbox.host_of("new-0") == "new-0"
    with pytest.raises(Refused, match="1000 hosts"):
        desk.inbox.host_of("one-more")
    desk.clock.move(3)
    assert desk.fleet.status().hosts[1].address == "push://new-0"


def test_a_host_that_has_not_pushed_yet_says_what_to_do():
    desk = Desk()
    desk.watch()
    host = desk.host()
    assert (host.state, host.reason_kind) == ("never", "silent")
    assert "gpumon agent --push" in host.reason


def test_a_silent_host_grows_stale_then_down_says_so_once_and_comes_back_at_once(caplog):
    desk = Desk()
    desk.greet()
    desk.push()
    with caplog.at_level(logging.INFO):
        desk.watch()
        assert desk.host().state == "fresh"
        desk.clock.move(20)
        desk.watch()
        desk.watch()
        host = desk.host()
        assert (host.state, host.reason_kind) == ("stale", "silent")
        assert "pushes every 5 s" in host.reason
        assert host.gpus[0].state == "unknown"
        desk.clock.move(300)
        desk.watch()
        assert desk.host().state == "down"
        assert desk.push(held=326.0) == "taken"
        desk.watch()
        assert desk.host().state == "fresh"
    assert caplog.text.count("nothing came") == 1
    assert caplog.text.count("gpu-09: pushes\n") == 1


def test_who_pushes_seldom_is_not_stale_between_two_pushes():
    desk = Desk()
    desk.greet()
    desk.push(a_snapshot(a_gpu(), sample_interval_seconds=60.0))
    desk.clock.move(100)
    desk.watch()
    assert desk.host().state == "fresh"
    desk.clock.move(60)
    desk.watch()
    assert desk.host().state == "stale"


def test_its_word_on_its_own_pace_does_not_keep_a_host_fresh_for_ever():
    desk = Desk()
    desk.greet()
    desk.push(a_snapshot(a_gpu(), sample_interval_seconds=1e9))
    desk.clock.move(3600)
    assert desk.host().state != "fresh"


def test_a_wrong_token_is_the_reason_until_a_good_push():
    desk = Desk()
    desk.watch()
    desk.inbox.refused("GPU-09", "wrong token", "wrong token: ...")
    desk.inbox.refused("stranger", "wrong token", "wrong token: ...")
    desk.watch()
    assert desk.host().reason_kind == "wrong token"
    desk.greet()
    desk.push()
    assert desk.host().reason is None


def test_a_strangers_wrong_token_does_not_stay_the_reason():
    desk = Desk()
    desk.watch()
    desk.inbox.refused("gpu-09", "wrong token", "wrong token: ...")
    desk.clock.move(170)
    desk.watch()
    assert desk.host().reason_kind == "wrong token"
    desk.clock.move(20)
    desk.watch()
    assert desk.host().reason_kind == "silent"


def test_two_pushes_with_one_ticket_at_the_same_time_are_one():
    desk = Desk()
    desk.greet()

    async def work() -> list[str]:
        ticket = desk.ticket
        return await asyncio.gather(
            *(asyncio.to_thread(desk.push, ticket=ticket) for _ in range(8))
        )

    assert sorted(asyncio.run(work())) == ["again"] * 7 + ["taken"]


def test_a_configuration_without_the_host_ends_its_pushes():
    desk = Desk()
    desk.greet()
    desk.push()
    desk.fleet.reconfigure(msgspec.structs.replace(a_config(), hosts=[]))
    with pytest.raises(Refused):
        desk.inbox.host_of("gpu-09")
