"""The file that outlives the sampler."""

from __future__ import annotations

import os
import stat
import time

import pytest
from collect_helpers import until

from gpumon.collect.health import state
from gpumon.collect.health.state import StateFile


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "state.json"


@pytest.fixture(autouse=True)
def files():
    """Every file that a test opened; ended with it, so that no thread waits for ever."""
    made: list[StateFile] = []
    yield made
    for file in made:
        file.finish()


def opened(path, files, complaints=None):
    path.parent.mkdir(exist_ok=True)
    files.append(StateFile(str(path), (complaints if complaints is not None else []).append))
    return files[-1]


def looks_and_sees_nothing(file):
    """Return whether a look at the file finds no removal; a write waits for the look before it."""
    told = file.was_removed()
    file.save(b"new")
    file.flush()
    return not told and not file.was_removed()


def saved(file, data):
    file.save(data)
    file.flush()


def test_what_is_saved_is_there_for_the_next_one(path, files):
    first = opened(path, files)
    assert first.load() == b""
    first.save(b"one")
    saved(first, b"two")
    assert path.read_bytes() == b"two"
    assert opened(path, files).load() == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(path.parent)) == ["state.json", "state.json.lock"]


def test_a_file_that_somebody_removes_is_told_once(path, files):
    file = opened(path, files)
    file.load()
    saved(file, b"one")
    assert not file.was_removed()
    path.unlink()
    until(file.was_removed, "the removal is seen")
    assert looks_and_sees_nothing(file)
    assert path.read_bytes() == b"new"


def test_a_file_that_comes_late_is_handed_over_and_never_replaced_before(tmp_path, files):
    """A pipe stands for a disk that takes longer than the first sample waits."""
    path = tmp_path / "state.json"
    os.mkfifo(path)
    complaints: list[str] = []
    file = opened(path, files, complaints)
    assert file.load() is None
    file.save(b"empty")
    assert (file.arrived(), stat.S_ISFIFO(path.stat().st_mode)) == (None, True)
    path.write_bytes(b"old")
    assert until(file.arrived, "it has come") == b"old"
    assert stat.S_ISFIFO(path.stat().st_mode), "what was saved before it came is not written"
    saved(file, b"old and new")
    assert path.read_bytes() == b"old and new"
    assert len(complaints) == 1
    assert "writing nothing before" in complaints[0]


def test_a_file_that_can_not_be_read_is_not_written_over_and_read_when_it_can(path, files):
    path.parent.mkdir()
    path.mkdir()  # reading it is an error, whoever asks
    complaints: list[str] = []
    file = opened(path, files, complaints)
    assert file.load() is None
    for _ in range(3):
        assert looks_and_sees_nothing(file)
    assert path.is_dir()
    assert "can't be read (Is a directory)" in complaints[0]
    assert "not written over" in complaints[0]
    path.rmdir()
    path.write_bytes(b"old")
    file.was_removed()
    assert until(lambda: file.save(b"new") or file.arrived(), "it can be read") == b"old"


def test_a_file_whose_file_system_comes_late_is_handed_over_and_not_replaced(path, files):
    file = opened(path, files)
    assert file.load() == b""
    path.write_bytes(b"old")
    file.save(b"empty")
    assert until(file.arrived, "it is there now") == b"old"
    assert path.read_bytes() == b"old"


def test_of_two_samplers_one_writes_and_the_other_takes_over_what_it_wrote(path, files):
    first = opened(path, files)
    first.load()
    saved(first, b"one")
    second = opened(path, files)
    assert second.load() == b"one"
    saved(first, b"two")
    for _ in range(20):
        second.was_removed()
        saved(second, b"of the second")
    assert (path.read_bytes(), second.arrived()) == (b"two", None)
    saved(first, b"three")
    first.finish()
    assert until(lambda: second.was_removed() or second.arrived(), "it takes over") == b"three"
    saved(second, b"of both")
    assert path.read_bytes() == b"of both"


def test_a_file_that_another_sampler_keeps_for_long_is_told_once(path, files, monkeypatch):
    opened(path, files).load()
    complaints: list[str] = []
    second = opened(path, files, complaints)
    second.load()
    for _ in range(20):
        second.was_removed()
        saved(second, b"x")
    assert complaints == [], "a trial is soon over"
    monkeypatch.setattr(state, "_LOCKED_SECONDS", 0.0)
    until(lambda: second.was_removed() or complaints, "it is told")
    for _ in range(20):
        second.was_removed()
        time.sleep(0.001)
    assert len(complaints) == 1
    assert "kept by another sampler" in complaints[0]


def test_a_file_that_never_was_is_not_removed(path, files):
    file = opened(path, files)
    file.load()
    assert looks_and_sees_nothing(file)


def test_a_file_that_goes_with_its_folder_was_not_removed_by_a_decision(path, files):
    file = opened(path, files)
    file.load()
    saved(file, b"one")
    path.parent.rename(path.parent.with_name("gone"))
    assert looks_and_sees_nothing(file)


def test_what_can_not_be_written_is_told_once_and_costs_nothing_else(tmp_path, files):
    complaints: list[str] = []
    file = StateFile(str(tmp_path / "no" / "such" / "folder"), complaints.append)
    files.append(file)
    assert file.load() == b""
    for _ in range(3):
        file.was_removed()
        saved(file, b"x")
    until(lambda: complaints, "it is told")
    assert len(complaints) == 1
    assert "can't be written (No such file or directory)" in complaints[0]
    assert "folder that it may write" in complaints[0]


def test_a_disk_that_hangs_costs_a_second_at_the_start_and_nothing_after(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)  # opening it waits for a writer that never comes
    complaints: list[str] = []
    begin = time.monotonic()
    file = StateFile(str(path), complaints.append)  # its thread hangs: nothing to end
    assert file.load() is None
    started = time.monotonic()
    assert started - begin < 3.0
    for _ in range(100):
        file.save(b"x")
        assert not file.was_removed()
    assert time.monotonic() - started < 0.5
    assert "in time" in complaints[0]
