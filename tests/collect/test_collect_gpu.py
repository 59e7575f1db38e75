"""Each field of a GPU alone: values, unknowns and reasons."""

from __future__ import annotations

from types import SimpleNamespace

import pynvml
import pytest
from fake_nvml.scenario import MIB, gb10, h100, rtx

from gpumon.collect import nvml

FIELDS_BY_CALL = {
    "nvmlDeviceGetUUID": ["uuid"],
    "nvmlDeviceGetName": ["name"],
    "nvmlDeviceGetPciInfo": ["pci_bus_id"],
    "nvmlDeviceGetMemoryInfo": [
        "memory_total_mib",
        "memory_used_mib",
        "memory_reserved_mib",
        "memory_free_mib",
    ],
    "nvmlDeviceGetUtilizationRates": ["utilization_percent", "memory_utilization_percent"],
    "nvmlDeviceGetEncoderUtilization": ["encoder_utilization_percent"],
    "nvmlDeviceGetDecoderUtilization": ["decoder_utilization_percent"],
    "nvmlDeviceGetTemperature": ["temperature_celsius"],
    "nvmlDeviceGetPowerUsage": ["power_draw_watts"],
    "nvmlDeviceGetEnforcedPowerLimit": ["enforced_power_limit_watts"],
    "nvmlDeviceGetClockInfo": ["sm_clock_mhz", "memory_clock_mhz"],
    "nvmlDeviceGetFanSpeed": ["fan_speed_percent"],
    "nvmlDeviceGetPerformanceState": ["performance_state"],
    "nvmlDeviceGetCurrentClocks*Reasons": ["clock_event_reasons"],
    "nvmlDeviceGetEccMode": ["ecc_mode"],
    "nvmlDeviceGetComputeMode": ["compute_mode"],
    "nvmlDeviceGetPersistenceMode": ["persistence_mode"],
    "nvmlDeviceGetCurrPcieLinkGeneration": ["pcie_generation"],
    "nvmlDeviceGetCurrPcieLinkWidth": ["pcie_width"],
    "nvmlDeviceGetMigMode": ["mig_mode"],
    "nvmlDeviceGetComputeRunningProcesses": ["processes"],
}
READ = [field for fields in FIELDS_BY_CALL.values() for field in fields] + [
    "ecc_volatile_corrected",
    "ecc_volatile_uncorrected",
    "ecc_aggregate_corrected",
    "ecc_aggregate_uncorrected",
    "remapped_rows_corrected",
    "remapped_rows_uncorrected",
    "remapped_rows_pending",
    "remapped_rows_failure",
    "retired_pages_corrected",
    "retired_pages_uncorrected",
    "retired_pages_pending",
    "recovery_action",
]


def full_gpu():
    gpu = h100(0)
    gpu["fan_speed"] = 30
    gpu["retired_pages.corrected"], gpu["retired_pages.uncorrected"] = 2, 1
    gpu["retired_pages.pending"] = 0
    gpu["field.GET_GPU_RECOVERY_ACTION"] = 0
    return gpu


def test_every_field_of_a_full_gpu_is_read(host):
    host.start(full_gpu()).gpus[0]["clocks_event_reasons"] = "gpu_idle+hw_slowdown"
    gpu = host.gpu()
    assert gpu.unknown == {}
    assert gpu.error is None
    assert {field: getattr(gpu, field) for field in READ} == {
        "uuid": host.scenario.gpus[0]["uuid"],
        "name": "NVIDIA H100 80GB HBM3",
        "pci_bus_id": "00000000:17:00.0",
        "memory_total_mib": 81559,
        "memory_used_mib": 0,
        "memory_reserved_mib": 551,
        "memory_free_mib": 81008,
        "utilization_percent": 0,
        "memory_utilization_percent": 0,
        "encoder_utilization_percent": 0,
        "decoder_utilization_percent": 0,
        "temperature_celsius": 31,
        "power_draw_watts": 71.0,
        "enforced_power_limit_watts": 700.0,
        "sm_clock_mhz": 345,
        "memory_clock_mhz": 2619,
        "fan_speed_percent": 30,
        "performance_state": 0,
        "clock_event_reasons": ["gpu_idle", "hw_slowdown"],
        "ecc_mode": True,
        "compute_mode": "default",
        "persistence_mode": True,
        "pcie_generation": 5,
        "pcie_width": 16,
        "mig_mode": False,
        "processes": [],
        "ecc_volatile_corrected": 0,
        "ecc_volatile_uncorrected": 0,
        "ecc_aggregate_corrected": 0,
        "ecc_aggregate_uncorrected": 0,
        "remapped_rows_corrected": 0,
        "remapped_rows_uncorrected": 0,
        "remapped_rows_pending": False,
        "remapped_rows_failure": False,
        "retired_pages_corrected": 2,
        "retired_pages_uncorrected": 1,
        "retired_pages_pending": False,
        "recovery_action": "none",
    }


@pytest.mark.parametrize("call", FIELDS_BY_CALL)
@pytest.mark.parametrize("code", [nvml.NOT_SUPPORTED, nvml.UNKNOWN])
def test_a_field_that_fails_costs_itself_only(host, call, code):
    host.start(full_gpu()).fail(call, code, gpu=0)
    gpu = host.gpu()
    failed = FIELDS_BY_CALL[call]
    assert gpu.error is None
    assert [getattr(gpu, field) for field in failed] == [None] * len(failed)
    reason = "not supported" if code == nvml.NOT_SUPPORTED else "unknown error of the driver"
    told = dict.fromkeys(failed, reason)
    if "mig_mode" in failed and code == nvml.UNKNOWN:
        told["mig"] = reason  # it may have instances
    assert gpu.unknown == told
    assert [field for field in READ if getattr(gpu, field) is None] == failed


def test_a_full_and_a_minimal_gpu_stand_side_by_side(host):
    minimal = rtx(1)
    for key in [key for key in minimal.values if key not in ("name", "uuid", "pci.bus_id")]:
        del minimal[key]
    host.start(h100(0), minimal)
    full, poor = host.sample().gpus
    assert full.temperature_celsius == 31
    assert (poor.name, poor.temperature_celsius, poor.memory_total_mib) == (
        "NVIDIA GeForce RTX 4090",
        None,
        None,
    )
    assert poor.unknown["temperature_celsius"] == "not supported"
    assert not poor.unified_memory


def test_unified_memory_is_recognised_by_name_and_answer_together(host):
    discrete = gb10(1)
    discrete["name"] = "NVIDIA GeForce RTX 4090"
    nameless = gb10(2)
    del nameless["name"]
    orin = gb10(3)
    orin["name"] = "Orin (nvgpu)"
    similar = gb10(4)
    similar["name"] = "NVIDIA GB100"
    host.start(gb10(0), discrete, nameless, orin, similar)
    gpus = host.sample().gpus
    assert [gpu.unified_memory for gpu in gpus] == [True, False, False, True, False]
    assert {gpu.memory_total_mib for gpu in gpus} == {None}
    assert gpus[0].unknown["memory_used_mib"] == "unified memory: GPU and host share it"
    assert gpus[1].unknown["memory_used_mib"] == "not supported"


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_unified_part_whose_memory_fails_otherwise_is_unknown(host, version):
    host.start(gb10(0)).fail(f"nvmlDeviceGetMemoryInfo_{version}", nvml.UNKNOWN, gpu=0)
    gpu = host.gpu()
    assert not gpu.unified_memory
    assert gpu.unknown["memory_total_mib"] == "unknown error of the driver"


@pytest.mark.parametrize("answer", [b"Tesla V100", "Tesla V100"])
def test_bytes_and_text_of_the_binding_are_both_text(answer):
    assert nvml.as_text(answer) == "Tesla V100"


@pytest.mark.parametrize("made", [str, lambda text: text.encode()], ids=["str", "bytes"])
def test_every_text_of_a_gpu_and_of_the_driver_may_be_bytes(monkeypatch, made):
    """Bindings up to 11.5 gave bytes, newer ones text; the fake only has today's."""
    texts = {
        "nvmlDeviceGetName": "Tesla V100",
        "nvmlDeviceGetUUID": "GPU-8a3e",
        "nvmlSystemGetDriverVersion": "470.57",
    }
    for name, text in texts.items():
        monkeypatch.setattr(pynvml, name, lambda *_, text=text: made(text))
        assert nvml.text(name) == text
    info = SimpleNamespace(busId=made("00000000:65:00.0"))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetPciInfo", lambda _: info)
    assert nvml.bus_id(None) == "00000000:65:00.0"


def test_bytes_that_do_not_decode_are_unknown_whichever_way_they_come(host):
    host.start(full_gpu()).gpus[0]["name"] = b"\xf8\x01"
    gpu = host.gpu()
    assert (gpu.name, gpu.temperature_celsius) == (None, 31)
    assert gpu.unknown == {"name": "the driver's text does not decode as UTF-8"}
    assert nvml.as_text(b"\xf8\x01") == nvml.Unknown("the driver's text does not decode as UTF-8")


def test_nothing_unprintable_of_the_driver_reaches_a_field(host):
    host.start(full_gpu()).gpus[0]["name"] = b"NVIDIA \x1b[31mH100\n80GB"
    assert host.gpu().name == "NVIDIA \ufffd[31mH100 80GB"


def test_an_exception_that_is_not_nvmls_is_a_reason_too():
    answer = nvml.call("nvmlDeviceGetTemperature", "no handle", 0)
    assert isinstance(answer, nvml.Unknown)
    assert nvml.call("nvmlThereIsNoSuchFunction").reason.startswith("not offered")


def test_the_drivers_reserve_is_not_counted_as_used(host):
    gpu = host.start(h100(0)).gpus[0]
    gpu["memory.used"], gpu["memory.reserved"] = 8 * MIB, 904 * MIB
    read = host.gpu()
    assert (read.memory_used_mib, read.memory_reserved_mib) == (8, 904)


def test_a_driver_without_the_newer_memory_call_gives_used_with_the_reserve(make_host):
    host = make_host(driver="470")
    gpu = host.start(h100(0)).gpus[0]
    gpu["memory.used"], gpu["memory.reserved"] = 8 * MIB, 904 * MIB
    read = host.gpu()
    assert (read.memory_used_mib, read.memory_reserved_mib) == (912, None)
    assert read.unknown["memory_reserved_mib"] == "the driver counts its reserve as used"


@pytest.mark.parametrize(
    ("key", "found", "field", "words"),
    [
        ("fan_speed", 1450, "fan_speed_percent", "1450"),
        ("temperature", 255, "temperature_celsius", "255"),
        ("temperature", 510, "temperature_celsius", "510"),
        ("power_usage", 4294967295, "power_draw_watts", "4294967295"),
        ("power_usage", "1401W", "power_draw_watts", "1401000"),
        ("power_limit.enforced", 0, "enforced_power_limit_watts", "0"),
        ("utilization.gpu", 101, "utilization_percent", "101"),
        ("utilization.memory", 4294967, "memory_utilization_percent", "4294967"),
        ("utilization.encoder", 200, "encoder_utilization_percent", "200"),
        ("clock.sm", 4294967295, "sm_clock_mhz", "4294967295"),
        ("performance_state", 32, "performance_state", "32"),
        ("compute_mode", 7, "compute_mode", "7"),
        ("persistence_mode", 2, "persistence_mode", "2"),
        ("mig_mode", 5, "mig_mode", "5"),
        ("pcie.width", 0, "pcie_width", "0"),
        ("ecc.volatile.uncorrected", 2**64 - 1, "ecc_volatile_uncorrected", "1844674407370955161"),
        ("memory.used", 90000 * MIB, "memory_used_mib", "bytes"),
    ],
)
def test_a_value_out_of_range_is_unknown_with_what_was_found(host, key, found, field, words):
    host.start(full_gpu()).gpus[0][key] = found
    gpu = host.gpu()
    assert getattr(gpu, field) is None
    assert gpu.unknown[field].startswith("out of range (found ")
    assert words in gpu.unknown[field]


def test_a_fan_may_pass_its_nominal_maximum(host):
    host.start(full_gpu()).gpus[0]["fan_speed"] = 112
    assert host.gpu().fan_speed_percent == 112


def test_ecc_counts_come_one_by_one_where_fields_are_not_offered(make_host):
    host = make_host(missing=("nvmlDeviceGetFieldValues",))
    gpu = host.start(h100(0)).gpus[0]
    gpu["ecc.volatile.corrected"], gpu["ecc.aggregate.uncorrected"] = 3, 5
    read = host.gpu()
    assert (read.ecc_volatile_corrected, read.ecc_volatile_uncorrected) == (3, 0)
    assert (read.ecc_aggregate_corrected, read.ecc_aggregate_uncorrected) == (0, 5)


def test_one_ecc_count_that_fails_leaves_the_other(host):
    gpu = host.start(h100(0)).gpus[0]
    gpu["ecc.volatile.uncorrected"] = 2
    gpu["field.ECC_SBE_VOL_TOTAL"] = "error 999"
    read = host.gpu()
    assert (read.ecc_volatile_corrected, read.ecc_volatile_uncorrected) == (None, 2)
    assert read.unknown["ecc_volatile_corrected"] == "unknown error of the driver"


def test_clock_event_reasons_are_words_and_none_is_an_empty_list(host):
    gpu = host.start(h100(0)).gpus[0]
    gpu["clocks_event_reasons"] = "sw_power_cap+hw_thermal_slowdown"
    assert host.gpu().clock_event_reasons == ["sw_power_cap", "hw_thermal_slowdown"]
    gpu["clocks_event_reasons"] = 0
    assert host.gpu().clock_event_reasons == []
    gpu["clocks_event_reasons"] = 0x10001
    assert host.gpu().clock_event_reasons == ["gpu_idle", "other_0x10000"]


def test_an_older_driver_is_asked_by_its_older_names(make_host):
    host = make_host(driver="525")
    host.start(h100(0))
    assert host.gpu().clock_event_reasons == ["gpu_idle"]
