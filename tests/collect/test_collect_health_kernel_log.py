"""XIDs in the kernel log."""

from __future__ import annotations

import errno
import os
import time
import uuid

import pytest
from collect_helpers import needs_root
from fake_nvml.scenario import h100
from health_log import USER_NOTICE, Log

from gpumon.collect import moment
from gpumon.collect.health import kernel_log
from gpumon.collect.health.kernel_log import KERNEL_LOG, KernelLog, parse_bus_id
from gpumon.collect.moment import Moment

NOW = Moment(wall=1_764_000_000.0, monotonic=5000.0, boot=9000.0)


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path / "kmsg")


def codes(reader, now=NOW):
    return [xid.code for xid in reader.read(now)]


@pytest.mark.parametrize(
    ("message", "bus", "code"),
    [
        ("NVRM: Xid (PCI:0000:17:00): 79, pid=1, GPU has fallen off the bus.", (0, 0x17, 0), 79),
        ("NVRM: Xid (PCI:0000:c1:00 GPU-I:05): 31, pid=9, name=python", (0, 0xC1, 0), 31),
        ("NVRM: Xid (0000:01:00): 13, 0005 00000000", (0, 1, 0), 13),
        ("NVRM: Xid (PCI:000F:01:00.0): 119, Timeout", (15, 1, 0), 119),
        ("nvidia 0000:17:00.0: NVRM: Xid (PCI:0000:17:00): 48, DBE", (0, 0x17, 0), 48),
    ],
)
def test_each_form_of_the_line_is_understood(log, message, bus, code):
    log.write(message)
    (xid,) = KernelLog(str(log.path)).read(NOW)
    assert (xid.bus, xid.code) == (bus, code)


@pytest.mark.parametrize(
    "message",
    [
        "NVRM: GPU 0000:17:00.0: GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:17:00): N/A",
        "NVRM: Xid (PCI:0000:17:00): 99999999999999999999, x",
        "usb 1-1: new device",
        # What a user may have the kernel quote.
        "overlayfs: failed to resolve 'NVRM: Xid (PCI:0000:17:00): 79, x': -2",
        "",
    ],
)
def test_other_lines_are_no_xids(log, message):
    log.write(message)
    assert KernelLog(str(log.path)).read(NOW) == []


def test_what_a_program_wrote_into_the_log_is_not_taken_for_the_kernels(log):
    log.write("NVRM: Xid (PCI:0000:17:00): 79, made up", priority=USER_NOTICE)
    assert KernelLog(str(log.path)).read(NOW) == []


def test_a_record_is_read_once_and_new_ones_are_seen(log):
    gpu = h100(0)
    log.xid(gpu, 31)
    reader = KernelLog(str(log.path))
    assert codes(reader) == [31]
    assert codes(reader) == []
    log.xid(gpu, 79)
    assert codes(reader) == [79]


def test_what_was_known_before_is_left_out(log):
    gpu = h100(0)
    log.xid(gpu, 31)
    log.xid(gpu, 79)
    assert codes(KernelLog(str(log.path), after=log.sequence - 1)) == [79]


def test_the_time_is_that_of_the_record(log):
    record = "5,7,4990000000,-;NVRM: Xid (PCI:0000:17:00): 79, x\n"  # ten seconds before NOW
    log.path.write_text(record + record.replace(",7,", ",8,").replace("4990", "6000"))
    old, future = KernelLog(str(log.path)).read(NOW)
    assert old.at == NOW.wall - 10
    assert future.at == NOW.wall


def test_a_record_that_comes_in_two_parts_is_one(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = KernelLog(str(path))
    assert codes(reader) == []  # nobody writes: that must not block
    with path.open("wb", buffering=0) as pipe:
        pipe.write(b"5,1,0,-;NVRM: Xid (PCI:00")
        assert codes(reader) == []
        pipe.write(b"00:17:00): 62, x\n5,2,0,-;NVRM: Xid (PCI:0000:17:00): 63, x\n")
        assert codes(reader) == [62, 63]


def test_a_flood_costs_a_bounded_number_of_reads(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_log, "MOST_READS", 3)
    monkeypatch.setattr(kernel_log, "_RECORD_BYTES", 64)
    path = tmp_path / "kmsg"
    path.write_bytes(
        b"".join(b"5,%d,0,-;NVRM: Xid (PCI:0000:17:00): 31, x\n" % i for i in range(99))
    )
    reader = KernelLog(str(path))
    first = codes(reader)
    assert 0 < len(first) <= 6
    for _ in range(99):
        first += codes(reader)
    assert first == [31] * 99


def test_records_that_were_overwritten_do_not_end_the_reading(log, monkeypatch):
    log.xid(h100(0), 79)
    reader = KernelLog(str(log.path))
    failures = [BrokenPipeError(errno.EPIPE, "")]
    read = os.read

    def overrun(fd, size):
        if failures:
            raise failures.pop()
        return read(fd, size)

    monkeypatch.setattr(os, "read", overrun)
    assert codes(reader) == [79]
    assert reader.error is None


def test_a_log_that_fails_later_says_why_and_is_left_alone(tmp_path):
    reader = KernelLog(str(tmp_path))  # a folder opens, but can't be read
    assert codes(reader) == []
    assert reader.error == "Is a directory"
    assert codes(reader) == []


def test_a_log_that_is_not_there_says_why(tmp_path):
    reader = KernelLog(str(tmp_path / "none"))
    assert reader.error == "No such file or directory"
    assert codes(reader) == []


def test_addresses_of_nvml_and_of_the_log_are_the_same_ones():
    assert parse_bus_id("00000000:C1:00.0") == (0, 0xC1, 0)
    assert parse_bus_id("0000000F:01:00.0") == (15, 1, 0)
    assert parse_bus_id("nonsense") is None
    assert parse_bus_id("0:0:zz") is None


def _next(log: KernelLog) -> bytes:
    """Return the next record; a kernel that writes much drops some before they are read."""
    while True:
        try:
            return log._read()
        except BrokenPipeError:
            continue


@pytest.mark.system
@needs_root
def test_the_real_kernel_log_is_read_without_blocking_and_new_records_are_seen():
    reader = KernelLog(KERNEL_LOG)
    assert reader.error is None
    while True:  # the backlog
        before = reader.sequence
        reader.read(moment.now())
        if reader.sequence == before:
            break
    marker = f"gpumon test {uuid.uuid4()}"
    seen = KernelLog(KERNEL_LOG, after=reader.sequence)
    with open(KERNEL_LOG, "wb", buffering=0) as kmsg:
        # As a program's record it is none of the driver's, whatever it says.
        kmsg.write(f"{marker} NVRM: Xid (PCI:ffff:ff:1f): 13, not real\n".encode())
    begin = time.monotonic()
    assert codes(reader, moment.now()) == []
    assert reader.sequence > before
    assert time.monotonic() - begin < 1.0
    while marker.encode() not in (record := _next(seen)):
        assert record, "the marker is in the log"
    assert int(record.split(b",")[0]) >> 3 != kernel_log._KERNEL
