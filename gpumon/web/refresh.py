"""`?refresh=SECONDS`: a page that reloads itself, for those who ask for it."""

from __future__ import annotations

import re

LEAST_SECONDS, MOST_SECONDS = 2, 3600


def refresh_seconds(value: str) -> int | None:
    """Return the bounded number in `value`; None where it is no whole number, or 0."""
    if not re.fullmatch(r"[0-9]{1,9}", value) or int(value) == 0:
        return None
    return max(LEAST_SECONDS, min(MOST_SECONDS, int(value)))
