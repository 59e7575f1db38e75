"""Renders samples with Prometheus' own Python client, and with the least that Python can do.

    python client_metrics.py SAMPLES ROUNDS

Runs under an interpreter that has `prometheus_client`. SAMPLES is a JSON file: families of
[name, help, kind, [[label names, label values, value], ...]]. Prints two lists of ms as JSON. The
values are ready in memory, as a program has them that keeps its state as such families.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

Family = tuple[str, str, str, list[tuple[list[str], list[str], float]]]


class Collector:
    """Hands the samples over anew for each answer, as an exporter does."""

    def __init__(self, families: list[Family]) -> None:
        self.families = families

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        for name, words, kind, samples in self.families:
            metric = Metric(name.removesuffix("_total") if kind == "counter" else name, words, kind)
            for names, values, value in samples:
                metric.add_sample(name, dict(zip(names, values, strict=True)), value)
            yield metric


def floor(families: list[Any]) -> bytes:
    """Return the same text by one f-string a sample, with its labels ready as text."""
    lines = []
    for name, words, kind, samples in families:
        lines.append(f"# HELP {name} {words}\n# TYPE {name} {kind}\n")
        lines += [f"{name}{labels} {value!r}\n" for labels, value in samples]
    return "".join(lines).encode()


def measured(make: Callable[[], bytes], rounds: int) -> list[float]:
    """Return the CPU ms of each round."""
    found = []
    for _ in range(rounds):
        begin = time.process_time()
        make()
        found.append(1000 * (time.process_time() - begin))
    return found


def main(path: str, rounds: int) -> None:
    """Measure both and print what was found."""
    families: list[Family] = json.loads(Path(path).read_text())
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(families))  # type: ignore[arg-type]
    ready = [
        (name, words, kind, [(_text(names, values), value) for names, values, value in samples])
        for name, words, kind, samples in families
    ]
    client = measured(lambda: generate_latest(registry), rounds)
    least = measured(lambda: floor(ready), rounds)
    print(json.dumps([client, least]))


def _text(names: list[str], values: list[str]) -> str:
    pairs = zip(names, values, strict=True)
    inner = ",".join(f'{name}="{value}"' for name, value in pairs)
    return f"{{{inner}}}" if inner else ""


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
