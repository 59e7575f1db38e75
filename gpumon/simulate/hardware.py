"""GPU models and machines, and what power draw, clocks and temperature go with a use.

The figures are those of data sheets and of everyday readings of such cards.
"""

from __future__ import annotations

import msgspec

from gpumon.model import Gpu


class Hardware(msgspec.Struct, kw_only=True, frozen=True):
    """A model of GPU, as its driver describes it."""

    name: str
    memory_total_mib: int
    """Of a unified-memory machine: the host's, since the driver names none for the GPU."""
    memory_reserved_mib: int
    power_limit_watts: float
    idle_watts: float
    sm_clock_mhz: tuple[int, int]
    """At rest, at most."""
    memory_clock_mhz: tuple[int, int]
    pcie_generation: int
    ecc: bool = True
    fans: bool = False
    mig: bool = False
    sleeps: bool = False
    """Drops to its lowest clocks as soon as nothing holds it (desktop cards)."""
    unified: bool = False


H100 = Hardware(
    name="NVIDIA H100 80GB HBM3",
    memory_total_mib=81559,
    memory_reserved_mib=551,
    power_limit_watts=700.0,
    idle_watts=70.0,
    sm_clock_mhz=(345, 1980),
    memory_clock_mhz=(2619, 2619),
    pcie_generation=5,
    mig=True,
)
A100 = Hardware(
    name="NVIDIA A100-SXM4-80GB",
    memory_total_mib=81920,
    memory_reserved_mib=633,
    power_limit_watts=400.0,
    idle_watts=58.0,
    sm_clock_mhz=(210, 1410),
    memory_clock_mhz=(1593, 1593),
    pcie_generation=4,
    mig=True,
)
L40S = Hardware(
    name="NVIDIA L40S",
    memory_total_mib=46068,
    memory_reserved_mib=597,
    power_limit_watts=350.0,
    idle_watts=33.0,
    sm_clock_mhz=(210, 2520),
    memory_clock_mhz=(405, 9001),
    pcie_generation=4,
)
RTX_4090 = Hardware(
    name="NVIDIA GeForce RTX 4090",
    memory_total_mib=24564,
    memory_reserved_mib=482,
    power_limit_watts=450.0,
    idle_watts=19.0,
    sm_clock_mhz=(210, 2790),
    memory_clock_mhz=(405, 10501),
    pcie_generation=4,
    ecc=False,
    fans=True,
    sleeps=True,
)
GB10 = Hardware(
    name="NVIDIA GB10",
    memory_total_mib=122572,
    memory_reserved_mib=0,
    power_limit_watts=140.0,
    idle_watts=5.0,
    sm_clock_mhz=(208, 2418),
    memory_clock_mhz=(0, 0),
    pcie_generation=1,
    ecc=False,
    sleeps=True,
    unified=True,
)

GIB = 1024


class Machine(msgspec.Struct, kw_only=True, frozen=True):
    """A host as it was bought and installed."""

    model: Hardware
    gpu_count: int
    driver_version: str
    cuda_version: str
    cpu_count: int
    memory_mib: int
    disk_mib: int
    display: bool = False


H100_HOST = Machine(
    model=H100,
    gpu_count=8,
    driver_version="570.124.06",
    cuda_version="12.8",
    cpu_count=192,
    memory_mib=2015 * GIB,
    disk_mib=14000 * GIB,
)
A100_HOST = Machine(
    model=A100,
    gpu_count=8,
    driver_version="550.144.03",
    cuda_version="12.4",
    cpu_count=128,
    memory_mib=1008 * GIB,
    disk_mib=7000 * GIB,
)
L40S_HOST = Machine(
    model=L40S,
    gpu_count=4,
    driver_version="570.124.06",
    cuda_version="12.8",
    cpu_count=96,
    memory_mib=768 * GIB,
    disk_mib=3500 * GIB,
)
DESKTOP = Machine(
    model=RTX_4090,
    gpu_count=2,
    driver_version="580.65.06",
    cuda_version="13.0",
    cpu_count=32,
    memory_mib=128 * GIB,
    disk_mib=1900 * GIB,
    display=True,
)
UNIFIED = Machine(
    model=GB10,
    gpu_count=1,
    driver_version="580.95.05",
    cuda_version="13.0",
    cpu_count=20,
    memory_mib=GB10.memory_total_mib,
    disk_mib=3700 * GIB,
)

MIG_MEMORY_MIB = {"1g.10gb": 9728, "2g.20gb": 19968, "3g.40gb": 40192}

NOT_SUPPORTED = "not supported"
_ECC_FIELDS = (
    "ecc_mode",
    "ecc_volatile_corrected",
    "ecc_volatile_uncorrected",
    "ecc_aggregate_corrected",
    "ecc_aggregate_uncorrected",
)
_NOT_ON_UNIFIED = (
    "memory_total_mib",
    "memory_used_mib",
    "memory_reserved_mib",
    "memory_free_mib",
    "memory_clock_mhz",
    "enforced_power_limit_watts",
)


def mark_unknown(gpu: Gpu, fields: tuple[str, ...], why: str) -> None:
    """Note why these fields of `gpu` are None."""
    gpu.unknown.update(dict.fromkeys(fields, why))


def describe(gpu: Gpu, model: Hardware, *, use: float, held: bool, wear: float) -> None:
    """Fill in what follows from the model and from `use`, the GPU's utilization in percent.

    `held` says that a job is on it, `wear` (0 to 1) makes one card run warmer than the next.
    """
    asleep = model.sleeps and not held
    load = use / 100.0
    rest = model.idle_watts + (0.08 * model.power_limit_watts if held else 0.0)
    power = rest + (model.power_limit_watts - rest) * load * (0.82 + 0.18 * wear)
    capped = power > 0.97 * model.power_limit_watts
    low, high = model.sm_clock_mhz

    gpu.power_draw_watts = round(power, 2)
    gpu.temperature_celsius = round(27 + 6 * wear + 42 * power / model.power_limit_watts)
    gpu.sm_clock_mhz = low if not held else high - (90 if capped else 0)
    gpu.performance_state = 8 if asleep else 0
    gpu.clock_event_reasons = ["gpu_idle"] if use < 1 else ["sw_power_cap"] if capped else []
    gpu.pcie_generation = 1 if asleep else model.pcie_generation
    gpu.pcie_width = 16
    gpu.compute_mode = "default"
    gpu.persistence_mode = True
    gpu.encoder_utilization_percent = gpu.decoder_utilization_percent = 0
    if model.fans:
        gpu.fan_speed_percent = 0 if gpu.temperature_celsius < 40 else round(25 + 50 * load)
    else:
        mark_unknown(gpu, ("fan_speed_percent",), NOT_SUPPORTED)
    if model.ecc:
        gpu.ecc_mode = True
        gpu.ecc_volatile_corrected = gpu.ecc_volatile_uncorrected = 0
        gpu.ecc_aggregate_corrected = gpu.ecc_aggregate_uncorrected = 0
    else:
        mark_unknown(gpu, _ECC_FIELDS, NOT_SUPPORTED)
    if model.mig:
        gpu.mig_mode = False
    else:
        mark_unknown(gpu, ("mig_mode",), NOT_SUPPORTED)
    if model.unified:
        gpu.unified_memory = True
        mark_unknown(gpu, _NOT_ON_UNIFIED, NOT_SUPPORTED)
    else:
        gpu.memory_clock_mhz = model.memory_clock_mhz[0 if asleep else 1]
        gpu.enforced_power_limit_watts = model.power_limit_watts
