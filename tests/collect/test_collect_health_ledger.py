"""What happened to one GPU: entries that begin, go on, end and are forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpumon.collect.health.ledger import DAY, DRIVER, HOUR, KERNEL_LOG, MOST_EVENTS, Ledger
from gpumon.collect.health.times import Shift
from gpumon.units import clock

T = 1_764_000_000.0


def xid(ledger, code=79, *, at=T, source=DRIVER, level="fault"):
    ledger.happened("xid", code, level, f"XID {code}", "reset it", at=at, source=source)


def state(ledger, now, *, kind="ecc", level="fault", count=None):
    ledger.holds(kind, level, "broken", "mend it", now=now, count=count)


def only(ledger, now):
    ledger.tidy(now)
    (event,) = ledger.events(now)
    return event


def test_what_happened_goes_on_for_an_hour_and_keeps_its_times_for_a_day():
    ledger = Ledger()
    xid(ledger)
    assert only(ledger, T + HOUR - 1).ended_at is None
    event = only(ledger, T + HOUR)
    assert (event.first_at, event.last_at, event.count, event.ended_at) == (T, T, 1, T + HOUR)
    assert only(ledger, T + HOUR + DAY).ended_at == T + HOUR
    ledger.tidy(T + HOUR + DAY + 1)
    assert ledger.events(T) == []


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
    ledger.over("ecc", T - 5)
    state(ledger, T)
    state(ledger, T + 9 * HOUR)
    event = only(ledger, T + 9 * HOUR)
    assert (event.count, event.last_at, event.ended_at, event.since) == (1, T, None, T)
    ledger.over("ecc", T + 10 * HOUR)
    event = only(ledger, T + 11 * HOUR)
    assert (event.ended_at, event.since) == (T + 10 * HOUR, None)
    state(ledger, T + 12 * HOUR)
    event = only(ledger, T + 12 * HOUR)
    assert (event.count, event.first_at, event.last_at) == (2, T, T + 12 * HOUR)
    assert (event.ended_at, event.since) == (None, T + 12 * HOUR)


def test_what_is_there_at_the_first_look_has_begun_nobody_knows_when():
    ledger = Ledger()
    state(ledger, T, count=2)
    state(ledger, T + 9 * HOUR, count=2)
    event = only(ledger, T + 9 * HOUR)
    assert (event.count, event.first_at, event.last_at, event.since) == (2, None, None, None)
    state(ledger, T + 10 * HOUR, count=3)
    event = only(ledger, T + 10 * HOUR)
    assert (event.first_at, event.last_at, event.since) == (None, T + 10 * HOUR, None)
    ledger.over("ecc", T + 11 * HOUR)
    state(ledger, T + 12 * HOUR, count=1)
    event = only(ledger, T + 12 * HOUR)
    assert (event.first_at, event.last_at, event.since) == (None, T + 12 * HOUR, T + 12 * HOUR)


def test_what_could_not_be_read_in_between_has_begun_nobody_knows_when():
    ledger = Ledger()
    ledger.over("ecc", T)
    ledger.unread("ecc", T + 5)
    state(ledger, T + 10)
    assert only(ledger, T + 10).first_at is None


def test_a_memory_that_comes_late_knows_when_what_was_found_began():
    before, ours = Ledger(), Ledger()
    before.over("ecc", T - 5)
    state(before, T, count=2)
    state(ours, T + HOUR, count=2)
    ours.merge(before)
    event = only(ours, T + HOUR)
    assert (event.first_at, event.last_at, event.since) == (T, T, T)


def test_errors_that_stopped_for_an_hour_and_came_again_go_on_since_then():
    """The kernel log may tell all of them at once."""
    ledger = Ledger()
    for at in (T, T + 1800, T + 3 * HOUR):
        xid(ledger, at=at, source=KERNEL_LOG)
    event = only(ledger, T + 3 * HOUR)
    assert (event.first_at, event.since) == (T, T + 3 * HOUR)


def test_a_state_with_a_number_has_that_as_its_count():
    ledger = Ledger()
    ledger.over("ecc", T - 5)
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
    assert ledger.events(T) == []


def test_a_new_start_of_the_machine_ends_what_happened_and_what_a_reset_ends():
    """Volatile counts, a wait for a reset and a loss of contact are of the boot they were read in.

    Were they kept until a reading says "over", a driver that no longer tells them would keep them
    for ever. Memory that can't be replaced is the same after a start: it stays, marked as not read.
    """
    ledger = Ledger()
    xid(ledger)
    for kind in ("ecc", "lost", "row_remap", "retired_pages", "recovery"):
        state(ledger, T, kind=kind)
    state(ledger, T, kind="row_remap_failure")
    state(ledger, T, kind="missing")
    ledger.reset(T + 60)
    for kind in ("ecc", "row_remap_failure"):
        ledger.unread(kind, T + 90)
    ledger.tidy(T + 100)
    ended = {event.kind: event.ended_at for event in ledger.events(T + 100)}
    assert {kind for kind, at in ended.items() if at is None} == {"row_remap_failure", "missing"}
    assert {at for at in ended.values() if at is not None} == {T + 60}
    state(ledger, T + 120, count=2)  # and goes on again where a reading says so
    assert {e.kind: e.ended_at for e in ledger.events(T + 120)}["ecc"] is None


def test_a_state_that_is_not_read_any_more_says_so_until_it_is_or_somebody_knows():
    ledger = Ledger()
    state(ledger, T, kind="row_remap_failure")
    ledger.unread("row_remap_failure", T + 60)
    ledger.unread("row_remap_failure", T + 120)
    assert only(ledger, T + 120).text == f"broken (not readable since {clock(T + 60, T + 120)})"
    state(ledger, T + 180, kind="row_remap_failure")
    assert only(ledger, T + 180).text == "broken"
    ledger.forget_unread()
    assert only(ledger, T + 180).text == "broken"
    ledger.unread("row_remap_failure", T + 240)
    ledger.forget_unread()
    assert ledger.events(T + 240) == []


@given(st.floats(-9 * DAY, 9 * DAY).filter(lambda step: abs(step) > 1))
def test_a_clock_that_is_set_changes_no_age(step):
    ledger = Ledger()
    xid(ledger, at=T - 3000)
    ledger.over("ecc", T - 200)
    state(ledger, T - 100)
    boot = T - 5000
    shift = Shift.between(boot, boot + step, 5000.0)
    assert shift is not None
    ledger.shift(shift)
    ledger.tidy(T + step)
    for event, age in zip(ledger.events(T + step), (100, 3000), strict=True):
        assert event.ended_at is None
        assert abs(T + step - event.last_at - age) < 0.01
    assert only_xid(ledger, T + step + 601).ended_at is not None


def only_xid(ledger, now):
    ledger.tidy(now)
    (event,) = (event for event in ledger.events(now) if event.kind == "xid")
    return event


def test_times_of_another_boot_are_not_moved_with_the_clock():
    shift = Shift.between(T, T + HOUR, 600.0)
    assert [shift(at) for at in (T - 5, T + 300, T + 700)] == [T - 5, T + HOUR + 300, T + 700]
    assert Shift.between(T, T + 0.5, 600.0) is None


def test_a_time_that_is_still_to_come_is_not_known():
    """The clock was right in the boot before and is behind now: that is no time at all."""
    ledger = Ledger()
    xid(ledger, at=T)
    xid(ledger, 13, at=T, level="application")
    ledger.over("row_remap_failure", T - 5)
    state(ledger, T, kind="row_remap_failure")
    now = T - 9 * HOUR
    ledger.reset(now - 60)
    ledger.tidy(now)
    (event,) = ledger.events(now)
    assert (event.kind, event.first_at, event.last_at, event.ended_at) == (
        "row_remap_failure",
        None,
        None,
        None,
    )
    ledger.tidy(T + 60)  # when the clock is right again, all is told with its times
    assert {e.kind: e.first_at for e in ledger.events(T + 60)} == {
        "row_remap_failure": T,
        "xid": T,
    }


def test_what_happened_at_no_possible_time_does_not_go_on_for_ever():
    ledger = Ledger()
    xid(ledger, at=T + 1000 * DAY)
    ledger.tidy(T)
    assert ledger.events(T) == []


def test_a_moment_ahead_is_now():
    ledger = Ledger()
    xid(ledger, at=T + 2)
    assert only(ledger, T).last_at == T


def test_two_ledgers_of_one_gpu_are_one_that_counts_nothing_twice():
    ours, theirs = Ledger(), Ledger()
    for ledger in (ours, theirs):
        xid(ledger, source=KERNEL_LOG, at=T)
    xid(theirs, source=DRIVER, at=T + 1)
    xid(theirs, source=DRIVER, at=T + 5)
    xid(theirs, 48)
    theirs.over("ecc", T - 200)
    state(theirs, T - 100)
    state(ours, T)
    theirs.over("ecc", T + 1)
    ours.merge(theirs)
    found = {(e.kind, e.code): (e.count, e.first_at, e.ended_at) for e in ours.events(T + 9)}
    assert found == {
        ("xid", 79): (2, T, None),
        ("xid", 48): (1, T, None),
        ("ecc", None): (1, T - 100, None),  # whoever saw it last says whether it goes on
    }


def test_what_goes_on_comes_first_then_the_worst_then_the_newest():
    ledger = Ledger()
    xid(ledger, 1, at=T - 5 * HOUR)
    xid(ledger, 2, level="warning")
    xid(ledger, 3)
    xid(ledger, 4, at=T + 1)
    xid(ledger, 5, level="application")
    ledger.tidy(T + 2)
    assert [event.code for event in ledger.events(T + 60)] == [4, 3, 2, 1, 5]


@given(st.lists(st.tuples(st.integers(0, 60), st.floats(0, 2 * DAY), st.booleans()), max_size=80))
def test_the_list_stays_short_and_what_goes_on_is_kept_before_what_is_over(happened):
    ledger = Ledger()
    for code, seconds, fault in happened:
        xid(ledger, code, at=T + seconds, level="fault" if fault else "application")
    now = T + 2 * DAY
    ledger.tidy(now)
    events = ledger.events(now)
    assert len(events) <= MOST_EVENTS
    going_on = [event.ended_at is None for event in events]
    assert going_on == sorted(going_on, reverse=True)
    for event in events:
        assert event.first_at <= event.last_at <= now
        assert event.ended_at is None or event.last_at <= event.ended_at <= now
