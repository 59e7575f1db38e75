"""GPUs that a host had and no longer lists: eight cards must not become seven without a word.

Remembered by UUID as long as the server runs. A card that was taken out on purpose is forgotten by
a restart of the server, or as soon as another one stands in its place. Where the agent remembers
too (it gives the GPU a row with `missing_since`), it has the say.
"""

from __future__ import annotations

import msgspec

from gpumon.summary import GpuSummary, HostSummary


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as it was last seen."""

    gpu: GpuSummary
    since: float
    """Epoch seconds, by the server's clock, of the first reading without it."""


def still_missing(
    before: tuple[Missing, ...], old: HostSummary, new: HostSummary, now: float
) -> tuple[Missing, ...]:
    """Return the GPUs that `new` lacks of those known before it. `now` is epoch seconds."""
    listed = {gpu.uuid for gpu in new.gpus}
    lost = {
        gpu.uuid: Missing(gpu=gpu, since=now)
        for gpu in old.gpus
        # A row of a missing GPU that is gone: somebody told the agent to forget it.
        if gpu.uuid not in listed and gpu.missing_since is None
    }
    lost.update({entry.gpu.uuid: entry for entry in before if entry.gpu.uuid not in listed})
    lost.pop(None, None)
    if not lost:
        return ()
    known = {gpu.uuid for gpu in old.gpus} | {entry.gpu.uuid for entry in before} | {None}
    replaced = {gpu.index for gpu in new.gpus if gpu.uuid not in known}
    return tuple(entry for entry in lost.values() if entry.gpu.index not in replaced)


def without_a_row(missing: tuple[Missing, ...], summary: HostSummary) -> list[Missing]:
    """Return those missing GPUs that need a row of their own.

    A row without UUID is a GPU that can't be read: it stands for the one that had its index.
    """
    if not missing:
        return []
    unread = {gpu.index for gpu in summary.gpus if gpu.uuid is None}
    return [entry for entry in missing if entry.gpu.index not in unread]
