#!/usr/bin/python
"""Asks gpumon's own doctor how a service is, as the service sees its host. Changes nothing."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpumon_doctor
short_description: What gpumon doctor finds for a service of this host
description:
  - Runs C(gpumon doctor) as the service's user, with the service's groups, capabilities and
    environment. What root may read says little about the service.
  - Never fails because of what is found. Faults of C(later) checks are told apart, so that the
    caller can decide what they stop.
options:
  name:
    description: Which service.
    type: str
    choices: [agent, web]
    required: true
  later:
    description: Checks whose faults lie with the machine or with other hosts.
    type: list
    elements: str
    default: []
  etc:
    description: Folder of its configuration.
    type: path
    default: /etc/gpumon
  root:
    description: Folder that releases are installed below.
    type: path
    default: /opt/gpumon
  seconds:
    description: So long it may take.
    type: int
    default: 90
author:
  - The gpumon contributors (@gpumon)
"""

EXAMPLES = r"""
- name: Ask the doctor
  gpumon_doctor:
    name: agent
    later: [driver, gpu]
"""

RETURN = r"""
faults:
  description: What does not work, with its cure, a sentence each.
  returned: always
  type: list
  elements: str
later:
  description: The same of the checks that were named for it.
  returned: always
  type: list
  elements: str
warnings_told:
  description: What works and wants attention.
  returned: always
  type: list
  elements: str
"""

import json
import os

from ansible.module_utils.basic import AnsibleModule

KEPT = ("Environment", "SupplementaryGroups", "AmbientCapabilities")
"""Properties of the unit without which the doctor would see another host than the service does."""


def context_of(module, unit):
    """Return arguments of systemd-run for what the unit says of itself."""
    command = ["systemctl", "show", unit]
    for name in KEPT:
        command += ["-p", name]
    _status, out, _err = module.run_command(command)
    found = []
    for line in out.splitlines():
        name, _, value = line.partition("=")
        if name in KEPT and value:
            found += ["-p", line]
    return found


def ask(module):
    """Return the findings; where the doctor can't be asked, that is the only one."""
    name = module.params["name"]
    unit, user = f"gpumon-{name}.service", {"agent": "gpumon", "web": "gpumon-web"}[name]
    flag = {"agent": "--agent", "web": "--server"}[name]
    python = os.path.join(module.params["root"], name, "bin", "python")
    config = os.path.join(module.params["etc"], "config.yml")
    command = ["systemd-run", "--quiet", "--pipe", "--wait", "--collect"]
    command += ["-p", "User=" + user, "-p", "Group=gpumon", "-p", "WorkingDirectory=/"]
    command += ["-p", "RuntimeMaxSec={}".format(module.params["seconds"])]
    command += context_of(module, unit)
    command += [python, "-I", "-m", "gpumon", "doctor", flag, "--json", "--config", config]
    _status, out, err = module.run_command(command)
    try:
        return json.loads(out)["findings"]
    except (ValueError, LookupError, TypeError):
        last = ((err or out).strip() or "no words").splitlines()[-1]
        text = f"gpumon doctor gives no answer ({last[:200]})"
        cure = f"Run it by hand: sudo -u {user} gpumon doctor {flag}"
        return [{"check": "doctor", "level": "warning", "text": text, "cure": cure}]


def sentence(finding):
    cure = finding.get("cure")
    return "{}: {}{}".format(finding["check"], finding["text"], f" -> {cure}" if cure else "")


def main():
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True, "choices": ["agent", "web"]},
            "later": {"type": "list", "elements": "str", "default": []},
            "etc": {"type": "path", "default": "/etc/gpumon"},
            "root": {"type": "path", "default": "/opt/gpumon"},
            "seconds": {"type": "int", "default": 90},
        },
        supports_check_mode=True,
    )
    # In check mode there may be no service to ask about.
    findings = [] if module.check_mode else ask(module)
    faults = [finding for finding in findings if finding["level"] == "fault"]
    later = module.params["later"]
    module.exit_json(
        changed=False,
        faults=[sentence(one) for one in faults if one["check"] not in later],
        later=[sentence(one) for one in faults if one["check"] in later],
        warnings_told=[sentence(one) for one in findings if one["level"] == "warning"],
    )


if __name__ == "__main__":
    main()
