from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.units import clock, cut, display_width, duration, mib, natural_key, pad

MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0s"),
        (0.9, "0s"),
        (59.99, "59s"),
        (MINUTE, "1m"),
        (HOUR - 1, "59m"),
        (HOUR, "1h00"),
        (2 * HOUR + 5 * MINUTE, "2h05"),
        (2 * DAY - 1, "47h59"),
        (2 * DAY, "2d"),
        (4.9 * DAY, "4d"),
        (9999 * DAY, "9999d"),
        (1e300, ">9999d"),
        (-5, "0s"),
        (-3600, "-"),
        (math.inf, "-"),
        (math.nan, "-"),
    ],
)
def test_a_duration_is_short_and_rounded_down(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@given(st.floats() | st.integers())
def test_a_duration_takes_at_most_six_characters(seconds: float) -> None:
    assert 1 <= len(duration(seconds)) <= 6


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0M"),
        (512, "512M"),
        (1023, "1023M"),
        (1024, "1.0G"),
        (71_885, "70.2G"),
        (81_559, "79.6G"),
        (1024 * 1024 - 1, "1.0T"),
        (1024 * 1024 * 3 // 2, "1.5T"),
        (2**30, "1.0P"),
        (2**63, ">999P"),
        (-1, "-"),
        (math.nan, "-"),
    ],
)
def test_memory_is_written_for_people(value: float | None, text: str) -> None:
    assert mib(value) == text


@given(st.floats() | st.integers(min_value=-(2**63), max_value=2**64))
def test_memory_takes_at_most_seven_characters(value: float) -> None:
    assert 1 <= len(mib(value)) <= 7


@pytest.fixture
def in_berlin() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


NOON = 1_763_031_600.0
"""2025-11-13 12:00:00 in Berlin."""


@pytest.mark.usefixtures("in_berlin")
def test_a_time_is_local_and_as_short_as_it_stays_clear() -> None:
    assert clock(NOON) == "2025-11-13 12:00:00"
    assert clock(NOON, NOON + 6 * HOUR) == "12:00"
    assert clock(NOON, NOON + 13 * HOUR) == "13 Nov 12:00"
    assert clock(NOON, NOON + 60 * DAY) == "2025-11-13 12:00"


@pytest.mark.parametrize("epoch", [None, math.nan, math.inf, -math.inf, 1e30, -1e30])
def test_a_time_that_no_calendar_holds_is_unknown(epoch: float | None) -> None:
    assert clock(epoch) == "-"
    assert clock(epoch, NOON) == "-"
    assert clock(0.0, 1e30) == "-"


def test_names_sort_as_people_count() -> None:
    names = ["gpu-10", "gpu-2", "GPU-1", "gpu-1a", "gpu-1", "b", "10", "9", ""]
    assert sorted(names, key=natural_key) == [
        "",
        "9",
        "10",
        "b",
        "GPU-1",
        "gpu-1",
        "gpu-1a",
        "gpu-2",
        "gpu-10",
    ]


def test_leading_zeros_do_not_part_neighbours() -> None:
    assert sorted(["n3", "n002", "n2", "n01"], key=natural_key) == ["n01", "n002", "n2", "n3"]


@given(st.lists(st.text(max_size=12)))
def test_any_names_can_be_sorted_and_keep_their_order_however_they_came(names: list[str]) -> None:
    once = sorted(names, key=natural_key)
    names.reverse()
    assert sorted(names, key=natural_key) == once


def test_a_number_longer_than_pythons_limit_sorts_too() -> None:
    assert natural_key("9" * 5000) < natural_key("1" * 5001)


def test_wide_letters_count_twice_and_accents_not_at_all() -> None:
    assert display_width("abc") == 3
    assert display_width("漢字") == 4
    assert display_width("e\u0301") == 1


def test_what_is_cut_ends_in_a_tilde() -> None:
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdef", 5) == "abcd~"
    assert cut("漢字漢字", 4) == "漢~"
    assert cut("abc", 1) == "~"
    assert cut("abc", 0) == ""


def test_padding_aligns_by_columns_of_the_terminal() -> None:
    assert pad("ab", 4) == "ab  "
    assert pad("ab", 4, right=True) == "  ab"
    assert pad("漢", 4) == "漢  "
    assert pad("abcdef", 4) == "abc~"


@given(st.text(max_size=40), st.integers(min_value=0, max_value=30))
def test_padded_text_has_exactly_the_width(text: str, width: int) -> None:
    assert display_width(pad(text, width)) == width
    assert display_width(cut(text, width)) <= width
