"""Reads that never come back cost their own call and no other."""

from __future__ import annotations

import threading
import time

import pytest
from collect_helpers import until

from gpumon.collect.deadline import Deadline


@pytest.fixture
def stuck():
    """An event that stuck calls wait for; set at the end, so that no thread is left."""
    event = threading.Event()
    yield event
    event.set()


def test_a_call_gives_its_value_and_its_error():
    deadline = Deadline(5.0, 2)
    assert deadline.call("a", lambda: 1) == 1
    with pytest.raises(KeyError):
        deadline.call("a", lambda: {}["missing"])
    assert deadline.call("a", lambda: 2) == 2


def test_one_thread_does_all_calls():
    deadline = Deadline(5.0, 2)
    threads = {deadline.call(number, threading.get_ident) for number in range(100)}
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_a_stuck_call_ends_at_the_deadline_and_the_others_go_on(stuck):
    deadline = Deadline(0.05, 2)
    with pytest.raises(TimeoutError):
        deadline.call("bad", stuck.wait)
    assert deadline.call("good", lambda: "read") == "read"


def test_what_is_still_stuck_is_refused_at_once_and_heals(stuck):
    deadline = Deadline(0.3, 4)
    with pytest.raises(TimeoutError):
        deadline.call("bad", stuck.wait)
    began = time.monotonic()
    for _ in range(20):
        with pytest.raises(TimeoutError):
            deadline.call("bad", lambda: "not run")
    assert time.monotonic() - began < 20 * 0.3
    stuck.set()

    def healed() -> bool:
        try:
            return deadline.call("bad", lambda: "read") == "read"
        except TimeoutError:
            return False

    until(healed, "it answers again")


def test_only_so_many_threads_are_left_behind_and_they_end(stuck):
    before = threading.active_count()
    deadline = Deadline(0.02, 3)
    for number in range(10):
        with pytest.raises(TimeoutError):
            deadline.call(number, stuck.wait)
    assert threading.active_count() - before == 3
    stuck.set()
    until(lambda: threading.active_count() == before, "the threads have ended")
    assert deadline.call("next", lambda: "read") == "read"
