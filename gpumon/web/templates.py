"""The page templates, compiled at the start, so that a fault in one shows then and not later."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, ClassVar

from bottle import SimpleTemplate

from gpumon.cluster.status import ClusterStatus, HostStatus
from gpumon.cluster.visible import SOMEBODY
from gpumon.states import GPU_STATES, GpuState, earliest, on_gpu_since
from gpumon.summary import Holder
from gpumon.units import clock, duration, mib
from gpumon.version import __version__
from gpumon.web import ages, bars, front, gpus, words
from gpumon.web.cells import MARKS, cell
from gpumon.web.escape import escape
from gpumon.web.holding import holders, seen_at
from gpumon.web.hosts import USERS_A_HOST
from gpumon.web.links import segment
from gpumon.web.map import map_link

_FOLDER = Path(__file__).parent / "pages"


class Templates:
    """Renders pages. `{{ }}` in a template escapes for text and for quoted attributes."""

    def __init__(
        self, *, css: str, script: str, icon: str, brand: str, refresh_seconds: float
    ) -> None:
        """Take the addresses of style sheet, script and icon, relative to the front page."""
        self._common: dict[str, Any] = {
            "css": css,
            "script": script,
            "icon": icon,
            "brand": brand,
            "refresh_seconds": refresh_seconds,
            "personal": False,
            "bar": bars.bar,
            "map_link": map_link,
            "version": __version__,
            "cell": cell,
            "clock": clock,
            "duration": duration,
            "holders": holders,
            "iso": _iso,
            "key_mark": _key_mark,
            "memory": gpus.memory,
            "mib": mib,
            "counted": words.counted,
            "numbers": words.numbers,
            "segment": segment,
            "sentence": words.sentence,
            "temperature": gpus.temperature,
            "percent": gpus.percent,
            "watts": gpus.watts,
            "as_of": front.as_of,
            "counts": front.counts,
            "freshness": _freshness,
            "readings": front.readings,
            "size": front.size,
            "totals": front.totals,
            "BY_RULE": front.BY_RULE,
            "SIMULATED": front.SIMULATED,
            "SOMEBODY": SOMEBODY,
            "NO_HOSTS": front.NO_HOSTS,
            "NO_MATCH": front.NO_MATCH,
            "EXAMPLE_HOSTS": front.EXAMPLE_HOSTS,
            "MIG_COUNTS": front.MIG_COUNTS,
            "NO_USERS": front.NO_USERS,
            "NO_WASTE": front.NO_WASTE,
            "NO_HISTORY": front.NO_HISTORY,
            "MOST_ROWS": front.MOST_ROWS,
            "GPU_STATES": GPU_STATES,
            "BLOCKS": 6,
            "USERS_A_HOST": USERS_A_HOST,
            "PLACES": 8,
            "MOST_USERS": 20,
            "MOST_WASTE": 20,
            "MOST_FOLDED": 100,
        }
        self._templates = {path.name: _compiled(path) for path in _FOLDER.glob("*.tpl")}

    def render(
        self, name: str, *, root: str, status: ClusterStatus | None = None, **values: Any
    ) -> bytes:
        """Return the page `name` ("front.tpl") as seen from `root`."""
        now = 0.0 if status is None else status.time  # a page without status shows no times

        def since(began: float | None, at_least: bool = False, at_most: bool = False) -> str:
            return ages.since(now, began, at_least, at_most)

        def held_on_since(host: HostStatus, began: float | None, at_most: bool) -> str:
            return ages.since(seen_at(host, now), began, at_most=at_most)

        def held_since(holder: Holder, host: HostStatus) -> str:
            return held_on_since(host, *earliest([on_gpu_since(holder)]))

        def short_since(began: float | None, *, at_most: bool = False) -> str:
            return ages.short_since(now, began, at_most=at_most).replace("<=", "≤")

        text: str = self._templates[name].render(
            self._common,
            root=root,
            status=status,
            since=since,
            held_since=held_since,
            held_on_since=held_on_since,
            short_since=short_since,
            **values,
        )
        return text.encode("utf-8", errors="replace")


def page_template(name: str) -> SimpleTemplate:
    """Return one template by itself, for a page that is no page of the server."""
    return _compiled(_FOLDER / name)


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


def _freshness(status: ClusterStatus) -> str:
    """Return `front.freshness` as a sentence."""
    words = front.freshness(status)
    return f"{words[0].upper()}{words[1:]}."
