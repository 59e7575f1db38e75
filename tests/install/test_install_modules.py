"""The collection as a whole."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

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
