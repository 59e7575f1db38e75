"""Why a GPU's clocks are lowered: the names of the bits that the driver gives."""

from __future__ import annotations

CLOCK_REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
)
"""Lowest bit first."""


def reason_words(bits: int) -> list[str]:
    """Return the names of the bits that are set; those without a name as one number."""
    words = [word for bit, word in enumerate(CLOCK_REASONS) if bits >> bit & 1]
    rest = bits >> len(CLOCK_REASONS) << len(CLOCK_REASONS)
    return [*words, f"other_{rest:#x}"] if rest else words
