"""Markdown tables, and figures as they stand in them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Table:
    """A table with a title, and notes below it."""

    title: str
    header: list[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *cells: object) -> None:
        """Add a row; a missing figure (None) is a dash."""
        if len(cells) != len(self.header):
            raise ValueError(f"{len(self.header)} cells were expected, found {len(cells)}")
        self.rows.append(["-" if cell is None else str(cell) for cell in cells])

    def markdown(self) -> str:
        """Return the table as Markdown."""
        lines = [f"### {self.title}", "", _line(self.header), _line(["---"] * len(self.header))]
        lines += [_line(row) for row in self.rows]
        if self.notes:
            lines += ["", *(f"* {note}" for note in self.notes)]
        return "\n".join(lines) + "\n"


@dataclass
class Budget:
    """One line of the budgets: what was promised, what was found."""

    what: str
    promised: str
    found: str
    kept: bool


@dataclass
class Result:
    """What one section has measured."""

    tables: list[Table] = field(default_factory=list)
    budgets: list[Budget] = field(default_factory=list)


def budget_table(budgets: Sequence[Budget]) -> Table:
    """Return all budgets as one table."""
    table = Table("Budgets", ["what", "budget", "found", "kept"])
    for budget in budgets:
        table.add(budget.what, budget.promised, budget.found, "yes" if budget.kept else "**no**")
    return table


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Return the median with the range: "1.92 (1.75-2.31)"; a dash where nothing was measured."""
    if not values:
        return "-"
    median, low, high = statistics.median(values), min(values), max(values)
    return f"{median:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def ratio(values: Sequence[float], base: Sequence[float]) -> str:
    """Return the ratio of two medians: "1.9x"; a dash where one is missing."""
    if not values or not base or statistics.median(base) == 0:
        return "-"
    found = statistics.median(values) / statistics.median(base)
    return f"{found:.0f}x" if found >= 100 else f"{found:.1f}x" if found >= 10 else f"{found:.2f}x"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
