"""Which file is read, and what is said about one that can't be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpumon.config import HostEntry
from gpumon.config.file import MAX_BYTES
from gpumon.config.loader import load
from gpumon.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder; the system's file lies in it under another name."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr("gpumon.config.file.SYSTEM", "system.yml")
    return here


def fault(path: str | None = None, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, environ=environ or {})
    [sentence] = caught.value.faults
    return sentence


def test_the_first_file_in_order_is_read(folder: Path) -> None:
    found = []
    ports = {"given.yml": 1, "named.yml": 2, "config.yml": 3, "system.yml": 4}
    for name, port in ports.items():
        (folder / name).write_text(f"web_port: {port}\n")
    for path, environ, last in (
        ("given.yml", {"GPUMON_CONFIG": "named.yml"}, None),
        (None, {"GPUMON_CONFIG": "named.yml"}, None),
        (None, {}, "config.yml"),
        (None, {"GPUMON_CONFIG": ""}, "system.yml"),
    ):
        config = load(path, environ=environ)
        found.append((config.web_port, config.path and config.path.name))
        if last is not None:
            (folder / last).unlink()
    assert found == [(1, "given.yml"), (2, "named.yml"), (3, "config.yml"), (4, "system.yml")]


def test_without_a_file_this_machine_is_watched(folder: Path) -> None:
    config = load(environ={})
    assert config.path is None
    assert config.hosts == [HostEntry(name="self", source="self", address="self")]


def test_the_path_is_kept_whole_for_a_reload(folder: Path) -> None:
    (folder / "config.yml").touch()
    assert load(environ={}).path == folder / "config.yml"


def test_a_named_file_that_is_missing_is_not_passed_over(folder: Path) -> None:
    (folder / "config.yml").touch()
    assert fault("none.yml") == "none.yml: there is no such file. Name one that exists."
    assert fault(environ={"GPUMON_CONFIG": "none.yml"}) == (
        "none.yml: there is no such file. GPUMON_CONFIG names it. Name one that exists."
    )


def test_a_link_to_nowhere_is_not_passed_over(folder: Path) -> None:
    (folder / "config.yml").symlink_to("nowhere.yml")
    assert fault() == "config.yml: there is no such file. Name one that exists."


def test_a_folder_is_told(folder: Path) -> None:
    (folder / "config.yml").mkdir()
    assert fault() == "config.yml: a folder. Name the file in it."
    assert fault("") == ": a folder. Name the file in it."


def test_a_pipe_does_not_hold_us(folder: Path) -> None:
    os.mkfifo(folder / "pipe.yml")
    assert fault("pipe.yml") == "pipe.yml: not a regular file. Name a YAML file."
    assert fault("/dev/zero") == "/dev/zero: not a regular file. Name a YAML file."


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_told(folder: Path) -> None:
    (folder / "config.yml").touch(mode=0o000)
    assert fault() == (
        "config.yml: can't be read: permission denied. Run gpumon as a user who may read it, or "
        "name another file with --config."
    )


def test_what_can_not_be_looked_at_is_not_passed_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "loop").symlink_to("loop")
    monkeypatch.setattr("gpumon.config.file.SYSTEM", "loop/config.yml")
    assert fault() == (
        "loop/config.yml: can't be read: too many levels of symbolic links. Run gpumon as a user "
        "who may read it, or name another file with --config."
    )


def test_a_path_that_no_system_takes_is_told() -> None:
    assert fault("a\0b").startswith("a�b: can't be read: embedded null byte.")
    assert "can't be read: file name too long." in fault("x" * 5000)


def test_a_file_that_is_not_utf8_is_told_with_its_line(folder: Path) -> None:
    (folder / "config.yml").write_bytes(b"web_port: 1\n# caf\xe9\n")
    assert fault() == "config.yml:2: not UTF-8 text. Save the file as UTF-8."
    (folder / "config.yml").write_bytes("web_port: 1\n".encode("utf-16"))
    assert fault() == "config.yml:1: not UTF-8 text. Save the file as UTF-8."


def test_a_file_that_is_too_large_is_told(folder: Path) -> None:
    (folder / "config.yml").write_bytes(b"#" * (MAX_BYTES + 1))
    assert fault() == "config.yml: larger than 1024 KiB. Name gpumon's configuration."
    (folder / "config.yml").write_bytes(b"#" * MAX_BYTES)
    assert load(environ={}).path is not None


def test_another_programs_config_in_the_working_folder_gives_one_sentence(folder: Path) -> None:
    (folder / "config.yml").write_text("model: gpt\nlr: 0.1\nbatch: {size: 3}\n")
    assert fault() == (
        "config.yml: the file in the working folder is not gpumon's: none of its keys is known. "
        "Start gpumon in another folder or name its file with --config."
    )


def test_a_misspelt_key_alone_does_not_make_it_another_programs_file(folder: Path) -> None:
    (folder / "config.yml").write_text("web_prot: 8042\n")
    assert fault() == 'config.yml:1: web_prot: unknown key. Did you mean "web_port"?'


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_somebody_elses_file_in_the_working_folder_is_not_used_unasked(folder: Path) -> None:
    path = folder / "config.yml"
    path.touch()
    os.chown(path, 12345, 12345)
    assert fault() == (
        "config.yml: lies in the working folder and belongs to another user (uid 12345). "
        "Write --config config.yml to use it nevertheless."
    )
    assert load("config.yml", environ={}).path == path


def test_a_deleted_working_folder_does_no_harm(folder: Path) -> None:
    folder.rmdir()
    assert load(environ={}).path is None
    assert fault("config.yml").startswith("config.yml: there is no such file.")
