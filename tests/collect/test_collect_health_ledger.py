"""What happened to one GPU: entries that begin, go on, end and are forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpumon.collect.health.ledger import DAY, DRIVER, HOUR, KERNEL_LOG, MOST_EVENTS, Ledger

T = 1_764_000_000.0


def xid(ledger, code=79, *, at=T, source=DRIVER, level="fault"):
    ledger.happened("xid", code, level, f"XID {code}", "reset it", at=at, source=source)


def state(ledger, now, *, kind="ecc", level="fault", count=None):
    ledger.holds(kind, level, "broken", "mend it", now=now, count=count)


def only(ledger, now):
    ledger.tidy(now)
    (event,) = ledger.events()
    return event


def test_what_happened_goes_on_for_an_hour_and_keeps_its_times_for_a_day():
    ledger = Ledger()
    xid(ledger)
    assert only(ledger, T + HOUR - 1).ended_at is None
    event = only(ledger, T + HOUR)
    assert (event.first_at, event.last_at, event.count, event.ended_at) == (T, T, 1, T + HOUR)
    assert only(ledger, T + HOUR + DAY).ended_at == T + HOUR
    ledger.tidy(T + HOUR + DAY + 1)
    assert ledger.events() == []


def test_what_happens_again_is_counted_and_goes_on_again():
    ledger = Ledger()
    xid(ledger)
    assert only(ledger, T + 2 * HOUR).ended_at is not None
    xid(ledger, at=T + 3 * HOUR)
    event = only(ledger, T + 3 * HOUR + 1)
    assert (event.count, event.first_at, event.last_at) == (2, T, T + 3 * HOUR)
    assert event.ended_at is None


def test_an_error_of_a_program_is_over_at_once():
    ledger = Ledger()
    xid(ledger, 31, level="application")
    assert only(ledger, T + 1).ended_at == T
    xid(ledger, 31, level="application", at=T + 60)
    assert only(ledger, T + 61).ended_at == T + 60


def test_one_event_that_both_sources_tell_is_one():
    ledger = Ledger()
    xid(ledger, source=KERNEL_LOG, at=T)
    xid(ledger, source=DRIVER, at=T + 4)
    event = only(ledger, T + 5)
    assert (event.count, event.last_at, event.source) == (1, T, "driver, kernel log")


def test_a_source_that_misses_events_does_not_take_them_from_the_other():
    ledger = Ledger()
    for seconds in range(3):
        xid(ledger, source=KERNEL_LOG, at=T + seconds)
    xid(ledger, source=DRIVER, at=T + 9)
    event = only(ledger, T + 10)
    assert (event.count, event.last_at) == (3, T + 2)


def test_a_state_goes_on_until_it_is_seen_to_be_over():
    ledger = Ledger()
    state(ledger, T)
    state(ledger, T + 9 * HOUR)
    event = only(ledger, T + 9 * HOUR)
    assert (event.count, event.last_at, event.ended_at) == (1, T, None)
    ledger.over("ecc", T + 10 * HOUR)
    assert only(ledger, T + 11 * HOUR).ended_at == T + 10 * HOUR
    state(ledger, T + 12 * HOUR)
    event = only(ledger, T + 12 * HOUR)
    assert (event.count, event.first_at, event.last_at) == (2, T, T + 12 * HOUR)
    assert event.ended_at is None


def test_a_state_with_a_number_has_that_as_its_count():
    ledger = Ledger()
    state(ledger, T, count=2)
    state(ledger, T + 5, count=2)
    assert (only(ledger, T + 5).count, only(ledger, T + 5).last_at) == (2, T)
    state(ledger, T + 10, count=7)
    assert (only(ledger, T + 10).count, only(ledger, T + 10).last_at) == (7, T + 10)
    state(ledger, T + 15, count=1)  # reset while nobody looked, and a new one
    assert (only(ledger, T + 15).count, only(ledger, T + 15).last_at) == (1, T + 15)


def test_what_never_was_can_not_be_over():
    ledger = Ledger()
    ledger.over("ecc", T)
    assert ledger.events() == []


def test_a_new_start_of_the_machine_ends_what_happened_before_and_no_state():
    ledger = Ledger()
    xid(ledger)
    state(ledger, T)
    ledger.reset(T + 60)
    assert {event.kind: event.ended_at for event in ledger.events()} == {"xid": T + 60, "ecc": None}


def test_a_clock_that_is_set_back_does_not_keep_a_fault_for_ever():
    ledger = Ledger()
    xid(ledger, at=T + 1000 * DAY)
    assert only(ledger, T).ended_at is None
    assert only(ledger, T + HOUR).ended_at == T + HOUR
    other = Ledger()
    xid(other, 31, level="application", at=T + 1000 * DAY)
    assert only(other, T).ended_at == T
    other.tidy(T + DAY + 1)
    assert other.events() == []


def test_what_goes_on_comes_first_then_the_worst_then_the_newest():
    ledger = Ledger()
    xid(ledger, 1, at=T - 5 * HOUR)
    xid(ledger, 2, level="warning")
    xid(ledger, 3)
    xid(ledger, 4, at=T + 1)
    xid(ledger, 5, level="application")
    ledger.tidy(T + 2)
    assert [event.code for event in ledger.events()] == [4, 3, 2, 1, 5]


@given(st.lists(st.tuples(st.integers(0, 60), st.floats(0, 2 * DAY), st.booleans()), max_size=80))
def test_the_list_stays_short_and_what_goes_on_is_kept_before_what_is_over(happened):
    ledger = Ledger()
    for code, seconds, fault in happened:
        xid(ledger, code, at=T + seconds, level="fault" if fault else "application")
    now = T + 2 * DAY
    ledger.tidy(now)
    events = ledger.events()
    assert len(events) <= MOST_EVENTS
    going_on = [event.ended_at is None for event in events]
    assert going_on == sorted(going_on, reverse=True)
    for event in events:
        assert event.first_at <= event.last_at <= now
        assert event.ended_at is None or event.last_at <= event.ended_at <= now
