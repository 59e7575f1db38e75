"""Where readings come in by themselves: what all such entrances have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import bottle


class Entrance(Protocol):
    """Routes that take something in, and how large it may be."""

    def mount(self, app: bottle.Bottle) -> None:
        """Add the routes."""

    def body_limit(self, path: str, query: str, authorization: str | None) -> int | None:
        """Return how large a body may be, before it is read; None: the request is not for here.

        A request with a larger one comes without its body, and `wsgi.TOO_LARGE` in its environment.
        """


def body_limit_of(
    entrances: Sequence[Entrance], path: str, query: str, authorization: str | None
) -> int | None:
    """Return what the first entrance says that the request is for; None: none of them."""
    for entrance in entrances:
        limit = entrance.body_limit(path, query, authorization)
        if limit is not None:
            return limit
    return None
