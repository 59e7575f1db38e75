"""What the fake NVML says, heard through the unmodified binding."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fake_nvml.child import run, told
from fake_nvml.scenario import FOLDER, MIB, Gpu, Scenario, gb10, h100, mig, rtx

FUNCTIONS = re.findall(r"^FUNCTION\((\w+), \d+\)", (FOLDER / "functions.def").read_text(), re.M)
KEYS = re.findall(r'^KEY\(\w+, "(.+)", \w+\)', (FOLDER / "keys.def").read_text(), re.M)
SCENARIOS = sorted((FOLDER / "scenarios").glob("*.scenario"))

# One line per answer: wrapper of the binding, its arguments, the key that answers, a value.
ANSWERS: list[tuple[str, str, str, Any]] = [
    ("GetName", "", "name", "NVIDIA L40S"),
    ("GetUUID", "", "uuid", "GPU-1"),
    ("GetSerial", "", "serial", "123"),
    ("GetBoardPartNumber", "", "board_part_number", "699-2G133"),
    ("GetVbiosVersion", "", "vbios_version", "95.02"),
    ("GetMinorNumber", "", "minor_number", 4),
    ("GetBrand", "", "brand", 14),
    ("GetArchitecture", "", "architecture", 8),
    ("GetNumGpuCores", "", "cores", 18176),
    ("GetMemoryBusWidth", "", "memory_bus_width", 384),
    ("GetNumaNodeId", "", "numa_node", 1),
    ("GetAddressingMode", "", "addressing_mode", 2),
    ("GetMultiGpuBoard", "", "multi_gpu_board", 0),
    ("GetTemperature", "0", "temperature", 45),
    ("GetTemperatureV", "0", "temperature", 45),
    ("GetTemperatureThreshold", "0", "temperature_threshold.shutdown", 100),
    ("GetTemperatureThreshold", "1", "temperature_threshold.slowdown", 97),
    ("GetTemperatureThreshold", "2", "temperature_threshold.memory_max", 105),
    ("GetTemperatureThreshold", "3", "temperature_threshold.gpu_max", 88),
    ("GetTemperatureThreshold", "4", "temperature_threshold.acoustic_min", 60),
    ("GetTemperatureThreshold", "5", "temperature_threshold.acoustic_current", 83),
    ("GetTemperatureThreshold", "6", "temperature_threshold.acoustic_max", 90),
    ("GetTemperatureThreshold", "7", "temperature_threshold.gps_current", 87),
    ("GetPowerUsage", "", "power_usage", 71500),
    ("GetEnforcedPowerLimit", "", "power_limit.enforced", 350000),
    ("GetPowerManagementMode", "", "power_management_mode", 1),
    ("GetPowerManagementLimit", "", "power_limit", 340000),
    ("GetPowerManagementDefaultLimit", "", "power_limit.default", 330000),
    ("GetTotalEnergyConsumption", "", "total_energy", 5_000_000_000_000),
    ("GetClockInfo", "0", "clock.graphics", 2001),
    ("GetClockInfo", "1", "clock.sm", 2002),
    ("GetClockInfo", "2", "clock.memory", 2003),
    ("GetClockInfo", "3", "clock.video", 2004),
    ("GetMaxClockInfo", "0", "max_clock.graphics", 3001),
    ("GetMaxClockInfo", "1", "max_clock.sm", 3002),
    ("GetMaxClockInfo", "2", "max_clock.memory", 3003),
    ("GetMaxClockInfo", "3", "max_clock.video", 3004),
    ("GetApplicationsClock", "0", "application_clock.graphics", 4001),
    ("GetClock", "1, 1", "application_clock.sm", 4002),
    ("GetApplicationsClock", "2", "application_clock.memory", 4003),
    ("GetApplicationsClock", "3", "application_clock.video", 4004),
    ("GetDefaultApplicationsClock", "0", "default_clock.graphics", 5001),
    ("GetClock", "1, 2", "default_clock.sm", 5002),
    ("GetDefaultApplicationsClock", "2", "default_clock.memory", 5003),
    ("GetDefaultApplicationsClock", "3", "default_clock.video", 5004),
    ("GetMaxCustomerBoostClock", "0", "boost_clock.graphics", 6001),
    ("GetClock", "1, 3", "boost_clock.sm", 6002),
    ("GetMaxCustomerBoostClock", "2", "boost_clock.memory", 6003),
    ("GetMaxCustomerBoostClock", "3", "boost_clock.video", 6004),
    ("GetClock", "0, 0", "clock.graphics", 2001),
    ("GetFanSpeed", "", "fan_speed", 120),
    ("GetFanSpeed_v2", "0", "fan_speed.0", 31),
    ("GetFanSpeed_v2", "1", "fan_speed.1", 32),
    ("GetFanSpeed_v2", "2", "fan_speed.2", 33),
    ("GetFanSpeed_v2", "3", "fan_speed.3", 34),
    ("GetNumFans", "", "fans", 4),
    ("GetPerformanceState", "", "performance_state", 2),
    ("GetPowerState", "", "performance_state", 2),
    ("GetCurrentClocksEventReasons", "", "clocks_event_reasons", 0x44),
    ("GetCurrentClocksThrottleReasons", "", "clocks_event_reasons", 0x44),
    ("GetSupportedClocksEventReasons", "", "clocks_event_reasons.supported", 0x1FF),
    ("GetSupportedClocksThrottleReasons", "", "clocks_event_reasons.supported", 0x1FF),
    ("GetEccMode", "", "ecc_mode", [1, 1]),
    ("GetTotalEccErrors", "0, 0", "ecc.volatile.corrected", 11),
    ("GetTotalEccErrors", "1, 0", "ecc.volatile.uncorrected", 12),
    ("GetTotalEccErrors", "0, 1", "ecc.aggregate.corrected", 13),
    ("GetTotalEccErrors", "1, 1", "ecc.aggregate.uncorrected", 5_000_000_000),
    ("GetMemoryErrorCounter", "0, 0, 0", "ecc.volatile.corrected.l1", 20),
    ("GetMemoryErrorCounter", "1, 0, 1", "ecc.volatile.uncorrected.l2", 21),
    ("GetMemoryErrorCounter", "0, 1, 2", "ecc.aggregate.corrected.dram", 22),
    ("GetMemoryErrorCounter", "1, 1, 3", "ecc.aggregate.uncorrected.register", 23),
    ("GetMemoryErrorCounter", "0, 0, 4", "ecc.volatile.corrected.texture", 24),
    ("GetMemoryErrorCounter", "1, 0, 5", "ecc.volatile.uncorrected.shared", 25),
    ("GetMemoryErrorCounter", "0, 1, 6", "ecc.aggregate.corrected.cbu", 26),
    ("GetMemoryErrorCounter", "1, 1, 7", "ecc.aggregate.uncorrected.sram", 27),
    ("GetRetiredPages", "0", "retired_pages.corrected", [0x1000, 0x2000]),
    ("GetRetiredPages", "1", "retired_pages.uncorrected", []),
    ("GetRetiredPagesPendingStatus", "", "retired_pages.pending", 1),
    ("GetComputeMode", "", "compute_mode", 3),
    ("GetPersistenceMode", "", "persistence_mode", 1),
    ("GetDisplayMode", "", "display_mode", 0),
    ("GetDisplayActive", "", "display_active", 1),
    ("GetDriverModel", "", "driver_model", [1, 1]),
    ("GetVirtualizationMode", "", "virtualization_mode", 2),
    ("GetAccountingMode", "", "accounting_mode", 1),
    ("GetEncoderUtilization", "", "utilization.encoder", [21, 167000]),
    ("GetDecoderUtilization", "", "utilization.decoder", [22, 167000]),
    ("GetJpgUtilization", "", "utilization.jpg", [23, 167000]),
    ("GetOfaUtilization", "", "utilization.ofa", [24, 167000]),
    ("GetCurrPcieLinkGeneration", "", "pcie.generation", 3),
    ("GetCurrPcieLinkWidth", "", "pcie.width", 8),
    ("GetMaxPcieLinkGeneration", "", "pcie.max_generation", 4),
    ("GetMaxPcieLinkWidth", "", "pcie.max_width", 16),
    ("GetGpuMaxPcieLinkGeneration", "", "pcie.gpu_max_generation", 5),
    ("GetPcieThroughput", "0", "pcie.sent", 31),
    ("GetPcieThroughput", "1", "pcie.received", 32),
    ("GetPcieReplayCounter", "", "pcie.replays", 33),
    ("GetMigMode", "", "mig_mode", [0, 0]),
    ("GetSupportedEventTypes", "", "event_types.supported", 0xB),
    ("GetGpuInstanceId", "", "gpu_instance_id", 9),
    ("GetComputeInstanceId", "", "compute_instance_id", 1),
]
NEEDS_SEVERAL = [
    ("GetCudaComputeCapability", ""),
    ("GetPowerManagementLimitConstraints", ""),
    ("GetUtilizationRates", ""),
    ("GetMemoryInfo", ""),
    ("GetMemoryInfo", ", n.nvmlMemory_v2"),
    ("GetBAR1MemoryInfo", ""),
    ("GetRemappedRows", ""),
    ("GetRowRemapperHistogram", ""),
    ("GetPciInfo", ""),
    ("GetAttributes", ""),
]
ASK_ALL = "tell([{}])".format(
    ", ".join(f'ask("Device{name}", device(), {arguments})' for name, arguments, _, _ in ANSWERS)
)


def test_every_key_answers_through_its_function(tmp_path: Path) -> None:
    gpu = Gpu()
    for name, _, key, answer in ANSWERS:
        value = answer[0] if isinstance(answer, list) and answer else answer
        gpu[key] = len(answer) if "RetiredPages" in name and isinstance(answer, list) else value

    assert told(ASK_ALL, Scenario([gpu]), tmp_path) == [answer for *_, answer in ANSWERS]


def test_an_absent_key_is_not_supported(tmp_path: Path) -> None:
    several = "tell([{}])".format(
        ", ".join(f'ask("Device{name}", device(){more})' for name, more in NEEDS_SEVERAL)
    )

    assert set(told(ASK_ALL, Scenario([Gpu()]), tmp_path)) == {"error 3"}
    assert set(told(several, Scenario([Gpu()]), tmp_path)) == {"error 3"}


def test_a_key_can_answer_an_error_of_its_own(tmp_path: Path) -> None:
    gpu = h100(0)
    gpu["temperature"] = "error 999"
    gpu["name"] = "error GPU_IS_LOST"
    gpu["memory.used"] = "error NVML_ERROR_NO_PERMISSION"
    script = """tell([ask("DeviceGetTemperature", device(), 0), ask("DeviceGetName", device()),
                      ask("DeviceGetMemoryInfo", device()),
                      ask("DeviceGetPowerUsage", device())])"""

    assert told(script, Scenario([gpu]), tmp_path) == ["error 999", "error 15", "error 4", 71000]


def test_records_of_several_keys(tmp_path: Path) -> None:
    gpu = h100(0)
    gpu["utilization.gpu"], gpu["utilization.memory"] = 97, 61
    gpu["power_limit.min"], gpu["power_limit.max"] = "200W", "700.5W"
    gpu["remapped_rows.uncorrected"], gpu["remapped_rows.failure"] = 4, "yes"
    for number, name in enumerate(("max", "high", "partial", "low", "none")):
        gpu[f"row_remapper.{name}"] = 640 + number
    gpu["gpm_supported"] = 0
    script = """
h = device()
use, rows, bar1 = (ask("DeviceGet" + f, h) for f in
                   ("UtilizationRates", "RowRemapperHistogram", "BAR1MemoryInfo"))
tell([use.gpu, use.memory, ask("DeviceGetPowerManagementLimitConstraints", h),
      ask("DeviceGetRemappedRows", h), [rows.max, rows.high, rows.partial, rows.low, rows.none],
      ask("DeviceGetCudaComputeCapability", h), [bar1.bar1Total, bar1.bar1Used, bar1.bar1Free],
      ask("GpmQueryDeviceSupport", h).isSupportedDevice, ask("DeviceGetIndex", h)])
"""

    assert told(script, Scenario([gpu]), tmp_path) == [
        97,
        61,
        [200000, 700500],
        [0, 4, 0, 1],
        [640, 641, 642, 643, 644],
        [9, 0],
        [131072 * MIB, MIB, 131071 * MIB],
        0,
        0,
    ]


def test_the_first_memory_version_counts_the_reserve_as_used(tmp_path: Path) -> None:
    gpu = h100(0)
    gpu["memory.used"], gpu["memory.reserved"] = "8MiB", "904MiB"
    script = """
h = device()
one, two = ask("DeviceGetMemoryInfo", h), ask("DeviceGetMemoryInfo", h, n.nvmlMemory_v2)
tell([m // 2**20 for m in (one.total, one.used, one.free, two.used, two.reserved, two.free)]
     + [ask("DeviceGetMemoryInfo", h, 0x01000028)])
"""
    numbers = [81559, 912, 81559 - 912, 8, 904, 81559 - 912]

    assert told(script, Scenario([gpu]), tmp_path) == [*numbers, "error 25"]


def test_unified_memory_is_not_supported_in_either_version(tmp_path: Path) -> None:
    script = """tell([ask("DeviceGetMemoryInfo", device()),
                      ask("DeviceGetMemoryInfo", device(), n.nvmlMemory_v2)])"""

    assert told(script, Scenario([gb10(0)]), tmp_path) == ["error 3", "error 3"]


def test_texts_may_hold_any_bytes(tmp_path: Path) -> None:
    scenario = Scenario([h100(0), h100(1), h100(2)])
    scenario.gpus[0]["name"] = b"\xf8\x01 NVIDIA"
    scenario.gpus[1]["name"] = " GPU # 1 \\ \t\n\u00e9 "
    script = """
n.nvmlDeviceGetName(device(2))
try:
    n.nvmlDeviceGetName(device(0))
except UnicodeDecodeError as error:
    tell([error.object.hex(), ask("DeviceGetName", device(1))])
"""

    assert told(script, scenario, tmp_path) == [
        b"\xf8\x01 NVIDIA".hex(),
        " GPU # 1 \\ \t\n\u00e9 ",
    ]


def test_readings_may_be_absurd(tmp_path: Path) -> None:
    gpu = rtx(0)
    gpu["fan_speed"], gpu["temperature"], gpu["power_usage"] = 1450, 510, 4294967295
    gpu["clock.sm"] = "not_available"
    gpu["clocks_event_reasons"] = "sw_power_cap+hw_thermal_slowdown"
    script = """tell([ask("DeviceGetFanSpeed", device()), ask("DeviceGetTemperature", device(), 0),
                      ask("DeviceGetPowerUsage", device()), ask("DeviceGetClockInfo", device(), 1),
                      ask("DeviceGetCurrentClocksEventReasons", device())])"""

    assert told(script, Scenario([gpu]), tmp_path) == [1450, 510, 4294967295, 4294967295, 0x44]


def test_pci_info_follows_the_bus_id(tmp_path: Path) -> None:
    gpu = h100(0)
    gpu["pci.bus_id"], gpu["pci.subsystem_id"] = "0000000F:B5:01.0", "0x16C110DE"
    script = """
pci = ask("DeviceGetPciInfo", device())
ext = n.nvmlPciInfoExt_v1_t(version=n.nvmlPciInfoExt_v1)
n.nvmlDeviceGetPciInfoExt(device(), ctypes.byref(ext))
tell([pci.busId, pci.busIdLegacy, pci.domain, pci.bus, pci.device, pci.pciDeviceId,
      pci.pciSubSystemId, ext.busId, ext.bus, ext.pciDeviceId])
"""
    ids = ["0000000F:B5:01.0", "000F:B5:01.0", 0xF, 0xB5, 1, 0x233010DE, 0x16C110DE]

    assert told(script, Scenario([gpu]), tmp_path) == [*ids, "0000000F:B5:01.0", 0xB5, 0x233010DE]


def test_handles_by_uuid_bus_id_and_serial(tmp_path: Path) -> None:
    scenario = Scenario([h100(0), h100(1)])
    scenario.gpus[1]["uuid"] = "GPU-abc"
    script = """
found = [ask("DeviceGetHandleByUUID", "GPU-abc"),
         ask("DeviceGetHandleByPciBusId", "00000000:28:00.0"),
         ask("DeviceGetHandleByPciBusId", "0000:28:00.0"),
         ask("DeviceGetHandleBySerial", "1650000000001")]
tell([ask("DeviceGetIndex", handle) for handle in found]
     + [ask("DeviceGetHandleByUUID", "GPU-none"), ask("DeviceGetHandleByPciBusId", "0000:29:00.0"),
        device(2), device(999), ask("DeviceGetName", None)])
"""
    unknown = ["error 6", "error 6", "error 2", "error 2", "error 2"]

    assert told(script, scenario, tmp_path) == [1, 1, 1, 1, *unknown]


def test_field_values_come_from_the_keys_or_from_their_own(tmp_path: Path) -> None:
    gpu = h100(0)
    gpu["ecc.volatile.uncorrected"] = 5_000_000_000
    gpu["field.POWER_INSTANT"] = "412.5W"
    gpu["field.PCIE_REPLAY_COUNTER"] = "error 999"
    gpu["field.193"] = -10
    gpu["field.9999"] = 77
    script = """
asked = [n.NVML_FI_DEV_ECC_DBE_VOL_TOTAL, n.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
         n.NVML_FI_DEV_POWER_AVERAGE, n.NVML_FI_DEV_POWER_INSTANT, n.NVML_FI_DEV_MEMORY_TEMP,
         n.NVML_FI_DEV_REMAPPED_FAILURE, 193, 9999]
refused = [n.NVML_FI_DEV_PCIE_REPLAY_COUNTER, n.NVML_FI_DEV_RETIRED_DBE, 12345,
           (n.NVML_FI_DEV_POWER_INSTANT, 1)]
attribute = {1: "uiVal", 3: "ullVal", 5: "siVal"}
values = ask("DeviceGetFieldValues", device(), asked + refused)
tell([[getattr(v.value, attribute[v.valueType]) for v in values[:len(asked)]],
      [v.nvmlReturn for v in values],
      all(abs(v.timestamp / 1e6 - time.time()) < 60 for v in values)])
"""

    assert told(script, Scenario([gpu]), tmp_path) == [
        [5_000_000_000, 8123456000, 71000, 412500, 40, 0, -10, 77],
        [0] * 8 + [999, 3, 3, 3],
        True,
    ]


def test_the_driver_section(tmp_path: Path) -> None:
    script = """tell([ask("SystemGetDriverVersion"), ask("SystemGetNVMLVersion"),
                      ask("SystemGetCudaDriverVersion"), ask("SystemGetCudaDriverVersion_v2"),
                      ask("DeviceGetCount"), ask("ErrorString", 15)])"""
    scenario = Scenario([])
    scenario.values["cuda_version"] = 12090

    assert told(script, scenario, tmp_path) == [
        "550.54.15",
        "12.550.54.15",
        12090,
        12090,
        0,
        "GPU is lost",
    ]
    bare = Scenario(values={})
    assert told(script, bare, tmp_path) == [*["error 3"] * 4, 0, "GPU is lost"]


def test_mig_instances_are_devices_with_values_of_their_own(tmp_path: Path) -> None:
    scenario = Scenario([mig(h100(0), "3g.40gb", "1g.10gb"), h100(1)])
    scenario.gpus[0].mig[1]["uuid"] = "MIG-abc"
    scenario.gpus[0]["mig_mode.pending"] = "off"
    script = """
parent = device(0)
instances = [ask("DeviceGetMigDeviceHandleByIndex", parent, i) for i in range(3)]
first, second = instances[:2]
attributes = ask("DeviceGetAttributes", first)
tell([ask("DeviceGetMigMode", parent), ask("DeviceGetMaxMigDeviceCount", parent), instances[2],
      ask("DeviceGetUtilizationRates", parent), ask("DeviceGetProcessUtilization", parent, 0),
      ask("DeviceGetName", first), ask("DeviceGetMemoryInfo", second).total // 2**20,
      ask("DeviceGetGpuInstanceId", second), ask("DeviceGetComputeInstanceId", second),
      ask("DeviceGetTemperature", first, 0), ask("DeviceGetIndex", second),
      [attributes.multiprocessorCount, attributes.gpuInstanceSliceCount, attributes.memorySizeMB],
      ask("DeviceIsMigDeviceHandle", first).value, ask("DeviceIsMigDeviceHandle", parent).value,
      ask("DeviceGetIndex", ask("DeviceGetDeviceHandleFromMigDeviceHandle", second)),
      ask("DeviceGetName", ask("DeviceGetHandleByUUID", "MIG-abc")),
      ask("DeviceGetMigMode", device(1)), ask("DeviceGetMaxMigDeviceCount", device(1)),
      ask("DeviceGetMigDeviceHandleByIndex", device(1), 0)])
"""

    assert told(script, scenario, tmp_path) == [
        [1, 0],
        7,
        "error 6",
        "error 3",
        "error 3",
        "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
        9856,
        8,
        0,
        "error 3",
        1,
        [60, 3, 40448],
        1,
        0,
        0,
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        [0, 0],
        0,
        "error 6",
    ]


def test_a_changed_file_is_in_force_with_the_next_call(tmp_path: Path) -> None:
    script = """
scenario = Scenario([mig(h100(0), "1g.10gb"), h100(1)])
parent, last = device(0), device(1)
instance = ask("DeviceGetMigDeviceHandleByIndex", parent, 0)
before = [ask("DeviceGetCount"), ask("DeviceGetTemperature", parent, 0)]
scenario.gpus[0]["temperature"] = 77
del scenario.gpus[0].mig[0]
del scenario.gpus[1]
scenario.write(path)
tell(before + [ask("DeviceGetCount"), ask("DeviceGetTemperature", parent, 0),
               ask("DeviceGetName", instance), ask("DeviceGetName", last), device(1)])
"""
    scenario = Scenario([mig(h100(0), "1g.10gb"), h100(1)])

    assert told(script, scenario, tmp_path) == [2, 31, 1, 77, "error 6", "error 15", "error 2"]


def test_nothing_but_init_works_uninitialized(tmp_path: Path) -> None:
    script = """
n._LoadNvmlLibrary()
before = [ask("DeviceGetCount"), device(0), ask("SystemGetDriverVersion"), ask("Shutdown")]
n.nvmlInit()
n.nvmlInit()
handle = device(0)
n.nvmlShutdown()
between = ask("DeviceGetName", handle)
n.nvmlShutdown()
tell(before + [between, ask("DeviceGetName", handle), ask("DeviceGetCount"), ask("Shutdown")])
"""

    assert told(script, Scenario([h100(0)]), tmp_path, init=False) == [
        *["error 1"] * 4,
        "NVIDIA H100 80GB HBM3",
        *["error 1"] * 3,
    ]


def test_without_a_scenario_the_driver_is_not_loaded(tmp_path: Path) -> None:
    done = run('tell(ask("Init"))', tmp_path / "none.scenario", tmp_path, init=False)

    assert done.stdout == '"error 9"\n'
    assert "none.scenario: can't be read: No such file" in done.stderr
    unset = 'del os.environ["FAKE_NVML_SCENARIO"]\ntell(ask("Init"))'
    assert told(unset, Scenario([h100(0)]), tmp_path, init=False) == "error 9"


BROKEN = {
    "gpu 0\n  temperatur = 4": '2: unknown key "temperatur" in a gpu section',
    "driver\ncolour = red": '2: unknown key "colour" in the driver section',
    "gpu 0\n\n  fans = many": '3: fans: can\'t use "many": expected a number',
    "gpu 0\n  fans = 1XB": '2: fans: can\'t use "1XB": expected a number',
    "gpu 0\n  power_usage = 71.5": '2: power_usage: can\'t use "71.5": expected a number',
    "gpu 0\n  fans =": "2: fans has no value; leave the line out where it is unknown",
    "gpu 0\n  fans = 1\n  fans = 2": "3: fans is given twice",
    "gpu 0\n  name = \\xg0": '2: name: can\'t use "\\xg0": expected a text',
    "gpu 0\n  name = error 0": "2: name: can't use",
    "gpu 1": "1: GPUs are numbered 0, 1, 2, ... up to 63: expected gpu 0",
    "gpu 0\ngpu 0": "2: GPUs are numbered 0, 1, 2, ... up to 63: expected gpu 1",
    "gpu 0 like 1": '1: expected "gpu 0" or "gpu 0 like N" with an earlier GPU N',
    "mig 0": '1: a mig section stands below the "gpu N" that it belongs to',
    "gpu 0\nmig 0\nmig 0": "3: gpu 0 has a mig 0 already",
    "gpu zero": '1: expected "key = value"',
    "hello": '1: expected "key = value"',
    "fail = nvmlDeviceGetNme 3": '1: "nvmlDeviceGetNme" matches no function',
    "fail = nvmlDeviceGetName WRONG": "1: expected an error code or name after the function",
    "fail = nvmlDeviceGetName 3 often": "1: expected times=N, after=N or on=size|fill",
    "slow = nvmlInit soon": "1: expected milliseconds after the function",
    "missing = nvmlNothing": '1: "nvmlNothing" matches no function',
    "process_layout = v9": '1: process_layout is normal, 535 or v1, found "v9"',
    "gpu 0\nprocess = self": '2: expected a pid, found "self"',
    "gpu 0\nprocess = 1 kind=game": "2: a process takes kind=compute|graphics|mps",
    "gpu 0\nsample = 1 age=old": "2: a sample takes sm",
    "gpu 0\nevent = party": "2: expected an event type",
    "gpu 0\nfield.NONSENSE = 1": '2: unknown field "NONSENSE"',
    "gpu 0\nlost = perhaps": '2: lost is yes or no, found "perhaps"',
}


@pytest.mark.parametrize("chunk", [list(BROKEN)[start::4] for start in range(4)])
def test_a_broken_file_is_reported_and_the_last_good_one_stays(
    chunk: list[str], tmp_path: Path
) -> None:
    script = f"""
for text in {chunk!r}:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)
    assert ask("DeviceGetTemperature", device(0), 0) == 31
    print("--", file=sys.stderr)
"""
    done = run(script, Scenario([h100(0)]), tmp_path)

    assert done.returncode == 0, done.stderr
    reports = done.stderr.split("--\n")[:-1]
    for text, report in zip(chunk, reports, strict=True):
        start = f"fake NVML: {tmp_path / 'test.scenario'}:{BROKEN[text]}"
        assert report.startswith(start)
        assert report.endswith("; the last good scenario stays in force\n")
        assert report.count("\n") == 1, "reported once"


def test_a_gpu_may_be_like_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "like.scenario"
    path.write_text(
        "gpu 0\n name = A\n fans = 3\n temperature = 40\n field.185 = 9\n lost = yes\n"
        "gpu 1 like 0  # but another name\n name = B\n temperature = absent\n"
    )
    script = """tell([device(0), ask("DeviceGetName", device(1)),
                      ask("DeviceGetNumFans", device(1)),
                      ask("DeviceGetTemperature", device(1), 0),
                      ask("DeviceGetFieldValues", device(1), [185])[0].value.uiVal])"""

    assert told(script, path, tmp_path) == ["error 15", "B", 3, "error 3", 9]


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_ready_scenarios_are_good(path: Path, tmp_path: Path) -> None:
    done = run('tell([str(device(i)) for i in range(ask("DeviceGetCount"))])', path, tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.count("error 15") == path.read_text().count("lost = yes")
    assert done.stdout.count(",") == max(path.read_text().count("\ngpu ") - 1, 0)


def test_every_listed_function_is_exported(tmp_path: Path) -> None:
    script = f"""
library = ctypes.CDLL("libnvidia-ml.so.1")
tell([name for name in {FUNCTIONS!r} if not hasattr(library, name)])
"""

    assert len(FUNCTIONS) > 100
    assert told(script, Scenario([]), tmp_path) == []


def test_the_manual_names_every_function_and_key() -> None:
    manual = (FOLDER / "README.md").read_text()
    families = {re.sub(r"_v\d$", "", name) for name in FUNCTIONS}

    assert len(KEYS) > 100
    assert [name for name in sorted(families) if not re.search(rf"\b{name}\b", manual)] == []
    for key in KEYS:
        start, _, end = key.rpartition(".")
        assert f"`{key}`" in manual or (start in manual and f".{end}`" in manual), key
