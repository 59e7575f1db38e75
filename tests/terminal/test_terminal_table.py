from __future__ import annotations

from gpumon.terminal.table import Column, flow, table

COLUMNS = (
    Column("ID", right=True),
    Column("NAME", least=4),
    Column("EXTRA", leaves=2),
    Column("MORE", leaves=1),
)
ROWS = [["7", "alexandra", "x", "y"], ["11", "bo", "xx", "yy"]]


def test_columns_are_aligned_and_as_wide_as_they_need_to_be() -> None:
    assert table(COLUMNS, ROWS, 80) == [
        "ID  NAME       EXTRA  MORE",
        " 7  alexandra  x      y",
        "11  bo         xx     yy",
    ]


def test_names_are_cut_before_a_column_leaves() -> None:
    assert table(COLUMNS, ROWS, 24) == [
        "ID  NAME     EXTRA  MORE",
        " 7  alexan~  x      y",
        "11  bo       xx     yy",
    ]


def test_the_column_that_matters_least_leaves_first() -> None:
    assert table(COLUMNS, ROWS, 20) == [
        "ID  NAME       MORE",
        " 7  alexandra  y",
        "11  bo         yy",
    ]
    assert table(COLUMNS, ROWS, 12) == ["ID  NAME", " 7  alexand~", "11  bo"]


def test_columns_that_must_stay_do_so_even_without_room() -> None:
    assert table(COLUMNS, ROWS, 3) == ["ID  NAME", " 7  ale~", "11  bo"]


def test_a_table_without_rows_has_its_titles() -> None:
    assert table(COLUMNS, [], 80) == ["ID  NAME  EXTRA  MORE"]


def test_flowing_text_breaks_between_its_parts() -> None:
    assert flow(["one two", "three", "four"], 14, gap="  ", indent="  ") == [
        "one two  three",
        "  four",
    ]
    assert flow(["a", "bb", "ccc"], 4) == ["a bb", "ccc"]


def test_a_part_wider_than_a_line_stands_on_its_own() -> None:
    assert flow(["a", "bbbbbbbb", "c"], 4) == ["a", "bbbbbbbb", "c"]


def test_nothing_flows_into_no_lines() -> None:
    assert flow([], 10) == []
