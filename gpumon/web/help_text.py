"""The help as text: what curl gets from `/help`. 100 columns, ASCII only."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.web.help_page import Help
from gpumon.web.text import plain, table, wrapped

_FIRST = (
    "Which GPU is free, who holds what and since when, what is wasted or broken. What is not known "
    "is shown as - or ?, and is never zero, idle or free."
)
_WORDS = (
    'Words are joined by "and", those about GPUs must fit one and the same GPU: '
    "curl 'http://SERVER/?q=free+4x+h100'"
)
_ENDINGS = "Exit codes of gpumon's commands"


def render(told: Help) -> str:
    """Return the help as text; every line ends in a line feed."""
    signs = [[_sign(one.state, one.sign), one.state, plain(one.means, 300)] for one in told.states]
    blocks = [
        wrapped(_FIRST),
        table(["SIGN", "GPU", "MEANS"], signs, [4, 8]),
        _pairs("HOST", told.hosts),
        _pairs("LIST", told.waste),
        [*wrapped(_WORDS), *_pairs("WORD", told.words)],
        _pairs("ADDRESS", told.forms),
        [_ENDINGS, *_pairs("CODE", told.endings)],
    ]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _sign(state: str, sign: str) -> str:
    """Return the sign of a state in text, where the page's own is empty or no ASCII."""
    return {"free": "__", "drained": "--", "fault": "!!"}.get(state, sign)


def _pairs(heading: str, pairs: Sequence[tuple[str, str]]) -> list[str]:
    rows = [[plain(first, 28), plain(means, 300)] for first, means in pairs]
    return table([heading, "MEANS"], rows, [28])
