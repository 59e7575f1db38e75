"""Short names of GPU models, for tables: what a person calls the card, and its memory."""

from __future__ import annotations

import functools
import re

UNKNOWN = "unknown GPU"

_MAKER = re.compile(r"\b(?:NVIDIA|GeForce|Tesla)\b", re.IGNORECASE)
_FORM = re.compile(
    r"(?<=[ -])(?:SXM\d*|PCIE|HBM\d\w*|Generation|Edition|GPU)(?=[ -]|$)", re.IGNORECASE
)
_SIZE = re.compile(r"(?<=[ -])(\d+) ?GB(?=[ -]|$)", re.IGNORECASE)
_SEAMS = re.compile(r"[ -]*(?: |-$)[ -]*")


@functools.lru_cache(maxsize=1024)
def short_model(name: str | None, memory_total_mib: int | None) -> str:
    """Return the short name of a model: "H100 80G", "RTX 3090 24G", "GB10".

    Maker and form of the card go, the memory comes last. The size that the maker wrote into the
    name is taken where the memory is about as large (a "GH200 480GB" counts its CPU's memory).
    """
    if not name:
        return UNKNOWN
    named = _SIZE.search(name)
    size = None
    if memory_total_mib is not None and memory_total_mib > 0:
        size = round(memory_total_mib / 1024)
    if named is not None:
        written = int(named[1])
        if size is None or abs(written - size) <= 0.15 * written:
            size = written
        name = name[: named.start()] + name[named.end() :]
    short = _SEAMS.sub(" ", _FORM.sub("", _MAKER.sub("", name))).strip(" -") or UNKNOWN
    return short if size is None else f"{short} {size}G"
