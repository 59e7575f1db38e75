"""Several values of one GPU that can't be."""

from __future__ import annotations

from fake_nvml.scenario import h100


def test_a_gpu_with_one_absurd_value_is_no_trouble_of_the_host_and_one_with_several_is(host):
    one, several = host.start(h100(0), h100(1)).gpus
    one["fan_speed"] = 1450
    for key, found in (("fan_speed", 1450), ("temperature", 510), ("clock.sm", 4_000_000_000)):
        several[key] = found
    snapshot = host.sample()
    (error,) = snapshot.errors
    assert "can't be, which are shown as unknown: GPU 1 (" in error
    for field in ("fan_speed_percent", "temperature_celsius", "sm_clock_mhz"):
        assert field in error
        assert getattr(snapshot.gpus[1], field) is None
    several["fan_speed"] = 30
    assert host.sample().errors == []
