"""What broke other monitors on hosts of a kind that no other file here has."""

from __future__ import annotations

from fake_nvml.scenario import h100

from gpumon.collect import nvml


def test_a_guest_with_a_vgpu_shows_what_it_is_told_and_why_the_rest_is_unknown(host):
    host.start(h100(0), h100(1))
    for call in ("Power*", "Temperature", "FanSpeed", "UtilizationRates", "MigMode"):
        host.scenario.fail(f"nvmlDeviceGet{call}", nvml.NOT_SUPPORTED_WITH_VGPU, gpu=0)
    guest, card = host.sample().gpus
    assert (guest.error, card.error) == (None, None)
    assert (guest.utilization_percent, guest.temperature_celsius) == (None, None)
    assert guest.unknown["utilization_percent"] == "not supported with this vGPU"
    assert guest.memory_total_mib == card.memory_total_mib
    assert guest.processes == []
    assert card.utilization_percent is not None
