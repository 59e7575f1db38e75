"""The page templates, compiled at the start, so that a fault in one shows then and not later."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, ClassVar

from bottle import SimpleTemplate, html_escape

from gpumon.cluster.status import ClusterStatus
from gpumon.states import GpuState
from gpumon.text import clean
from gpumon.units import clock, duration, mib
from gpumon.version import __version__
from gpumon.web import ages, front, gpus, words
from gpumon.web.cells import MARKS, cell
from gpumon.web.holding import holders
from gpumon.web.hosts import USERS_A_HOST
from gpumon.web.links import segment

_FOLDER = Path(__file__).parent / "pages"

LONGEST_TEXT = 1000

MOST_DETAILED_HOSTS = 50
"""Up to so many hosts the front page holds every GPU's readings; above, the hosts' pages do."""
MOST_OPEN_GPUS = 16
"""Up to so many GPUs those readings stand open."""


class Templates:
    """Renders pages. `{{ }}` in a template escapes for text and for quoted attributes."""

    def __init__(self, css: str, icon: str) -> None:
        """Take the addresses of style sheet and icon, relative to the front page."""
        self._common: dict[str, Any] = {
            "css": css,
            "icon": icon,
            "version": __version__,
            "cell": cell,
            "clock": clock,
            "duration": duration,
            "holders": holders,
            "iso": _iso,
            "key_mark": _key_mark,
            "memory": gpus.memory,
            "memory_tenths": gpus.memory_tenths,
            "mib": mib,
            "numbers": words.numbers,
            "segment": segment,
            "sentence": words.sentence,
            "temperature": gpus.temperature,
            "percent": gpus.percent,
            "watts": gpus.watts,
            "as_of": front.as_of,
            "counts": front.counts,
            "freshness": front.freshness,
            "size": front.size,
            "totals": front.totals,
            "BY_RULE": front.BY_RULE,
            "SIMULATED": front.SIMULATED,
            "NO_HOSTS": front.NO_HOSTS,
            "EXAMPLE_HOSTS": front.EXAMPLE_HOSTS,
            "MIG_COUNTS": front.MIG_COUNTS,
            "NO_USERS": front.NO_USERS,
            "NO_WASTE": front.NO_WASTE,
            "BLOCKS": 6,
            "USERS_A_HOST": USERS_A_HOST,
            "PLACES": 8,
            "MOST_USERS": 20,
            "MOST_WASTE": 40,
        }
        self._templates = {path.name: _compiled(path) for path in _FOLDER.glob("*.tpl")}

    def render(
        self, name: str, *, root: str, status: ClusterStatus | None = None, **values: Any
    ) -> bytes:
        """Return the page `name` ("front.tpl") as seen from `root`."""
        now = 0.0 if status is None else status.time  # a page without status shows no times

        def since(began: float | None, at_least: bool = False) -> str:
            return ages.since(now, began, at_least)

        text: str = self._templates[name].render(
            self._common, root=root, status=status, since=since, **values
        )
        return text.encode("utf-8", errors="replace")


def page_template(name: str) -> SimpleTemplate:
    """Return one template by itself, for a page that is no page of the server."""
    return _compiled(_FOLDER / name)


def details_of(status: ClusterStatus) -> str:
    """Return whether the front page holds every GPU's readings: "", "closed" or "open"."""
    if len(status.hosts) > MOST_DETAILED_HOSTS:
        return ""
    return "open" if status.totals.gpus.total <= MOST_OPEN_GPUS else "closed"


def escape(text: str) -> str:
    """Return foreign text for HTML, between tags or in a quoted attribute.

    What is not printable was taken out where it entered; this holds for what slipped through.
    """
    escaped: str = html_escape(text if text.isprintable() else clean(text, LONGEST_TEXT))
    return escaped


class _Template(SimpleTemplate):  # type: ignore[misc]
    """A template whose `{{ }}` is `escape`, also in the templates that it includes."""

    settings: ClassVar[dict[str, Any]] = {"escape_func": escape}


def _compiled(path: Path) -> SimpleTemplate:
    template = _Template(name=path.name, lookup=[str(_FOLDER)])
    assert template.co is not None  # compiles it
    return template


def _iso(epoch: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))


def _key_mark(state: GpuState) -> str:
    """Return the sign of a state in the header, which is the key to the cells as well."""
    return "73" if state == "busy" else MARKS[state].page
