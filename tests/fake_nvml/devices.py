"""The devices of a scenario for the fake NVML: GPUs and MIG instances, and models of real ones."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

MIB = 1024 * 1024

Value = int | str | bytes
"""A number, a text or number with unit as the file has it ("71W", "error 15"), or raw bytes."""


@dataclass
class Device:
    """A GPU or a MIG instance: keys with values, and lines that may stand several times.

    `device["power_usage"] = "71W"` sets a key; `del device["fan_speed"]` makes it unsupported.
    """

    values: dict[str, Value] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    """`process`, `sample` and `event` lines, and rules that are its nature, not a fault."""
    rules: list[str] = field(default_factory=list)
    """`fail`, `slow`, `hang` and `crash` lines."""
    lost: bool = False

    def __getitem__(self, key: str) -> Value:
        return self.values[key]

    def __setitem__(self, key: str, value: Value) -> None:
        self.values[key] = value

    def __delitem__(self, key: str) -> None:
        del self.values[key]

    def text(self, header: str, indent: str) -> str:
        """Return the section of a scenario file for this device."""
        lines = [f"{key} = {written(value)}" for key, value in self.values.items()]
        lines += ["lost = yes"] if self.lost else []
        return "\n".join([header, *(indent + line for line in lines + self.lines + self.rules)])


@dataclass
class Mig(Device):
    """A MIG instance."""


@dataclass
class Gpu(Device):
    """A GPU with its MIG instances by number."""

    mig: dict[int, Mig] = field(default_factory=dict)


def written(value: Value) -> str:
    """Return a value as the file has it: what the language would read otherwise is escaped."""
    if isinstance(value, int):
        whole_mib = value >= MIB and value % MIB == 0
        return f"{value // MIB}MiB" if whole_mib else str(int(value))
    raw = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
    plain = raw.strip(b" ")
    lead = len(raw) - len(raw.lstrip(b" "))
    text = "".join(
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b"\\#" else f"\\x{byte:02x}"
        for byte in plain
    )
    return "\\x20" * lead + text + "\\x20" * (len(raw) - lead - len(plain))


def h100(index: int) -> Gpu:
    """Return an idle H100: no fan, ECC, MIG possible but off."""
    return Gpu(
        {
            "name": "NVIDIA H100 80GB HBM3",
            "uuid": _uuid("GPU", "h100", index),
            "serial": str(1650000000000 + index),
            "pci.bus_id": f"00000000:{(0x17 + 0x11 * index) % 256:02X}:00.0",
            "pci.device_id": "0x233010DE",
            "brand": 14,
            "architecture": 9,
            "compute_capability.major": 9,
            "compute_capability.minor": 0,
            "minor_number": index,
            "board_part_number": "692-2G520-0200-000",
            "vbios_version": "96.00.74.00.01",
            "utilization.gpu": 0,
            "utilization.memory": 0,
            "utilization.encoder": 0,
            "utilization.decoder": 0,
            "utilization.jpg": 0,
            "utilization.ofa": 0,
            "memory.total": 81559 * MIB,
            "memory.used": 0,
            "memory.reserved": 551 * MIB,
            "bar1.total": 131072 * MIB,
            "bar1.used": 1 * MIB,
            "temperature": 31,
            "temperature.memory": 40,
            "temperature_threshold.shutdown": 92,
            "temperature_threshold.slowdown": 89,
            "temperature_threshold.gpu_max": 87,
            "power_usage": "71W",
            "power_management_mode": "on",
            "power_limit": "700W",
            "power_limit.enforced": "700W",
            "power_limit.default": "700W",
            "power_limit.min": "200W",
            "power_limit.max": "700W",
            "total_energy": "8123456J",
            "clock.graphics": 345,
            "clock.sm": 345,
            "clock.memory": 2619,
            "clock.video": 765,
            "max_clock.graphics": 1980,
            "max_clock.sm": 1980,
            "max_clock.memory": 2619,
            "max_clock.video": 1545,
            "fans": 0,
            "performance_state": 0,
            "clocks_event_reasons": "gpu_idle",
            "clocks_event_reasons.supported": "0x1FF",
            "ecc_mode": "on",
            "ecc.volatile.corrected": 0,
            "ecc.volatile.uncorrected": 0,
            "ecc.aggregate.corrected": 0,
            "ecc.aggregate.uncorrected": 0,
            "remapped_rows.corrected": 0,
            "remapped_rows.uncorrected": 0,
            "remapped_rows.pending": 0,
            "remapped_rows.failure": 0,
            "compute_mode": 0,
            "persistence_mode": "on",
            "display_mode": "off",
            "display_active": "off",
            "accounting_mode": "off",
            "virtualization_mode": 0,
            "pcie.generation": 5,
            "pcie.width": 16,
            "pcie.max_generation": 5,
            "pcie.max_width": 16,
            "pcie.sent": 0,
            "pcie.received": 0,
            "pcie.replays": 0,
            "event_types.supported": "sbe+dbe+xid",
            "mig_mode": "off",
        }
    )


def rtx(index: int) -> Gpu:
    """Return an idle desktop card: a fan, a display, no ECC, no MIG, no MIG mode to ask for."""
    return Gpu(
        {
            "name": "NVIDIA GeForce RTX 4090",
            "uuid": _uuid("GPU", "rtx", index),
            "pci.bus_id": f"00000000:{index + 1:02X}:00.0",
            "pci.device_id": "0x268410DE",
            "brand": 5,
            "architecture": 8,
            "compute_capability.major": 8,
            "compute_capability.minor": 9,
            "minor_number": index,
            "vbios_version": "95.02.3c.00.8f",
            "utilization.gpu": 0,
            "utilization.memory": 0,
            "utilization.encoder": 0,
            "utilization.decoder": 0,
            "memory.total": 24564 * MIB,
            "memory.used": 0,
            "memory.reserved": 346 * MIB,
            "bar1.total": 32768 * MIB,
            "bar1.used": 18 * MIB,
            "temperature": 38,
            "temperature_threshold.shutdown": 100,
            "temperature_threshold.slowdown": 97,
            "power_usage": "21.5W",
            "power_management_mode": "on",
            "power_limit": "450W",
            "power_limit.enforced": "450W",
            "power_limit.default": "450W",
            "power_limit.min": "150W",
            "power_limit.max": "600W",
            "total_energy": "912345J",
            "clock.graphics": 210,
            "clock.sm": 210,
            "clock.memory": 405,
            "clock.video": 1185,
            "max_clock.graphics": 3105,
            "max_clock.sm": 3105,
            "max_clock.memory": 10501,
            "max_clock.video": 2415,
            "fan_speed": 30,
            "fan_speed.0": 30,
            "fan_speed.1": 30,
            "fans": 2,
            "performance_state": 8,
            "clocks_event_reasons": "gpu_idle",
            "clocks_event_reasons.supported": "0x1FF",
            "compute_mode": 0,
            "persistence_mode": "off",
            "display_mode": "on",
            "display_active": "on",
            "accounting_mode": "off",
            "virtualization_mode": 0,
            "pcie.generation": 1,
            "pcie.width": 16,
            "pcie.max_generation": 4,
            "pcie.max_width": 16,
            "pcie.sent": 0,
            "pcie.received": 0,
            "pcie.replays": 0,
            "event_types.supported": "xid",
        }
    )


def gb10(index: int) -> Gpu:
    """Return an idle GB10: GPU and host share one memory, so there is no memory to ask for."""
    return Gpu(
        {
            "name": "NVIDIA GB10",
            "uuid": _uuid("GPU", "gb10", index),
            "pci.bus_id": f"0000000F:{index + 1:02X}:00.0",
            "pci.device_id": "0x2E1210DE",
            "brand": 14,
            "architecture": 10,
            "compute_capability.major": 12,
            "compute_capability.minor": 1,
            "minor_number": index,
            "addressing_mode": 2,
            "utilization.gpu": 0,
            "utilization.memory": 0,
            "temperature": 36,
            "power_usage": "4.3W",
            "clock.graphics": 208,
            "clock.sm": 208,
            "max_clock.graphics": 3003,
            "max_clock.sm": 3003,
            "performance_state": 8,
            "clocks_event_reasons": "gpu_idle",
            "compute_mode": 0,
            "persistence_mode": "on",
            "display_mode": "off",
            "display_active": "off",
        }
    )


_PROFILES = {
    # name: (compute slices, multiprocessors, memory in MiB)
    "1g.10gb": (1, 16, 9856),
    "1g.20gb": (1, 26, 19968),
    "2g.20gb": (2, 32, 19968),
    "3g.40gb": (3, 60, 40448),
    "4g.40gb": (4, 64, 40448),
    "7g.80gb": (7, 132, 80896),
}


def mig(gpu: Gpu, *profiles: str) -> Gpu:
    """Turn MIG on and cut the GPU into instances, e.g. "1g.10gb"; returns the same GPU.

    As on a real card the GPU then has no utilization, neither its own nor per process.
    """
    name = gpu["name"]
    if not isinstance(name, str):
        raise TypeError(f"instances are named after their GPU; its name is {name!r}, not a text")
    gpu["mig_mode"] = "on"
    for key in [key for key in gpu.values if key.startswith("utilization.")]:
        del gpu[key]
    gpu.lines += [
        "fail = nvmlDeviceGetProcessUtilization NOT_SUPPORTED",
        "fail = nvmlDeviceGetProcessesUtilizationInfo NOT_SUPPORTED",
    ]
    for number, profile in enumerate(profiles):
        slices, multiprocessors, memory_mib = _PROFILES[profile]
        gpu.mig[number] = Mig(
            {
                "name": f"{name} MIG {profile}",
                "uuid": _uuid("MIG", str(gpu["uuid"]), number),
                "gpu_instance_id": 7 + number if slices == 1 else 1 + number,
                "compute_instance_id": 0,
                "memory.total": memory_mib * MIB,
                "memory.used": 0,
                "memory.reserved": 12 * MIB,
                "attributes.multiprocessors": multiprocessors,
                "attributes.copy_engines": slices,
                "attributes.decoders": 1,
                "attributes.encoders": 0,
                "attributes.jpegs": 1,
                "attributes.ofas": 0,
                "attributes.gpu_slices": slices,
                "attributes.compute_slices": slices,
                "attributes.memory_mib": memory_mib,
            }
        )
    return gpu


def _uuid(kind: str, what: str, index: int) -> str:
    digits = hashlib.sha256(f"{what} {index}".encode()).hexdigest()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32])
    return f"{kind}-{'-'.join(parts)}"
