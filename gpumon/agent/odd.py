"""How often the driver gave a value that can't be, by field, since the agent began."""

from __future__ import annotations

from collections import Counter

from gpumon.model import OUT_OF_RANGE, HostSnapshot

MOST_FIELDS = 64
"""Far more than there are fields: a sampler of another version can't fill the memory."""


class OddValues:
    """Counts them from the snapshots, which name each with its field and what was found."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, snapshot: HostSnapshot) -> None:
        """Count what is out of range in a sample: each field of each GPU once."""
        for gpu in snapshot.gpus:
            for field, why in gpu.unknown.items():
                if why.startswith(OUT_OF_RANGE) and (
                    field in self._counts or len(self._counts) < MOST_FIELDS
                ):
                    self._counts[field] += 1

    def counts(self) -> dict[str, int]:
        """Return the number of samples with such a value, by field."""
        return dict(self._counts)
