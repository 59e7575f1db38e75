"""What XID numbers mean."""

from __future__ import annotations

import pytest

from gpumon.collect.health.xids import describe

APPLICATION = [8, 13, 31, 32, 39, 43, 45, 68, 69, 83, 105, 126, 135, 137]
HARDWARE = [46, 48, 54, 61, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 144, 150, 158]
ATTENTION = [63, 92, 94, 121, 154, 157]


@pytest.mark.parametrize(
    ("codes", "level"), [(APPLICATION, "application"), (HARDWARE, "fault"), (ATTENTION, "warning")]
)
def test_errors_of_programs_are_told_from_those_of_the_gpu(codes, level):
    assert {code: describe(code).level for code in codes} == dict.fromkeys(codes, level)


def test_an_unknown_number_is_no_fault_and_says_where_to_look():
    for code in (0, 7, 200, 10**9):
        assert describe(code).level == "warning"
        assert "does not know" in describe(code).text
        assert "catalog" in describe(code).advice


def test_each_says_what_it_is_and_what_to_do_in_one_line():
    for code in range(200):
        xid = describe(code)
        assert 0 < len(xid.text) <= 90
        assert 0 < len(xid.advice) <= 200
        assert not xid.text.endswith(".")
        assert not xid.advice.endswith(".")
