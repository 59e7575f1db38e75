"""How often the driver gave a value that can't be, by field, since the agent began."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gpumon.model import OUT_OF_RANGE, HostSnapshot

MOST_FIELDS = 64
"""Far more than there are fields: a sampler of another version can't fill the memory."""


def odd_fields(snapshot: HostSnapshot) -> list[str]:
    """Return the field of each value that is out of range, once for each GPU that has one."""
    return [
        field
        for gpu in snapshot.gpus
        for field, why in gpu.unknown.items()
        if why.startswith(OUT_OF_RANGE)
    ]


class OddValues:
    """Counts them by field."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, fields: Iterable[str]) -> None:
        """Count what was out of range in a sample."""
        for field in fields:
            if field in self._counts or len(self._counts) < MOST_FIELDS:
                self._counts[field] += 1

    def counts(self) -> dict[str, int]:
        """Return the number of samples with such a value, by field."""
        return dict(self._counts)
