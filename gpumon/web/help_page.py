"""What the help says: signs, states, words of the filter, other forms of the page."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.config import Limits
from gpumon.states import GpuState


class StateHelp(NamedTuple):
    """One state of a GPU in words."""

    state: GpuState
    sign: str
    drawn: str
    means: str


class Help(NamedTuple):
    """Everything on the page."""

    states: list[StateHelp]
    hosts: list[tuple[str, str]]
    waste: list[tuple[str, str]]
    words: list[tuple[str, str]]
    forms: list[tuple[str, str]]
    endings: list[tuple[str, str]]
    """How commands end, for scripts: an exit code, and what it means."""


_STATES = [
    StateHelp("free", "", "empty, thick border", "no process, and next to no memory in use"),
    StateHelp(
        "busy",
        "73",
        "filled from below, with the utilization in percent, or # where it is not known",
        "held by somebody, and used above {percent} % in the last {minutes} minutes, or not held "
        "for as long as that",
    ),
    StateHelp("idle", "z", "dashed border", "held by somebody, and not used for {minutes} minutes"),
    StateHelp(
        "fault", "!", "solid", "broken: lost, memory errors, a slowdown of the hardware, missing"
    ),
    StateHelp(
        "unknown", "?", "dotted border", "no fresh reading, so nobody knows; never counted as free"
    ),
    StateHelp("drained", "–", "thin border", "taken out of use in the configuration"),
]

_HOSTS = [
    ("fresh", "answered one of the last two polls"),
    ("stale", "did not; its last values stand there, its GPUs are unknown"),
    ("down", "no answer for five minutes"),
    ("never", "has not answered since this server started"),
]

_WASTE = [
    ("idle", "memory is held, and next to no kernel ran for {minutes} minutes"),
    ("ghost", "memory is in use, and no process is to be seen"),
    ("warning", "the GPU works, and wants attention"),
    ("error", "the host answers, but its driver or its agent does not work"),
    ("note", "worth a look; the readings are sound"),
]

_WORDS = [
    ("free", "GPUs in that state: free, busy, idle, fault, unknown, drained"),
    ("4x h100", "hosts with at least four free H100s"),
    (">=40g", "GPUs with at least 40 GB of memory; <=24g: at most"),
    ("@alice", "GPUs that alice holds"),
    ("gpu-0*", "hosts by name; * stands for anything"),
    ("room:b12", "hosts with that label in the configuration"),
    ("stale", "hosts in that state: fresh, stale, down, never"),
    ("wasted", "GPUs that are idle, or held by nobody to be seen"),
    ("broken", "GPUs with a fault"),
    ("h100", "any other word: a part of a host's or model's name, a user, or the value of a label"),
]

_FORMS = [
    ("status.txt", "the front page as text; curl gets it from every address without the ending"),
    ("status.json", "the same as JSON; hosts and users have it under their address and .json"),
    ("host/NAME, user/NAME", "one host with its processes; what one user holds"),
    ("help, help.json", "this help: a page, text or JSON"),
    ("openapi.json, schema.json", "every JSON answer described, field by field, for programs"),
    ("metrics, healthz", "for Prometheus; whether the server works"),
    ("?refresh=30", "the page loads itself again every 30 s, without a script"),
    ("?view=map", "hosts as a map; ?view=rows as rows"),
    ("?sort=-free", "hosts in the order of a column, here those with most free first"),
    ("?colors=use", "bars in green, yellow and red by use; ?colors=states in one colour"),
]

_ENDINGS = [
    ("0", "done"),
    ("1", "it failed, and a line says why"),
    ("2", "wrong use or wrong configuration"),
    ("22", "of curl -f: the answer is an error, such as 404 for an unknown host"),
]


def help_page(limits: Limits) -> Help:
    """Return what the help says under the configured limits."""
    lines = {"minutes": f"{limits.idle_minutes:g}", "percent": f"{limits.used_percent:g}"}
    return Help(
        [state._replace(means=state.means.format(**lines)) for state in _STATES],
        _HOSTS,
        [(word, means.format(**lines)) for word, means in _WASTE],
        _WORDS,
        _FORMS,
        _ENDINGS,
    )
