"""The fleet: what it remembers of a host, and the one picture that all readers share."""

from __future__ import annotations

import gzip
import sys
import threading

import msgspec
import pytest
from cluster_tools import Clock, a_config, a_gpu, a_process, a_reading, an_entry

from gpumon.cluster.fleet import START_TICK_SECONDS, Fleet
from gpumon.cluster.sources.base import Reading
from gpumon.config import Config

CONFIG = a_config(an_entry("one", 1), an_entry("two", 2))


class Lab:
    def __init__(self, config: Config = CONFIG) -> None:
        self.clock = Clock()
        self.fleet = Fleet(config, monotonic=self.clock.monotonic, wall=self.clock.wall)

    def answer(self, host: str = "one", reading: Reading | None = None, age: float = 0.0) -> None:
        reading = reading or a_reading(a_gpu(), time=self.clock.wall() - age)
        self.fleet.answered(
            host, reading.aged(age, reading.summary.sampler_error), asked=self.clock.seconds
        )

    def fail(self, host: str = "one", kind: str = "refused") -> None:
        self.fleet.failed(host, kind, f"{kind}: words", asked=self.clock.seconds)

    def host(self, name: str = "one"):
        return next(host for host in self.fleet.status().hosts if host.name == name)


@pytest.fixture
def lab() -> Lab:
    return Lab()


# What is remembered


def test_before_the_first_poll_a_host_has_never_answered(lab):
    host = lab.host()
    assert (host.state, host.reason, host.gpus) == ("never", "not asked yet", [])
    assert (host.age_seconds, host.gpu_count, host.next_poll_seconds) == (None, None, None)


def test_a_failed_poll_keeps_the_values_and_their_age(lab):
    lab.answer(reading=a_reading(a_gpu(processes=[a_process()])), age=2.0)
    lab.clock.move(60)
    lab.fail()
    host = lab.host()
    assert (host.state, host.reason_kind, host.reason) == ("stale", "refused", "refused: words")
    assert host.age_seconds == 62.0
    assert host.answered_at == lab.clock.wall() - 60
    assert (host.gpus[0].state, host.gpus[0].holders[0].user) == ("unknown", "bob")


def test_one_missed_poll_is_no_change_and_two_are(lab):
    lab.answer()
    for seconds, state in ((5, "fresh"), (5, "fresh"), (5, "stale")):
        lab.clock.move(seconds)
        lab.fail()
        assert lab.host().state == state


def test_a_host_that_loses_every_fifth_poll_is_fresh_all_the_time(lab):
    for number in range(100):
        lab.clock.move(5)
        if number % 5:
            lab.answer()
        else:
            lab.fail()
        if number:
            assert (lab.host().state, lab.host().reason) == ("fresh", None)


def test_a_host_that_answers_again_is_as_if_nothing_had_been(lab):
    lab.answer()
    lab.clock.move(400)
    lab.fail()
    assert lab.host().state == "down"
    lab.clock.move(5)
    lab.answer()
    host = lab.host()
    assert (host.state, host.reason, host.reason_kind) == ("fresh", None, None)


def test_the_outcome_of_an_overtaken_poll_changes_nothing(lab):
    old = lab.clock.seconds
    lab.clock.move(10)
    lab.answer(reading=a_reading(a_gpu(0), a_gpu(1)))
    lab.fleet.answered("one", a_reading(a_gpu(0)), asked=old)
    lab.fleet.failed("one", "timed out", "late", asked=old)
    assert len(lab.host().gpus) == 2
    assert lab.fleet.record("one").failure is None


def test_freshness_is_judged_by_the_servers_clock_only(lab):
    for wrong in (-900.0, 172_800.0, -1.7e9):
        lab.clock.move(5)
        lab.answer(reading=a_reading(a_gpu(), time=lab.clock.wall() + wrong))
        host = lab.host()
        assert (host.state, host.age_seconds) == ("fresh", 0.0)
        assert "its clock is" in host.notes[0]
        lab.clock.move(60)
        lab.fail()
        host = lab.host()
        assert (host.state, host.age_seconds) == ("stale", 60.0), "a fast clock keeps nobody fresh"
    lab.clock.move(5)
    lab.answer()
    assert lab.host().errors == []


def test_a_step_of_the_servers_wall_clock_does_not_touch_freshness():
    clock = Clock()
    offset = 0.0
    fleet = Fleet(CONFIG, monotonic=clock.monotonic, wall=lambda: clock.wall() + offset)
    fleet.answered("one", a_reading(a_gpu()), asked=clock.seconds)
    offset = 7200.0
    clock.move(3)
    host = fleet.status().hosts[0]
    assert (host.state, host.age_seconds) == ("fresh", 3.0)


def test_an_agent_that_has_just_begun_does_not_wipe_out_what_was_known(lab):
    lab.answer(reading=a_reading(a_gpu(), a_gpu(1)))
    lab.clock.move(5)
    begun = a_reading(sample_age_seconds=None, sampler_error="no sample yet", gpu_count=None)
    lab.answer(reading=begun, age=None)
    host = lab.host()
    assert (len(host.gpus), host.state, host.age_seconds) == (2, "fresh", 5.0)
    assert (host.reason_kind, host.reason) == ("no sample", "no sample yet")


def test_an_agent_that_never_had_a_sample_is_not_fresh_and_says_why(lab):
    begun = a_reading(sample_age_seconds=None, sampler_error="NVML hangs", gpu_count=None)
    lab.answer(reading=begun, age=None)
    host = lab.host()
    assert (host.state, host.reason_kind, host.reason) == ("stale", "no sample", "NVML hangs")
    assert (host.age_seconds, host.gpu_count) == (None, None)


def test_a_sampler_that_stopped_makes_its_host_stale_though_the_agent_answers(lab):
    lab.answer(age=600.0)
    host = lab.host()
    assert (host.state, host.reason_kind) == ("stale", "no sample")
    assert "its last sample is 10m old" in host.reason


def test_a_reading_from_the_future_is_not_younger_than_now(lab):
    lab.answer(age=-3600.0)
    assert lab.host().age_seconds == 0.0


def test_the_time_to_the_next_poll_is_told(lab):
    lab.fleet.planned("one", lab.clock.seconds + 4)
    lab.clock.move(1)
    assert lab.host().next_poll_seconds == 3.0


def test_since_goes_on_over_polls(lab):
    for _ in range(3):
        lab.answer()
        lab.clock.move(5)
    lab.answer(reading=a_reading(a_gpu(), time=lab.clock.wall()))
    gpu = lab.host().gpus[0]
    assert (gpu.state, gpu.since, gpu.since_at_least) == ("free", lab.clock.wall() - 15, True)


# The picture


def test_a_picture_lasts_one_tick_and_all_get_the_same(lab):
    lab.answer()
    lab.answer("two")
    first = lab.fleet.status()
    lab.clock.move(2.4)
    lab.answer()
    assert lab.fleet.status() is first
    lab.clock.move(0.1)
    second = lab.fleet.status()
    assert second is not first
    assert second.revision != first.revision


def test_the_first_answer_of_a_host_is_shown_at_once(lab):
    lab.fleet.status()
    lab.clock.move(START_TICK_SECONDS)
    lab.answer("two")
    assert lab.host("two").state == "fresh"
    lab.clock.move(START_TICK_SECONDS)
    lab.answer("two", a_reading(a_gpu(0), a_gpu(1)))
    assert len(lab.host("two").gpus) == 1, "the second waits for its tick"


def test_a_tick_is_half_a_poll_interval_and_at_least_a_second():
    lab = Lab(msgspec.structs.replace(CONFIG, poll_interval=0.5))
    first = lab.fleet.status()
    lab.clock.move(0.9)
    assert lab.fleet.status() is first


def test_revisions_of_two_lives_of_the_server_differ():
    assert Lab().fleet.status().revision != Lab().fleet.status().revision


def test_threads_that_ask_while_a_picture_is_made_get_the_one_before(lab, monkeypatch):
    first = lab.fleet.status()
    made, go_on = threading.Event(), threading.Event()
    module = sys.modules[Fleet.__module__]
    build = module.build

    def slowly(*arguments, **options):
        made.set()
        assert go_on.wait(5)
        return build(*arguments, **options)

    monkeypatch.setattr(module, "build", slowly)
    lab.clock.move(10)
    builder = threading.Thread(target=lab.fleet.status)
    builder.start()
    assert made.wait(5)
    assert lab.fleet.status() is first
    go_on.set()
    builder.join(5)
    assert lab.fleet.status() is not first


def test_many_threads_read_while_the_poller_writes(lab):
    stop = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        try:
            while not stop.is_set():
                status = lab.fleet.status()
                assert status.totals.hosts == 2
                lab.fleet.detail("one")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        lab.clock.move(1.0)
        lab.answer()
        lab.fail("two")
    stop.set()
    for thread in threads:
        thread.join(5)
    assert failures == []


# The detail


def test_the_detail_is_the_whole_reading_as_old_as_it_is_now(lab):
    reading = a_reading(a_gpu(processes=[a_process(command="python train.py")]))
    lab.answer(reading=reading)
    lab.clock.move(7)
    detail = lab.fleet.detail("one")
    assert detail.gpus[0].processes[0].command == "python train.py"
    assert detail.sample_age_seconds == 7.0


def test_there_is_no_detail_of_a_host_that_never_answered_or_does_not_exist(lab):
    assert lab.fleet.detail("one") is None
    assert lab.fleet.detail("nowhere") is None


@pytest.mark.parametrize("packed", [b"", b"no gzip", Reading.of(a_reading().detail()).packed[:-9]])
def test_a_detail_that_can_not_be_opened_says_so(lab, packed, caplog):
    lab.answer(reading=Reading(summary=a_reading(a_gpu()).summary, packed=packed))
    detail = lab.fleet.detail("one")
    assert detail.gpu_count is None
    assert "can't be opened" in detail.errors[0]
    assert "one: " in caplog.text


def test_a_detail_that_is_a_bomb_is_not_opened(lab):
    bomb = gzip.compress(bytes(64 * 2**20))
    lab.answer(reading=Reading(summary=a_reading().summary, packed=bomb))
    assert "can't be opened" in lab.fleet.detail("one").errors[0]
