"""Foreign text made harmless for HTML."""

from __future__ import annotations

from bottle import html_escape

from gpumon.text import clean

LONGEST_TEXT = 1000


def escape(text: str) -> str:
    """Return foreign text for HTML, between tags or in a quoted attribute.

    What is not printable was taken out where it entered; this holds for what slipped through.
    """
    escaped: str = html_escape(text if text.isprintable() else clean(text, LONGEST_TEXT))
    return escaped
