"""Which hosts the playbooks touch and when: their own plays, with harmless tasks in them."""

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
HERE = "ansible_connection=local"
NOWHERE = "ansible_host=127.0.0.1 ansible_port=1"

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(shutil.which("ansible", path=str(BIN)) is None, reason="no Ansible here"),
]


class Played:
    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code, self.output = done.returncode, done.stdout + done.stderr

    def groups(self) -> list[str]:
        """Return what the task that stands for the roles said, once for each batch."""
        return list(dict.fromkeys(re.findall(r'"msg": "(together .*)"', self.output)))


def play(
    folder: Path, plays: list[dict[str, Any]], agents: dict[str, str], *arguments: str
) -> Played:
    lines = [f"{name} {line}" for name, line in agents.items()]
    settings = ["ansible_python_interpreter=/usr/bin/python3", "ansible_become=false"]
    inventory = ["[webserver]", f"page {HERE}", "[rpcservers]", *lines, "[all:vars]", *settings]
    (folder / "hosts").write_text("\n".join(inventory))
    (folder / "book.yml").write_text(json.dumps(plays))
    env = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    env |= {"ANSIBLE_HOME": str(folder / "ansible"), "ANSIBLE_NOCOLOR": "1", "LANG": "C.UTF-8"}
    return Played(
        subprocess.run(
            [str(BIN / "ansible-playbook"), "-i", "hosts", "book.yml", *arguments],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=100,
            stdin=subprocess.DEVNULL,
        )
    )


TOGETHER = {"ansible.builtin.debug": {"msg": "together {{ ansible_play_batch | join(' ') }}"}}


def switching(*more: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the plays of main.yml that choose who is switched when."""
    plays = yaml.safe_load((INSTALL / "main.yml").read_text())
    look = next(play for play in plays if play["name"].startswith("Look at every host"))
    agents = next(play for play in plays if play["name"] == "Agents on the GPU hosts")
    look["tasks"] = [{"ansible.builtin.ping": {}}, look["tasks"][-1]]
    del agents["roles"]
    agents["tasks"] = [TOGETHER, *more]
    return [look, agents]


def test_a_host_that_is_down_is_not_the_one_that_goes_first(tmp_path: Path) -> None:
    hosts = {"gone": NOWHERE, "gpu-01": HERE, "gpu-02": HERE, "gpu-03": HERE}
    played = play(tmp_path, switching(), hosts, "-e", '{"gpumon_serial": [1, "100%"]}')
    assert played.groups() == ["together gpu-01", "together gpu-02 gpu-03"], played.output


def test_no_failure_at_all_can_be_asked_for(tmp_path: Path) -> None:
    sick = {"ansible.builtin.assert": {"that": "inventory_hostname != 'gpu-02'"}}
    hosts = {f"gpu-0{number}": HERE for number in range(1, 6)}
    given = ["-e", '{"gpumon_serial": [1, 3], "gpumon_max_fail_percentage": 0}']
    played = play(tmp_path, switching(sick), hosts, *given)
    assert played.groups() == ["together gpu-01", "together gpu-02 gpu-03 gpu-04"], played.output


def uninstalling() -> list[dict[str, Any]]:
    """Return uninstall.yml with nothing behind its question."""
    [only] = yaml.safe_load((INSTALL / "uninstall.yml").read_text())
    del only["become"]
    only["tasks"] = [only["tasks"][0], TOGETHER]
    return [only]


@pytest.mark.parametrize(
    ("arguments", "touched"),
    [
        ((), None),
        (("-e", "gpumon_uninstall=yes"), None),
        (("--limit", "all", "-e", "gpumon_uninstall=yes"), None),
        (("--limit", "gpu-02"), None),
        (("--limit", "gpu-02", "--tags", "any"), None),
        (("--limit", "gpu-02", "-e", "gpumon_uninstall=yes"), "gpu-02"),
        (("-e", "gpumon_uninstall=all"), "page gpu-01 gpu-02"),
        (("--check",), "page gpu-01 gpu-02"),
    ],
)
def test_nothing_is_taken_away_unasked(
    tmp_path: Path, arguments: tuple[str, ...], touched: str | None
) -> None:
    played = play(tmp_path, uninstalling(), {"gpu-01": HERE, "gpu-02": HERE}, *arguments)
    assert played.groups() == ([] if touched is None else [f"together {touched}"]), played.output
    assert (played.code == 0) == (touched is not None)
    if touched is None:
        assert "Nothing was changed. This would take gpumon off" in played.output
