"""What a reading of a GPU says about its health. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gpumon.model import Gpu, HealthLevel
from gpumon.states import RESET_WANTED, uncorrected_errors

RECOVERY_ACTIONS = (
    "none",
    "gpu_reset",
    "node_reboot",
    "drain_p2p",
    "drain_and_reset",
    "recover_imex_domain",
    "bus_reset",
    "system_reboot",
)
"""The driver's numbers for what it asks for (NVML_GPU_RECOVERY_ACTION_...), in order."""

_WELL = "none"
_DRAINS = ("drain_p2p", "drain_and_reset", "recover_imex_domain")
"""The GPU goes on working for those who have it."""

_RESET = "Let the jobs finish, then reset the GPU (nvidia-smi --gpu-reset) or reboot the host"
_REPLACE = "Drain the GPU and have it replaced: it has no spare memory left for this fault"
_LOST = (
    "Look for NVRM and Xid lines in the kernel log (dmesg); drain the host and power-cycle it; "
    "when it comes back, check the GPU's seat, power and cooling"
)
ECC_ADVICE = "Reset the GPU once its jobs are done; replace it when errors come back"
_PERSISTENCE = (
    "persistence mode is off: the driver sets the GPU up anew whenever nobody uses it, which takes "
    "seconds. Turn it on: systemctl enable --now nvidia-persistenced"
)


class Condition(msgspec.Struct, frozen=True):
    """Something that holds or does not, as the reading says; None where it does not say."""

    kind: str
    holds: bool | None
    level: HealthLevel
    text: str
    advice: str
    count: int | None = None


def conditions(gpu: Gpu) -> Iterator[Condition]:
    """Yield what the reading says about each lasting trouble that a GPU can have."""
    lost = True if gpu.lost else (False if gpu.error is None else None)
    cure = _RESET if RESET_WANTED in (gpu.error or "") else _LOST
    yield Condition("lost", lost, "fault", gpu.error or "the driver lost this GPU", cure)
    errors = gpu.ecc_volatile_uncorrected
    if errors is None and gpu.ecc_mode is False:
        errors = 0  # the reset that turned ECC off has ended the count
    yield Condition(
        "ecc",
        None if errors is None else errors > 0,
        "fault",
        uncorrected_errors(errors or 0),
        ECC_ADVICE,
        errors,
    )
    yield Condition(
        "row_remap_failure",
        gpu.remapped_rows_failure,
        "fault",
        "bad memory rows could not be replaced by spare ones",
        _REPLACE,
    )
    yield Condition(
        "row_remap",
        gpu.remapped_rows_pending,
        "warning",
        "bad memory rows wait for a reset to be replaced by spare ones",
        _RESET,
    )
    yield Condition(
        "retired_pages",
        gpu.retired_pages_pending,
        "warning",
        "bad memory pages wait for a reset to be taken out of use",
        _RESET,
    )
    yield _recovery(gpu.recovery_action)


def _recovery(action: str | None) -> Condition:
    words = (action or "").replace("_", " ")
    return Condition(
        "recovery",
        None if action is None else action != _WELL,
        "warning" if action in _DRAINS or action not in RECOVERY_ACTIONS else "fault",
        f"the driver asks to recover the GPU: {words}",
        "See nvidia-smi -q, GPU Recovery Action; drain the GPU before that",
    )


def hints(gpu: Gpu) -> list[str]:
    """Return what could be set up better, each a sentence with what to do; no fault."""
    return [_PERSISTENCE] if gpu.persistence_mode is False else []
