"""A reader's own rows, marked by a style sheet that is the reader's: the pages stay everybody's."""

from __future__ import annotations

from gpumon.web.links import segment


def own_style(name: str | None) -> str:
    """Return the style sheet that marks what `name` holds; None: nobody, so nothing is marked.

    Every link to a user's page ends in that user's name. The mark is a border and a word, so it
    does not hang on colour.
    """
    if name is None:
        return ""
    # Letters and digits apart, every character is escaped, so nothing can end the text in CSS.
    safe = "".join(
        sign if sign.isascii() and sign.isalnum() else f"\\{ord(sign):x} " for sign in segment(name)
    )
    mine = f'a[href$="/user/{safe}"]'
    return (
        f'{mine}{{font-weight:700}}{mine}::after{{content:" (me)"}}\n'
        f":is(.users>tbody,.waste>tbody>tr,.processes>tbody>tr,.hosts>tbody>tr):has({mine})"
        "{box-shadow:inset 3px 0 var(--link)}\n"
    )
