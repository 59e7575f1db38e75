"""The CSV of nvidia-smi: columns by their names, never by their order. Nothing in it is trusted."""

from __future__ import annotations

import re

import msgspec

from gpumon.text import clean

_UNIT = re.compile(r"\s*\[[^\]]*\]\Z")
_NUMBER = re.compile(r"([-+]?[0-9]{1,18}(?:[.,][0-9]{1,9})?)\s*(?:%|MiB|MHz|W|C)?\Z")
_WORDS = {
    "n/a": "not available",
    "not supported": "not supported",
    "insufficient permissions": "hidden from this login (insufficient permissions)",
}
MOST_ROWS = 16384
MOST_LINES = 8
"""More words of nvidia-smi than these are not kept."""

_NO_PROCESSES = "no running processes found"


class Table(msgspec.Struct, kw_only=True):
    """Rows under the names of their columns, and the lines that are no row."""

    header: list[str] = []
    """Names without their units: "memory.total"; empty where there is no table."""
    rows: list[dict[str, str]] = []
    lines: list[str] = []
    """Words of nvidia-smi between the rows, cleaned."""
    says_none: bool = False
    """It says in words that no process runs."""


def read_table(text: str, known: frozenset[str], free_text: str, most: int = MOST_ROWS) -> Table:
    """Take CSV apart.

    The header is the first line that holds more of `known` names than other words. `free_text`
    names the column that may hold commas itself: others write what stands there. Reading ends with
    the first row beyond `most`.
    """
    table = Table()
    for line in text.split("\n"):
        line = line.strip()
        if not line:
            continue
        if line.lower() == _NO_PROCESSES:
            table.says_none = True
            continue
        if not table.header:
            names = [_UNIT.sub("", part).strip().lower() for part in line.split(", ")]
            if 2 * sum(name in known for name in names) > len(names):
                table.header = names
                continue
        row = _row(line, table.header, free_text)
        if row is None:
            if len(table.lines) < MOST_LINES:
                table.lines.append(clean(line, 200))
            continue
        table.rows.append(row)
        if len(table.rows) > most:
            break
    return table


def _row(line: str, header: list[str], free_text: str) -> dict[str, str] | None:
    parts = [part.strip() for part in line.split(", ")]
    extra = len(parts) - len(header)
    if not header or extra < 0:
        return None
    if extra:
        if free_text not in header:
            return None
        at = header.index(free_text)
        parts[at : at + extra + 1] = [", ".join(parts[at : at + extra + 1])]
    return dict(zip(header, parts, strict=True))


def number(text: str) -> float | None:
    """Return a number, with a decimal point or comma, with or without its unit; None for words."""
    match = _NUMBER.match(text)
    return None if match is None else float(match[1].replace(",", "."))


def why_not(text: str) -> str:
    """Return in words why there is no value: for "[Not Supported]" and the like."""
    inner = text.strip().strip("[]").strip().lower()
    return _WORDS.get(inner) or clean(inner, 60) or "nothing was told"
