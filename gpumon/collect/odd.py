"""A GPU whose driver gives one absurd value has a bad sensor; one that gives several is misread."""

from __future__ import annotations

from gpumon.model import OUT_OF_RANGE, Gpu

SEVERAL = 3


def tell(gpus: list[Gpu], errors: list[str]) -> None:
    """Add a sentence to `errors` for the GPUs of which several values can't be."""
    found = {
        gpu.index: [field for field, why in gpu.unknown.items() if why.startswith(OUT_OF_RANGE)]
        for gpu in gpus
    }
    bad = {index: fields for index, fields in found.items() if len(fields) >= SEVERAL}
    if bad:
        which = ", ".join(f"GPU {index} ({', '.join(fields)})" for index, fields in bad.items())
        errors.append(
            f"The driver gives several values that can't be, which are shown as unknown: {which}. "
            "Driver and nvidia-ml-py may not fit: compare with nvidia-smi, and update gpumon."
        )
