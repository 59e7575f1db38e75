"""Hosts that can't be installed, or were left half done: told in a sentence, nothing is left."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import tarfile
from pathlib import Path
from typing import Any

import pytest
from install.install_module import run_module


def about(told: dict[str, Any], words: str) -> str:
    [found] = [fault for fault in told["faults"] if words in fault]
    return str(found)


def stop_being_root() -> None:
    """Become nobody in a namespace of users, who may still read what root may."""
    if os.geteuid() == 0:
        assert ctypes.CDLL(None).unshare(0x10000000) == 0


def test_who_does_not_become_root_is_told_how() -> None:
    told = run_module("gpumon_preflight", preexec=stop_being_root)
    assert "run with --become, or --ask-become-pass" in about(told, "this is not root")


def test_everything_that_stands_against_a_host_is_told_at_once_with_its_cure(
    tmp_path: Path,
) -> None:
    old = program(tmp_path / "python3.9", "echo '[[3, 9], \"x86_64\"]'")
    with socket.create_server(("0.0.0.0", 0)) as stranger:
        port = stranger.getsockname()[1]
        told = run_module(
            "gpumon_preflight",
            python=old,
            free_mib=1_000_000_000,
            ports={"gpumon-agent": port},
        )
    assert "gpumon needs 3.10 or newer" in about(told, "is Python 3.9")
    assert "1000000000 are needed: make room" in about(told, "MiB are free in")
    taken = about(told, f"port {port}, which gpumon-agent needs, is taken by ")
    assert f"(process {os.getpid()}" in taken
    assert "gpumon_rpc_port" in taken
    assert told["changed"] is False


def test_a_python_without_venv_is_told_how_to_get_it(tmp_path: Path) -> None:
    bare = program(
        tmp_path / "python3", "echo \"ModuleNotFoundError: No module named 'venv'\" >&2; exit 1"
    )
    told = run_module("gpumon_preflight", python=bare)
    assert "apt-get install python3-venv" in about(told, "has no module venv")
    assert told["host"]["kind"]["python"] is None


def test_a_python_that_is_not_there_is_told_with_the_variable(tmp_path: Path) -> None:
    told = run_module("gpumon_preflight", python=str(tmp_path / "python3.12"))
    assert "set gpumon_python" in about(told, "python3.12 is not there")


def test_a_user_of_that_name_with_a_home_is_not_taken_over() -> None:
    told = run_module("gpumon_preflight", users=["root", "nobody-by-this-name"])
    assert "with the home /root: " in about(told, "there is a user root already")
    assert [fault for fault in told["faults"] if "nobody-by-this-name" in fault] == []


def release(tmp_path: Path, **parameters: Any) -> dict[str, Any]:
    return run_module(
        "gpumon_release",
        archive=str(tmp_path / "archive.tar"),
        path=str(tmp_path / "0.1.0-py3.11"),
        version="0.1.0",
        **parameters,
    )


@pytest.mark.parametrize("inside", ["nothing", "a stranger", "no tar"])
def test_an_archive_that_is_broken_leaves_no_half_made_release(tmp_path: Path, inside: str) -> None:
    (tmp_path / "file").write_text("x")
    with tarfile.open(tmp_path / "archive.tar", "w") as archive:
        if inside == "a stranger":
            archive.add(tmp_path / "file", "../escaped")
    if inside == "no tar":
        (tmp_path / "archive.tar").write_text("cut off")
    told = release(tmp_path)
    assert told["failed"] is True
    assert "0.1.0-py3.11 can't be installed: " in told["msg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive.tar", "file"]


@pytest.mark.parametrize("left", ["no mark", "half a mark", "no Python"])
def test_what_an_earlier_run_left_half_done_is_found(tmp_path: Path, left: str) -> None:
    """Check mode tells it, and a run makes it anew."""
    folder = tmp_path / "0.1.0-py3.11"
    (folder / "bin").mkdir(parents=True)
    if left == "half a mark":
        (folder / "gpumon-release.json").write_text('{"extras": [')
    if left == "no Python":
        mark = {"extras": [], "version": "0.1.0"}
        (folder / "gpumon-release.json").write_text(json.dumps(mark))
    told = release(tmp_path, check=True)
    assert told["changed"] is True
    words = {"no Python": "its Python does not run"}.get(left, "it is not there, or half done")
    assert told["reason"].startswith(words)


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)
