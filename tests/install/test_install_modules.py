"""The modules of the playbook, run by Ansible on this machine, and the collection as a whole."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

INSTALL = Path(__file__).parents[2] / "ansible-install"
BIN = Path(sys.executable).parent

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(shutil.which("ansible", path=str(BIN)) is None, reason="no Ansible here"),
]


def ansible(tmp_path: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    env |= {"ANSIBLE_HOME": str(tmp_path / "ansible"), "ANSIBLE_NOCOLOR": "1", "LANG": "C.UTF-8"}
    env |= {"ANSIBLE_COLLECTIONS_PATH": str(tmp_path)}
    env |= {"ANSIBLE_LIBRARY": f"{INSTALL}/plugins/modules"}
    return subprocess.run(
        [str(BIN / program), *arguments],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        stdin=subprocess.DEVNULL,
    )


def looked_at(tmp_path: Path, **parameters: Any) -> dict[str, Any]:
    """Return what gpumon_preflight says of this machine."""
    done = ansible(
        tmp_path, "ansible", "localhost", "-i", "localhost,", "-c", "local",
        "-e", f"ansible_python_interpreter={sys.executable}",
        "-m", "gpumon_preflight", "-a", json.dumps(parameters),
    )  # fmt: skip
    told: dict[str, Any] = json.loads(done.stdout.partition("=>")[2])
    return told


def about(told: dict[str, Any], words: str) -> list[str]:
    return [fault for fault in told["faults"] if words in fault]


def test_everything_that_stands_against_a_host_is_told_at_once_with_its_cure(
    tmp_path: Path,
) -> None:
    old = tmp_path / "python3.9"
    old.write_text("#!/bin/sh\necho '[[3, 9], \"x86_64\"]'\n")
    old.chmod(0o755)
    told = looked_at(
        tmp_path,
        python=str(old),
        free_mib=1_000_000_000,
    )
    assert about(told, "is Python 3.9, and gpumon needs 3.10 or newer")
    assert about(told, "1000000000 are needed: make room")


def test_a_python_without_venv_is_told_how_to_get_it(tmp_path: Path) -> None:
    bare = tmp_path / "python3"
    bare.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'venv'\" >&2\nexit 1\n")
    bare.chmod(0o755)
    told = looked_at(tmp_path, python=str(bare))
    assert about(told, "apt-get install python3-venv")
    assert told["host"]["kind"]["python"] is None


def test_the_collection_is_built_and_its_playbooks_are_found(tmp_path: Path) -> None:
    built = ansible(
        tmp_path, "ansible-galaxy", "collection", "build", str(INSTALL), "--output-path", "."
    )
    assert built.returncode == 0, built.stderr
    [archive] = tmp_path.glob("gpumon-cluster-*.tar.gz")
    there = ansible(
        tmp_path, "ansible-galaxy", "collection", "install", str(archive), "-p", ".", "--offline"
    )
    assert there.returncode == 0, there.stderr
    (tmp_path / "hosts").write_text("[rpcservers]\ngpu-01\n[webserver]\npage\n")
    for book in ("main", "check", "uninstall"):
        done = ansible(
            tmp_path, "ansible-playbook", "-i", "hosts", f"gpumon.cluster.{book}", "--list-tasks"
        )
        assert done.returncode == 0, done.stderr


def test_every_variable_that_can_be_set_is_specified_and_every_default_is_told() -> None:
    for role in sorted((INSTALL / "roles").iterdir()):
        specified = yaml.safe_load((role / "meta/argument_specs.yml").read_text())
        options = {
            name for entry in specified["argument_specs"].values() for name in entry["options"]
        }
        defaults = set(yaml.safe_load((role / "defaults/main.yml").read_text()))
        shared = {"gpumon_certificate_names", "gpumon_proxy_names", "gpumon_retire_earlier"}
        assert defaults - options - shared == set(), role.name
        used = set(
            re.findall(
                r"\bgpumon_\w+",
                " ".join(
                    path.read_text() for path in role.rglob("*") if path.suffix in (".yml", ".j2")
                ),
            )
        )
        assert options <= used


def test_what_a_site_keeps_to_itself_is_not_in_git() -> None:
    ignored = (INSTALL.parent / ".gitignore").read_text().split()
    assert {"ansible-install/hosts", "ansible-install/gpumon-secrets/"} <= set(ignored)
