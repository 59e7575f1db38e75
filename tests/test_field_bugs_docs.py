"""docs/field-bugs.md: every known bug of the field has its row, and every test it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
TEXT = (TESTS.parent / "docs" / "field-bugs.md").read_text()
LAYERS = {"N": 29, "P": 20, "R": 17, "S": 7, "A": 9, "W": 12, "I": 11}
IDS = [f"{layer}{n:02}" for layer, count in LAYERS.items() for n in range(1, count + 1)]


def rows() -> dict[str, list[str]]:
    """Return the cells of each row by its id."""
    found: dict[str, list[str]] = {}
    for line in TEXT.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and re.fullmatch(r"[A-Z]\d\d", cells[0]):
            assert cells[0] not in found, f"{cells[0]} has two rows"
            found[cells[0]] = cells[1:]
    return found


ROWS = rows()
NAMED = sorted({(file, name) for file, name in re.findall(r"`(\w+\.py)::(\w+)`", TEXT)})


@cache
def functions(file: str) -> set[str]:
    """Return the names of the functions in the one test file of this name."""
    [path] = TESTS.rglob(file)
    tree = ast.parse(path.read_bytes())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def test_every_bug_has_its_row_in_order():
    assert list(ROWS) == IDS


def test_every_row_says_what_goes_wrong_what_gpumon_does_and_which_test_shows_it():
    for bug, cells in ROWS.items():
        assert len(cells) == 3, bug
        assert all(cells), bug
        assert re.search(r"`\w+\.py::test_\w+`", cells[2]), bug


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_every_test_that_is_named_exists(file: str, name: str):
    assert name in functions(file)


def test_nothing_that_looks_like_a_test_escapes_the_check():
    assert len(NAMED) >= len(IDS)
    assert len(re.findall(r"::test_|\.py\b", TEXT)) == 2 * len(re.findall(r"`\w+\.py::\w+`", TEXT))
