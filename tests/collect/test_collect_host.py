"""The host's own figures."""

from __future__ import annotations

import os

import psutil

from gpumon.collect import moment
from gpumon.collect.host import HostReader


def test_the_figures_of_this_host_are_read():
    errors: list[str] = []
    reader = HostReader()
    info = reader.read(moment.now(), errors)
    assert errors == []
    assert info.cpu_count == os.cpu_count()
    assert info.memory_total_mib == psutil.virtual_memory().total // 2**20
    assert 0 < info.memory_available_mib <= info.memory_total_mib
    assert 0 < info.disk_free_mib <= info.disk_total_mib
    assert info.load_1m is not None
    assert info.uptime_seconds > 0


def test_cpu_use_is_unknown_in_the_first_sample():
    reader = HostReader()
    assert reader.read(moment.now(), []).cpu_percent is None
    assert reader.read(moment.now(), []).cpu_percent is not None


def test_a_figure_that_cannot_be_read_costs_itself_only(monkeypatch):
    def broken(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(psutil, "disk_usage", broken)
    errors: list[str] = []
    info = HostReader().read(moment.now(), errors)
    assert (info.disk_total_mib, info.disk_free_mib) == (None, None)
    assert info.memory_total_mib is not None
    assert len(errors) == 1
    assert errors[0].startswith("The host's root file system could not be read: PermissionError")
