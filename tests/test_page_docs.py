"""docs/page.md: each check of the page has its row, and every test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

from test_field_bugs_docs import functions

TEXT = (Path(__file__).parent.parent / "docs" / "page.md").read_text()
CHECKS = 15


def test_every_check_has_a_row_with_tests_that_exist():
    rows = re.findall(r"^\| (\d+) \| (.+) \| (.+) \|$", TEXT, re.M)
    assert [int(number) for number, _, _ in rows] == list(range(1, CHECKS + 1))
    for number, _, tests in rows:
        named = re.findall(r"`(\w+\.py)::(test_\w+)`", tests)
        assert len(named) == tests.count("::") > 0, number
        for file, name in named:
            assert name in functions(file), f"check {number}: {file}::{name}"
