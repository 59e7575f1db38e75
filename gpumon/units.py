"""How numbers, times and names are written on every face: page, text and terminal.

Unknown is "-", always; it is never 0. Nothing here looks at a clock or a terminal.
"""

from __future__ import annotations

import math
import re
import time
import unicodedata

UNKNOWN = "-"

CLOCK_SKEW_SECONDS = 60
"""Two machines' clocks may differ by this much before a time in the future is nonsense."""

_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_MOST_DAYS = 9999
# Not strftime's %b, which follows the locale.
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def duration(seconds: float | None) -> str:
    """Return a length of time in at most six characters: "45s", "12m", "2h05", "4d".

    Rounded down. Hours and minutes go on until two days, so that "1d" never hides half a day. A
    start slightly in the future, by another machine's clock, is "0s"; one far in the future is
    unknown.
    """
    if seconds is None or not math.isfinite(seconds) or seconds < -CLOCK_SKEW_SECONDS:
        return UNKNOWN
    whole = max(0, int(seconds))
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02}"
    days = whole // _DAY
    return f"{days}d" if days <= _MOST_DAYS else f">{_MOST_DAYS}d"


def mib(value: float | None) -> str:
    """Return MiB in a form for people: "0M", "512M", "70.2G", "1.5T". The units are binary."""
    if value is None or not math.isfinite(value) or value < 0:
        return UNKNOWN
    if round(value) < 1024:
        return f"{round(value)}M"
    for unit in "GTP":
        value /= 1024
        if round(value, 1) < 1024:
            return f"{value:.1f}{unit}"
    return ">999P"


def clock(epoch: float | None, now: float | None = None) -> str:
    """Return a time of day in the local zone.

    With `now`, as short as it stays clear: "14:02" today, "27 Nov 14:02" this year, else
    "2024-11-27 14:02". Without it everything: "2024-11-27 14:02:11".
    """
    if epoch is None:
        return UNKNOWN
    try:
        then = time.localtime(epoch)
        today = None if now is None else time.localtime(now)
    except (OverflowError, ValueError, OSError):
        # Outside of what the C library's calendar holds; also nan and infinity.
        return UNKNOWN
    if today is None:
        return time.strftime("%Y-%m-%d %H:%M:%S", then)
    if (then.tm_year, then.tm_yday) == (today.tm_year, today.tm_yday):
        return time.strftime("%H:%M", then)
    if then.tm_year == today.tm_year:
        return f"{then.tm_mday} {_MONTHS[then.tm_mon - 1]} {then.tm_hour:02}:{then.tm_min:02}"
    return time.strftime("%Y-%m-%d %H:%M", then)


NaturalKey = tuple[tuple[str | tuple[int, str], ...], str]

_DIGITS = re.compile("([0-9]+)")


def natural_key(text: str) -> NaturalKey:
    """Return a key that sorts as people count: gpu-2 before gpu-10, whatever the case."""
    parts: list[str | tuple[int, str]] = []
    # split() with a group gives text and digits in turn, so like always meets like.
    for place, part in enumerate(_DIGITS.split(text)):
        if place % 2:
            digits = part.lstrip("0")
            parts.append((len(digits), digits))
        else:
            parts.append(part.casefold())
    return tuple(parts), text


def display_width(text: str) -> int:
    """Return how many columns of a terminal `text` takes: wide letters two, accents none."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def cut(text: str, width: int) -> str:
    """Return `text` in at most `width` columns; where something was cut off, it ends in "~"."""
    if display_width(text) <= width:
        return text
    if width < 1:
        return ""
    kept, used = [], 0
    for letter in text:
        used += _columns(letter)
        if used > width - 1:
            break
        kept.append(letter)
    return "".join(kept) + "~"


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return `text` cut or filled with blanks to exactly `width` columns; `right` aligns it so."""
    text = cut(text, width)
    blanks = " " * (width - display_width(text))
    return blanks + text if right else text + blanks
