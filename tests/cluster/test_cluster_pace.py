"""When a host is asked next: evenly while it lives, less and less while it is down."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.cluster.pace import LONGEST_WAIT_SECONDS, SLOT_SECONDS, Pace, places

PACE = Pace(start=100.0, phase=2.0, interval=5.0)


def test_a_healthy_host_is_asked_at_its_place_in_every_round():
    assert PACE.next_poll(102.0, 102.1, None, 0.5) == 107.0
    assert PACE.next_poll(107.0, 108.9, None, 0.5) == 112.0


def test_the_first_poll_comes_out_of_turn_and_the_next_is_not_much_later():
    assert PACE.next_poll(100.0, 100.1, None, 0.5) == 107.0  # 102 would be right behind it
    late = Pace(start=100.0, phase=4.0, interval=5.0)
    assert late.next_poll(100.0, 100.1, None, 0.5) == 104.0


def test_a_poll_that_takes_longer_than_a_round_leaves_the_missed_turns_out():
    assert PACE.next_poll(102.0, 119.0, None, 0.5) == 122.0


def test_a_host_that_began_to_fail_keeps_its_pace_for_five_minutes():
    assert PACE.next_poll(402.0, 402.0, 300.0, 0.5) == 407.0


@pytest.mark.parametrize(
    ("failing_for", "wait"), [(350.0, 10.0), (500.0, 40.0), (600.0, 60.0), (1e6, 60.0)]
)
def test_a_host_that_is_down_is_asked_less_and_less_but_every_minute(failing_for, wait):
    assert PACE.next_poll(1000.0, 1000.0, failing_for, 0.0) == 1000.0 + wait
    assert PACE.next_poll(1000.0, 1000.0, failing_for, 1.0) == pytest.approx(1000.0 + 0.8 * wait)


def test_a_round_longer_than_the_longest_wait_is_kept():
    slow = Pace(start=0.0, phase=0.0, interval=300.0)
    assert slow.next_poll(900.0, 900.5, 1e6, 0.5) == 1200.0


@given(
    phase=st.floats(0, 1, exclude_max=True),
    interval=st.floats(0.5, 3600),
    asked=st.floats(0, 1e6),
    took=st.floats(0, 60),
    failing_for=st.one_of(st.none(), st.floats(0, 1e6)),
    luck=st.floats(0, 1),
)
def test_the_next_poll_is_always_ahead_and_never_far(
    phase, interval, asked, took, failing_for, luck
):
    pace = Pace(start=0.0, phase=phase * interval, interval=interval)
    now = asked + took
    ahead = pace.next_poll(asked, now, failing_for, luck) - now
    assert 0 < ahead <= max(1.5 * interval, LONGEST_WAIT_SECONDS) + 1e-6


@pytest.mark.parametrize(("count", "interval"), [(1, 5.0), (4, 5.0), (63, 5.0), (1000, 5.0)])
def test_the_hosts_are_spread_evenly_over_the_round(count, interval):
    phases = list(places([f"h{n}" for n in range(count)], interval).values())
    assert phases[0] == 0.0
    assert phases == sorted(phases)
    for number, found in enumerate(phases):
        assert -1e-9 < interval * number / count - found < SLOT_SECONDS + 1e-9
    crowd = max(phases.count(slot) for slot in set(phases))
    assert crowd <= count / (interval / SLOT_SECONDS) + 1


def test_hosts_that_stay_keep_their_place_and_the_others_come_where_the_fewest_are():
    names = [f"h{number}" for number in range(100)]
    before = places(names, 5.0)
    stay = {name: place for name, place in before.items() if place < 2.5}
    after = places([*(f"new-{number}" for number in range(50)), *stay], 5.0, stay)
    assert {name: after[name] for name in stay} == stay
    slots = Counter(round(place / SLOT_SECONDS) for place in after.values())
    assert set(slots) == set(range(50))
    assert max(slots.values()) <= 3


def test_a_few_that_are_added_do_not_come_one_behind_the_other():
    added = places(["a", "b", "c", "d"], 5.0, {"a": 0.0})
    gaps = sorted(added.values())
    assert min(later - earlier for earlier, later in pairwise(gaps)) > 0.5
