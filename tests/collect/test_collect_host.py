"""The host's own figures."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from gpumon.collect import moment
from gpumon.collect.host import HostReader
from gpumon.model import HostInfo

MEMINFO = "MemTotal: 4096 kB\nMemFree: 1024 kB\nMemAvailable: 3072 kB\nBuffers: 1 kB\n"


class Proc:
    """A /proc of our own; its CPU counters are user, nice, system, idle, iowait, irq ..."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reader = HostReader(proc=str(folder))
        self.errors: list[str] = []
        self.memory(MEMINFO)

    def memory(self, text: str) -> None:
        (self.folder / "meminfo").write_text(text)

    def read(self, *counters: int) -> HostInfo:
        line = " ".join(map(str, counters))
        (self.folder / "stat").write_text(f"cpu  {line}\ncpu0 {line}\nintr 1 2 3\n")
        return self.reader.read(moment.now(), self.errors)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_the_figures_of_this_host_are_read() -> None:
    errors: list[str] = []
    info = HostReader().read(moment.now(), errors)
    assert errors == []
    assert info.cpu_count == os.cpu_count()
    assert info.memory_total_mib == psutil.virtual_memory().total // 2**20
    assert info.memory_available_mib is not None
    assert 0 < info.memory_available_mib <= info.memory_total_mib
    assert info.disk_total_mib == psutil.disk_usage("/").total // 2**20
    assert info.disk_free_mib is not None
    assert 0 < info.disk_free_mib <= info.disk_total_mib
    assert info.load_1m is not None
    assert info.uptime_seconds is not None
    assert info.uptime_seconds > 0


def test_cpu_use_is_what_was_not_idle_since_the_sample_before(proc: Proc) -> None:
    proc.read(100, 0, 100, 800, 0, 0, 0, 0, 0, 0)
    # 60 of 200 ticks were busy, 100 idle, 40 spent waiting for a disk; a guest's are a user's too.
    assert proc.read(150, 0, 110, 900, 40, 0, 0, 0, 50, 0).cpu_percent == 30.0
    assert proc.errors == []


def test_cpu_use_is_unknown_in_the_first_sample(proc: Proc) -> None:
    assert proc.read(100, 0, 100, 800, 0, 0, 0, 0).cpu_percent is None


def test_cpu_use_is_unknown_and_not_zero_where_no_time_has_passed(proc: Proc) -> None:
    counters = (100, 0, 100, 800, 0, 0, 0, 0)
    proc.read(*counters)
    assert proc.read(*counters).cpu_percent is None


def test_a_counter_that_runs_backwards_makes_no_negative_use(proc: Proc) -> None:
    proc.read(100, 0, 100, 800, 500, 0, 0, 0)
    assert proc.read(110, 0, 100, 890, 400, 0, 0, 0).cpu_percent == 10.0


def test_available_memory_of_another_machine_is_not_believed(proc: Proc) -> None:
    """Some containers show a total of their own beside the available memory of the host."""
    proc.memory("MemTotal: 4096 kB\nMemFree: 1024 kB\nMemAvailable: 99999 kB\n")
    info = proc.read(1, 0, 0, 1, 0)
    assert (info.memory_total_mib, info.memory_available_mib) == (4, 1)


@pytest.mark.parametrize("text", ["", "MemTotal: 4096 kB\n", "MemTotal: lots\n", "MemTotal:\n"])
def test_memory_that_is_not_told_is_unknown_with_a_sentence(proc: Proc, text: str) -> None:
    proc.memory(text)
    info = proc.read(1, 0, 0, 1, 0)
    assert (info.memory_total_mib, info.memory_available_mib) == (None, None)
    [error] = proc.errors
    assert error.startswith("The host's memory could not be read: ")


@pytest.mark.parametrize("line", ["", "cpu\n", "intr 1 2\n", "cpu a b c d e f\n"])
def test_counters_that_are_none_cost_cpu_use_only(proc: Proc, line: str) -> None:
    (proc.folder / "stat").write_text(line)
    info = proc.reader.read(moment.now(), proc.errors)
    assert info.cpu_percent is None
    assert info.memory_total_mib == 4
    [error] = proc.errors
    assert error.startswith("The host's CPU utilization could not be read: ValueError")


def test_a_figure_that_cannot_be_read_costs_itself_only(tmp_path: Path) -> None:
    errors: list[str] = []
    info = HostReader(root=str(tmp_path / "gone")).read(moment.now(), errors)
    assert (info.disk_total_mib, info.disk_free_mib) == (None, None)
    assert info.memory_total_mib is not None
    assert len(errors) == 1
    assert errors[0].startswith("The host's root file system could not be read: FileNotFoundError")
