"""What is measured, and the tables that it gives."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_cost.table import Budget, Result, Table, ratio, spread

from fleet_cost.lab import FAULTS, Host, Lab, measured

POLLER = "poller_child.py"
OTHERS = {
    "gpumonitor's way (a pool of threads per request)": "others.py pool",
    "one host after another": "others.py in_turn",
}
FRESH_AGE = 2.0
"""A healthy host is read at least once in two intervals, whatever the others do."""


@dataclass(frozen=True)
class Settings:
    """How much is measured."""

    folder: Path
    small: int = 1000
    large: int = 10_000
    rounds: int = 6
    other_rounds: int = 3


def sweep(lab: Lab, settings: Settings) -> Result:
    """Measure a sweep over healthy hosts, beside other ways to make it."""
    table = Table(
        "A sweep of healthy hosts, 8 GPUs and 160 processes each",
        ["hosts", "way", "CPU s per sweep", "of gpumon", "us per host", "RSS MiB"],
    )
    table.notes = [
        "gpumon: the poller and the fleet at work, polls spread over the interval (5 s, 10 s for "
        "the larger fleet); the first round, which opens the connections, is left out",
        "the others ask the same agents and decode the summary only",
    ]
    result = Result([table])
    for count, interval, budget, most_mib in (
        (settings.small, 5.0, 0.25 * settings.small / 1000, 150),
        (settings.large, 10.0, 2.5 * settings.large / 10_000, 800),
    ):
        news = lab.hosts(count, {})
        rows = {"gpumon, news in every answer": _polled(settings, news, interval)}
        if count == settings.small:
            rows['gpumon, "unchanged" in every answer'] = _polled(
                settings, lab.hosts(count, {}, sound="known")
            )
            for name, program in OTHERS.items():
                rows[name] = measured(program, settings.folder, news, rounds=settings.other_rounds)
        ours = next(iter(rows.values()))
        base = [line["cpu"] for line in ours]
        for name, lines in rows.items():
            cpu = [line["cpu"] for line in lines]
            per_host = f"{_median(cpu) / count * 1e6:.0f}"
            table.add(
                count, name, spread(cpu, 3), ratio(cpu, base), per_host, f"{lines[-1]['rss']:.0f}"
            )
        result.budgets += [
            _at_most(f"sweep of {count} hosts, CPU s", budget, _median(base), 3),
            _at_most(f"sweep of {count} hosts, RSS MiB", most_mib, ours[-1]["rss"], 0),
        ]
    return result


def faults(lab: Lab, settings: Settings) -> Result:
    """Measure what broken hosts of all kinds do to the healthy ones."""
    shares = ", ".join(f"{share:.0%} {kind}" for kind, share in FAULTS.items())
    table = Table(
        "With every fault mixed in",
        ["hosts", "interval s", "CPU s per interval", "oldest healthy host s", "all healthy read s",
         "first sweep over s", "RSS MiB"],
        notes=[shares],
    )  # fmt: skip
    result = Result([table])
    for count, interval in ((settings.small, 5.0), (settings.large, 10.0)):
        hosts = lab.hosts(count, FAULTS)
        lines = _polled(settings, hosts, interval)
        last = lines[-1]
        cpu = [line["cpu"] for line in lines]
        oldest = max(line["oldest"] for line in lines)
        table.add(
            count, f"{interval:g}", spread(cpu), f"{oldest:.1f}", _seconds(last["seen"]),
            _seconds(last["over"]), f"{last['rss']:.0f}",
        )  # fmt: skip
        result.tables.append(_states(count, last["states"]))
        healthy = Counter(kind for *_, kind in hosts)["healthy"]
        fresh = last["states"]["healthy"].get("fresh", 0)
        result.budgets += [
            Budget(f"{count} hosts with faults: healthy ones fresh", str(healthy), str(fresh),
                   fresh == healthy),
            _at_most(f"{count} hosts with faults: oldest healthy host s", FRESH_AGE * interval,
                     oldest, 1),
        ]  # fmt: skip
        over = float("inf") if last["over"] is None else last["over"]
        result.budgets.append(_at_most(f"{count} hosts with faults: sweep over s", 2.5, over, 1))
        most_mib = 150 if count == settings.small else 800
        result.budgets.append(
            _at_most(f"{count} hosts with faults: RSS MiB", most_mib, last["rss"], 0)
        )
    return result


def hanging(lab: Lab, settings: Settings) -> Result:
    """Measure how long other ways take where a tenth of the hosts hangs."""
    count, shares = 100, {"hung": 0.10}
    hosts = lab.hosts(count, shares)
    table = Table(
        f"{count} hosts of which {round(count * shares['hung'])} accept and never answer",
        ["way", "until all healthy hosts are read s", "healthy hosts read", "CPU s"],
    )
    ours = measured(POLLER, settings.folder, hosts, rounds=1)[0]
    fresh = ours["states"]["healthy"].get("fresh", 0)
    table.add("gpumon", _seconds(ours["seen"]), fresh, f"{ours['cpu']:.2f}")
    for name, program in OTHERS.items():
        line = measured(program, settings.folder, hosts, rounds=1)[0]
        table.add(name, f"{line['wall']:.1f}", line["good"], f"{line['cpu']:.2f}")
    table.notes = ["the others hand out what they have when the slowest host is through"]
    return Result([table])


def picture(lab: Lab, settings: Settings) -> Result:
    """Measure what it costs to put the cluster together for the page."""
    count = settings.small
    lines = _polled(settings, lab.hosts(count, {}), watched=True)
    built = [1000 * seconds for seconds in lines[-1]["building"][1:]]
    table = Table(
        f"The picture of {count} hosts x 8 GPUs that all faces share",
        ["CPU ms", "built in", "times"],
        notes=["at most once per half an interval, however many look"],
    )
    table.add(spread(built, 0), f"{5 * settings.rounds} s", len(built))
    return Result([table], [_at_most(f"picture of {count} hosts, CPU ms", 50, _median(built), 0)])


SECTIONS = {"sweep": sweep, "faults": faults, "hanging": hanging, "picture": picture}


def _polled(
    settings: Settings, hosts: list[Host], interval: float = 5.0, *, watched: bool = False
) -> list[dict[str, Any]]:
    """Run the poller; return its rounds but for the first."""
    rounds = settings.rounds + 1
    return measured(
        POLLER, settings.folder, hosts, interval=interval, rounds=rounds, watched=watched
    )[1:]


def _states(count: int, states: dict[str, dict[str, int]]) -> Table:
    table = Table(
        f"What the page says of {count} hosts", ["kind of host", "hosts", "state: reason"]
    )
    for kind in ("healthy", *FAULTS):
        words = states.get(kind, {})
        said = ", ".join(f"{word} ({number})" for word, number in sorted(words.items()))
        table.add(kind, sum(words.values()), said)
    return table


def _at_most(what: str, most: float, found: float, digits: int) -> Budget:
    return Budget(what, f"<= {most:g}", f"{found:.{digits}f}", found <= most)


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f}"


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else float("inf")
