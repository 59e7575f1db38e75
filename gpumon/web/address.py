"""What an address asks for beside its path: filter, order, view, colours, refresh.

Everything that can be chosen on a page stands in its address, so that it can be sent to others and
works without scripts. Values that mean nothing are left out, and the page says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from gpumon.cluster.order import is_order
from gpumon.cluster.query import EVERYTHING, Query, parse
from gpumon.text import clean
from gpumon.web.refresh import refresh_seconds

VIEWS = ("rows", "map")
COLORS = ("states", "use")
LISTS = ("users", "waste")

PARAMETERS = ("q", "sort", "view", "page", "colors", "all", "refresh")
"""What may be chosen."""

MOST_PAGES = 100_000


class Address(NamedTuple):
    """The choices of one request; the empty value of each is the page's own."""

    query: Query = EVERYTHING
    order: str = ""
    view: str = ""
    page: int = 1
    colors: str = ""
    all: str = ""
    """The list that is wanted whole: "users" or "waste"."""
    refresh: int | None = None
    remarks: tuple[str, ...] = ()
    """What was asked for and isn't known, each a sentence."""

    def but(self, **changes: str) -> str:
        """Return the query string ("?q=free&sort=-cpu", or "") of this address with `changes`.

        The number of the page is kept only by its own links: another order or filter starts anew.
        """
        values = {
            "q": self.query.text,
            "sort": self.order,
            "view": self.view,
            "page": "",
            "colors": self.colors,
            "all": self.all,
            "refresh": "" if self.refresh is None else str(self.refresh),
            **changes,
        }
        kept = {name: value for name, value in values.items() if value}
        return f"?{urlencode(kept, errors='replace')}" if kept else ""

    def hidden(self) -> list[tuple[str, str]]:
        """Return what the form of the filter keeps: name and value of its hidden fields."""
        kept = (
            ("sort", self.order),
            ("view", self.view),
            ("colors", self.colors),
            ("refresh", "" if self.refresh is None else str(self.refresh)),
        )
        return [(name, value) for name, value in kept if value]


def read_address(values: Mapping[str, str], remarks: Sequence[str] = ()) -> Address:
    """Return the choices in the parameters of a request. Nothing that stands there is an error.

    `remarks` is what there was to say before: how they were written.
    """
    remarks = list(remarks)

    def one_of(name: str, known: tuple[str, ...]) -> str:
        value = values.get(name, "")
        if not value or value in known:
            return value
        remarks.append(f"{name}={clean(value, 40)} is not known: try {' or '.join(known)}.")
        return ""

    order = values.get("sort", "")
    if order and not is_order(order):
        remarks.append(f"There is no column {clean(order, 40)!r} to sort by.")
        order = ""
    page = values.get("page", "")
    number = int(page) if page.isascii() and page.isdigit() and len(page) < 7 else 0
    if page and not 1 <= number <= MOST_PAGES:
        remarks.append(f"There is no page {clean(page, 20)!r}.")
    return Address(
        query=parse(values.get("q", "")),
        order=order,
        view=one_of("view", VIEWS),
        page=max(1, number),
        colors=one_of("colors", COLORS),
        all=one_of("all", LISTS),
        refresh=refresh_seconds(values.get("refresh", "")),
        remarks=tuple(remarks),
    )
