"""Tables for a terminal of any width: columns leave one by one before a number gets cut."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpumon.units import display_width, pad

GAP = "  "


class Column(msgspec.Struct, frozen=True):
    """One column of a table."""

    title: str
    right: bool = False
    """Align to the right, as for numbers."""
    least: int | None = None
    """It may be cut down to this width; None: it stays whole or goes."""
    leaves: int = 0
    """Where room is short, the highest goes first; 0 stays."""


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return the titles and the rows as lines of `width` columns of the terminal.

    They are wider where not even those columns fit that must stay.
    """
    titles = [column.title for column in columns]
    natural = [
        max(display_width(row[place]) for row in (titles, *rows)) for place in range(len(columns))
    ]
    places = _places(columns, natural, width)
    widths = _shrunk(columns, natural, places, width)
    return [
        GAP.join(pad(row[p], widths[p], right=columns[p].right) for p in places).rstrip()
        for row in (titles, *rows)
    ]


def _places(columns: Sequence[Column], natural: list[int], width: int) -> list[int]:
    """Return which columns stay, so that the rest can be made to fit."""
    places = list(range(len(columns)))
    while _total([_least(columns[p], natural[p]) for p in places]) > width:
        last = max(places, key=lambda p: columns[p].leaves)
        if columns[last].leaves == 0:
            break
        places.remove(last)
    return places


def _shrunk(
    columns: Sequence[Column], natural: list[int], places: list[int], width: int
) -> dict[int, int]:
    """Return the width of each column that stays; the widest of those that may gives way first."""
    widths = {p: natural[p] for p in places}
    while _total(list(widths.values())) > width:
        soft = [p for p in places if widths[p] > _least(columns[p], natural[p])]
        if not soft:
            break
        widths[max(soft, key=lambda p: widths[p])] -= 1
    return widths


def _least(column: Column, natural: int) -> int:
    return natural if column.least is None else min(natural, column.least)


def _total(widths: list[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def flow(parts: Sequence[str], width: int, *, gap: str = " ", indent: str = "") -> list[str]:
    """Return `parts` one after the other, on as many lines as it takes; all but the first indented.

    A part that is wider than a line has one of its own.
    """
    lines: list[str] = []
    line = ""
    for part in parts:
        longer = line + gap + part if line.strip() else line + part
        if line.strip() and display_width(longer) > width:
            lines.append(line)
            longer = indent + part
        line = longer
    return [whole for whole in [*lines, line] if whole.strip()]
