"""Prometheus' text format, version 0.0.4. An unknown value is a sample that is not there."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Value = bool | int | float | None


class Metric(msgspec.Struct, frozen=True):
    """One family of samples. The name carries its unit, as Prometheus' rules want it."""

    name: str
    help: str
    kind: Literal["gauge", "counter"] = "gauge"


class Exposition:
    """Collects samples and writes them, each family in one piece, in the order of their coming."""

    def __init__(self) -> None:
        self._families: dict[Metric, dict[str, str]] = {}

    def add(self, metric: Metric, labels: str, value: Value) -> None:
        """Add one sample; `labels` comes from `label_text`.

        None, and what is no number, is left out. Of two samples with the same labels the first one
        stays: a second one would make Prometheus refuse the whole answer.
        """
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            return
        samples = self._families.setdefault(metric, {})
        if labels not in samples:
            samples[labels] = repr(int(value) if isinstance(value, bool) else value)

    def text(self) -> bytes:
        """Return all families as UTF-8."""
        lines: list[str] = []
        for metric, samples in self._families.items():
            name = metric.name
            lines.append(f"# HELP {name} {_escaped(metric.help)}\n# TYPE {name} {metric.kind}\n")
            lines += [f"{name}{labels} {value}\n" for labels, value in samples.items()]
        return "".join(lines).encode("utf-8", errors="replace")


def label_text(**labels: str | int | None) -> str:
    """Return labels as they stand behind a name; None and "" (which are the same) are left out."""
    pairs = [
        f'{name}="{_quoted(str(value))}"'
        for name, value in labels.items()
        if value is not None and value != ""
    ]
    return "{" + ",".join(pairs) + "}" if pairs else ""


def with_labels(labels: str, **more: str | int | None) -> str:
    """Return `labels`, which `label_text` made, with more of them at the end."""
    added = label_text(**more)
    if not labels or not added:
        return labels or added
    return f"{labels[:-1]},{added[1:]}"


def share(percent: float | None) -> float | None:
    """Return a percentage as a ratio, the base unit."""
    return None if percent is None else round(percent / 100, 6)


def mib(value: int | None) -> int | None:
    """Return MiB as bytes, the base unit."""
    return None if value is None else value * 1024 * 1024


def mhz(value: int | None) -> int | None:
    """Return MHz as hertz, the base unit."""
    return None if value is None else value * 1_000_000


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
