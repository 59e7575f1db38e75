"""The file that outlives the sampler."""

from __future__ import annotations

import os
import time

import pytest
from collect_helpers import until

from gpumon.collect.health.state import StateFile


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "state.json"


def opened(path, complaints=None):
    path.parent.mkdir(exist_ok=True)
    return StateFile(str(path), (complaints if complaints is not None else []).append)


def looks_and_sees_nothing(file):
    """Return whether a look at the file finds no removal; a write waits for the look before it."""
    told = file.was_removed()
    file.save(b"new")
    file.finish()
    return not told and not file.was_removed()


def test_what_is_saved_is_there_for_the_next_one(path):
    first = opened(path)
    assert first.load() is None
    first.save(b"one")
    first.save(b"two")
    first.finish()
    assert path.read_bytes() == b"two"
    assert opened(path).load() == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(path.parent) == ["state.json"]


def test_a_file_that_somebody_removes_is_told_once(path):
    file = opened(path)
    file.save(b"one")
    file.finish()
    assert not file.was_removed()
    path.unlink()
    until(file.was_removed, "the removal is seen")
    assert looks_and_sees_nothing(file)
    assert path.read_bytes() == b"new"


def test_a_file_that_never_was_is_not_removed(path):
    file = opened(path)
    file.load()
    assert looks_and_sees_nothing(file)


def test_a_file_that_goes_with_its_folder_was_not_removed_by_a_decision(path):
    file = opened(path)
    file.save(b"one")
    file.finish()
    path.parent.rename(path.parent.with_name("gone"))
    assert looks_and_sees_nothing(file)


def test_what_can_not_be_written_is_told_once_and_costs_nothing_else(tmp_path):
    complaints: list[str] = []
    file = StateFile(str(tmp_path / "no" / "such" / "folder"), complaints.append)
    for _ in range(3):
        file.save(b"x")
        file.finish()
    assert len(complaints) == 1
    assert "can't be written (No such file or directory)" in complaints[0]
    assert "folder that it may write" in complaints[0]


def test_a_disk_that_hangs_costs_a_second_at_the_start_and_nothing_after(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)  # opening it waits for a writer that never comes
    complaints: list[str] = []
    begin = time.monotonic()
    file = StateFile(str(path), complaints.append)
    assert file.load() is None
    started = time.monotonic()
    assert started - begin < 3.0
    for _ in range(100):
        file.save(b"x")
        assert not file.was_removed()
    assert time.monotonic() - started < 0.5
    assert "in time" in complaints[0]
