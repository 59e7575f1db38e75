#!/usr/bin/python
"""Switches a service to a release, asks whether it is well, and goes back if it is not."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpumon_service
short_description: Run a service of gpumon from a release, with a health gate and a way back
description:
  - The service is started anew only when its release, its unit or one of its files differs from
    what it was started with, when it is not running, or when it does not answer. It is reloaded
    where it takes over all that has changed while it runs, and left alone where nothing of it
    matters to this service. systemd reads its units anew only when a unit has changed.
  - After a start the service has to answer on /healthz and to stay alive, an agent has to see as
    many GPUs as before, and a server some host when it saw some before. Else release, unit and
    files of the last good start are put back and started.
  - Units of earlier tools are stopped and disabled when the new service answers, not before.
options:
  name:
    description: Which service.
    type: str
    choices: [agent, web]
    required: true
  state:
    description: C(reported) changes nothing and tells what runs.
    type: str
    choices: [started, absent, reported]
    default: started
  release:
    description: Folder of the release to run. Needed to start.
    type: path
  files:
    description: Files that the service reads; those that are not there do not count.
    type: list
    elements: path
    default: []
  reloads:
    description: Those of the files that it reads again when it is reloaded.
    type: list
    elements: path
    default: []
  pending:
    description: In check mode, those of its files that would have been changed before.
    type: list
    elements: path
    default: []
  config_text:
    description: In check mode, what its config.yml would be.
    type: str
    default: ""
  port:
    description: TCP port that it answers on; 0 is that of its configuration.
    type: int
    default: 0
  address:
    description: Address that it listens on.
    type: str
    default: 127.0.0.1
  tls:
    description: Whether it speaks TLS and wants a certificate; the host's own is shown.
    type: bool
    default: false
  server_name:
    description: Name in its certificate.
    type: str
    default: localhost
  etc:
    description: Folder of token and certificates.
    type: path
    default: /etc/gpumon
  replaces:
    description: Units of earlier tools to be stopped and disabled once it answers.
    type: list
    elements: str
    default: []
  patience:
    description: Seconds within which it has to answer after a start.
    type: int
    default: 60
  reload_seconds:
    description: Within so many it has to say that it has reloaded, else it is started anew.
    type: int
    default: 15
  steady:
    description: Seconds that it has to be well for. One that dies after its first answer is not.
    type: float
    default: 3
  root:
    description: Folder that releases are installed below.
    type: path
    default: /opt/gpumon
author:
  - The gpumon contributors (@gpumon)
"""

EXAMPLES = r"""
- name: Run the agent
  gpumon_service:
    name: agent
    release: /opt/gpumon/0.1.0-1a2b3c4d-py3.11
    port: 8043
    tls: true
    server_name: gpu-01
"""

RETURN = r"""
reasons:
  description: Why it was started anew or reloaded.
  returned: when state is started
  type: list
  elements: str
how:
  description: Whether it was started anew (restart) or reloaded (reload); none, nothing was done.
  returned: when state is started
  type: str
report:
  description: Release, version, whether active, enabled and well, GPUs, days of the certificate.
  returned: always
  type: dict
"""

import hashlib
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import time

from ansible.module_utils.basic import AnsibleModule

PORTS = {"agent": ("rpc_port", 8043), "web": ("web_port", 8042)}
UNITS = "/etc/systemd/system"


RESTART, RELOAD, NONE = "restart", "reload", "none"
SHOWN = {RESTART: "start anew", RELOAD: "reload", NONE: "leave alone"}


class Sick(Exception):
    """The service is not well, in words."""


class Service:
    def __init__(self, module):
        self.module = module
        self.params = dict(module.params)
        self.name = module.params["name"]
        self.unit = f"gpumon-{self.name}.service"
        self.unit_file = os.path.join(UNITS, self.unit)
        self.dropin = os.path.join(UNITS, self.unit + ".d", "site.conf")
        self.trial = f"gpumon-{self.name}-trial.service"
        self.link = os.path.join(self.params["root"], self.name)
        self.previous = self.link + ".previous"
        self.good = os.path.join(self.params["root"], ".good-" + self.name)
        self.config = os.path.join(self.params["etc"], "config.yml")
        self.token = os.path.join(self.params["etc"], "token")
        if not self.params["port"]:
            self.params["port"] = port_in(self.config, *PORTS[self.name])

    # ---- What is there. ----

    def files(self):
        """Return what the service depends on, in order."""
        return [self.unit_file, self.dropin, *self.params["files"]]

    def fingerprint(self):
        """Return what it would be started with: a hash by the path, and the release."""
        found = {path: digest(path) for path in self.files()}
        found["release"] = self.params["release"]
        return found

    def last_good(self):
        """Return the fingerprint of the last start that was well, {} where there was none."""
        try:
            with open(os.path.join(self.good, "fingerprint.json")) as file:
                return json.load(file)
        except (OSError, ValueError):
            return {}

    def changes(self):
        """Return what is to be done to it: pairs of why, and RESTART, RELOAD or NONE."""
        want, had = self.fingerprint(), self.last_good()
        changed = [name for name in want if want[name] != had.get(name)]
        changed += [path for path in self.params["pending"] if path not in changed]
        found = [self.change_of(name, had) for name in changed]
        if os.path.realpath(self.link) != self.params["release"]:
            found.append(("another release is linked", RESTART))
        if not self.is_active():
            found.append(("it is not running", RESTART))
        elif all(how == NONE for _, how in found):
            try:
                self.ask("/healthz")
            except Sick as sick:
                found.append((f"it is not well: {sick}", RESTART))
        if not self.is_enabled():
            found.append(("it does not start at boot", RESTART))
        found += [(f"{unit} is in its place", RESTART) for unit in self.earlier()]
        return found

    def change_of(self, name, had):
        """Return what a changed file, or another release, asks for."""
        why = f"{name} changed"
        if had.get(name) is None:
            return why, RESTART
        if name == self.config:
            return self.change_of_config()
        return why, RELOAD if name in self.params["reloads"] else RESTART

    def change_of_config(self):
        """Let gpumon say what its new configuration asks of the one that runs with the old."""
        python = os.path.join(self.params["release"], "bin", "python")
        new, why = self.config, f"{self.config} changed"
        if self.params["config_text"]:
            new = os.path.join(self.module.tmpdir, "config.yml")
            with open(new, "w") as file:
                file.write(self.params["config_text"])
        if not os.path.exists(python):
            return why, RESTART
        command = [python, "-I", "-m", "gpumon.commands.reloadable", self.name]
        status, out, _err = self.module.run_command([*command, self.copy_of(self.config), new])
        if status != 0:  # a fault in it is told by the start, which then goes back
            return why, RESTART
        told = json.loads(out)
        if not told["changed"]:
            return why, NONE
        why = "{}: {} changed".format(self.config, ", ".join(told["changed"]))
        return why, RESTART if told["restart"] else RELOAD

    def earlier(self):
        return [
            unit
            for unit in self.params["replaces"]
            if self.systemctl("is-active", unit)[0] == 0
            or self.systemctl("is-enabled", unit)[0] == 0
        ]

    def is_active(self):
        return self.systemctl("is-active", self.unit)[0] == 0

    def is_enabled(self):
        return self.systemctl("is-enabled", self.unit)[0] == 0

    def systemctl(self, *arguments):
        status, out, err = self.module.run_command(["systemctl", *arguments])
        return status, (err or out).strip()

    # ---- Asking it. ----

    def ask(self, path, port=None):
        """Return the decoded JSON of a path. Raises Sick."""
        port = port or self.params["port"]
        address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(
            self.params["address"], self.params["address"]
        )
        try:
            stream = socket.create_connection((address, port), timeout=10)
            try:
                if self.params["tls"]:
                    stream = self.tls().wrap_socket(
                        stream, server_hostname=self.params["server_name"]
                    )
                connection = http.client.HTTPConnection(address, port, timeout=10)
                connection.sock = stream
                connection.request("GET", path, headers=self.headers())
                answer = connection.getresponse()
                body = answer.read(1 << 26)
            finally:
                stream.close()
        except (OSError, http.client.HTTPException) as error:
            raise Sick(f"port {port} of {address} does not answer: {error}") from error
        if answer.status != 200:
            raise Sick(f"{path} answers {answer.status}: {body[:200].decode('latin-1')}")
        try:
            return json.loads(body)
        except ValueError as error:
            raise Sick(f"{path} does not answer in JSON") from error

    def tls(self):
        etc = self.params["etc"]
        context = ssl.create_default_context(cafile=os.path.join(etc, "ca.crt"))
        context.load_cert_chain(os.path.join(etc, "host.crt"), os.path.join(etc, "host.key"))
        return context

    def headers(self):
        try:
            with open(self.token) as file:
                return {"Authorization": "Bearer " + file.readline().strip()}
        except OSError:
            return {}

    def seen(self):
        """Return how many GPUs an agent can read, how many hosts are fresh; None: unknown."""
        try:
            if self.name == "web":
                return int(self.ask("/healthz")["hosts_fresh"])
            return sum(gpu["error"] is None for gpu in self.ask("/snapshot.json")["gpus"])
        except (Sick, LookupError, TypeError, ValueError):
            return None

    def seen_before(self):
        """The same of the one that runs still, which knows the token of its own start."""
        if not self.is_active():
            return None
        now, then = self.token, self.copy_of(self.token)
        self.token = then if os.path.exists(then) else now
        try:
            return self.seen()
        finally:
            self.token = now

    # ---- Changing it. ----

    def start(self):
        """Switch, start, ask; go back and raise Sick where it is not well."""
        before = self.seen_before()
        was = os.path.realpath(self.link) if os.path.islink(self.link) else None
        earlier = self.earlier()
        try:
            self.point_to(self.params["release"])
            if any(self.systemctl("is-active", unit)[0] == 0 for unit in earlier):
                self.try_beside()
                for unit in earlier:
                    self.do("stop", unit)
            self.run_and_watch(before)
        except Sick as sick:
            words = self.last_words()
            back = self.go_back(was, earlier)
            raise Sick(f"{sick}. {back}{words}") from sick
        for unit in earlier:
            self.do("disable", "--no-reload", unit)
        if was not in (None, self.params["release"]):
            link(was, self.previous)
        self.keep()

    def reload(self):
        """Let it read its files again. Return False where it does not say that it has.

        Raises Sick, with the files of before in their place, where it does not take them over.
        """
        before, pid, since = self.seen_before(), self.main_pid(), int(time.time())
        self.do("reload", self.unit)
        deadline = time.monotonic() + self.params["reload_seconds"]
        while True:
            said = self.words_of_reload(pid, since)
            if any("stays in use" in line for line in said):
                self.put_files_back(self.last_good())
                words = " | ".join(line.partition("reload: ")[2] for line in said)
                words = words.partition(". The configuration of before")[0]
                raise Sick(f"{words}. The files of before are back, and it runs on as before")
            if any(line.endswith("reload: done") for line in said):
                break
            if time.monotonic() > deadline:
                return False
            time.sleep(0.3)
        try:
            self.patiently(lambda: self.watch(before))
        except Sick as sick:
            back = self.go_back(self.params["release"], [])
            raise Sick(f"{sick}. {back}{self.last_words()}") from sick
        self.keep()
        return True

    def words_of_reload(self, pid, since):
        """Return what it has said of its reload, in the journal."""
        command = ["journalctl", "--no-pager", "-o", "cat", "--since", f"@{since}", "-u", self.unit]
        status, out, _err = self.module.run_command([*command, f"_PID={pid}"])
        return [line for line in out.splitlines() if status == 0 and " reload: " in line]

    def run_and_watch(self, before):
        self.read_units()
        self.do("enable", "--no-reload", self.unit)
        self.do("restart", self.unit)
        self.patiently(lambda: self.watch(before))

    def patiently(self, question):
        """Ask until it does not raise Sick, or patience ends."""
        deadline = time.monotonic() + self.params["patience"]
        while True:
            try:
                question()
                return
            except Sick:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.5)

    def watch(self, before):
        """Raise Sick where it is not well, does not stay so, or sees less than before.

        An agent has to see as many GPUs as before. Hosts come and go, so a server that saw any has
        to see any.
        """
        pid = self.main_pid()
        self.ask("/healthz")
        seen = self.seen()
        wanted = min(before or 0, 1) if self.name == "web" else before or 0
        if (seen or 0) < wanted:
            what = {"agent": "GPUs that answer", "web": "fresh hosts"}[self.name]
            raise Sick(f"it has {seen or 'no'} {what}, and there were {before} before")
        time.sleep(self.params["steady"])
        if pid == "0" or self.main_pid() != pid:
            raise Sick("it does not stay alive")

    def main_pid(self):
        return self.systemctl("show", "--value", "--property=MainPID", self.unit)[1]

    def try_beside(self):
        """Run it on a port of its own beside what it replaces, until it answers.

        As a unit that exists in memory only: systemd needs to read nothing anew for it.
        """
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        variable = {"agent": "GPUMON_RPC_PORT", "web": "GPUMON_WEB_PORT"}[self.name]
        user = {"agent": "gpumon", "web": "gpumon-web"}[self.name]
        python = os.path.join(self.params["release"], "bin", "python")
        command = ["systemd-run", "--quiet", "--collect", "--unit", self.trial]
        command += ["-p", "User=" + user, "-p", "Group=gpumon", "-p", "NoNewPrivileges=yes"]
        command += ["--setenv", f"{variable}={port}"]
        command += [python, "-I", "-m", "gpumon", self.name, "--config", self.config]
        status, out, err = self.module.run_command(command)
        if status != 0:
            raise Sick(f"it could not be tried: {(err or out).strip()}")
        try:
            self.patiently(lambda: self.ask("/healthz", port))
        except Sick as sick:
            raise Sick(f"beside the earlier tool, on port {port}: {sick}") from sick
        finally:
            self.systemctl("stop", self.trial)

    def go_back(self, was, earlier):
        """Put back what was good, and return what came of it in a sentence."""
        had = self.last_good()
        if not had or was is None:
            self.systemctl("disable", "--no-reload", "--now", self.unit)
            for unit in earlier:
                self.systemctl("start", unit)
            kept = "; {} runs again".format(", ".join(earlier)) if earlier else ""
            return f"There is no earlier state to go back to, so {self.unit} is stopped{kept}"
        self.put_files_back(had)
        self.point_to(had["release"])
        try:
            self.run_and_watch(None)
        except Sick as sick:
            return "Going back to {} did not help: {}".format(had["release"], sick)
        return "It runs from {} again, as before".format(had["release"])

    def put_files_back(self, had):
        for path in self.files():
            copy = self.copy_of(path)
            if os.path.exists(copy):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                replace(copy, path)
            elif os.path.exists(path) and had.get(path) is None:
                os.unlink(path)

    def copy_of(self, path):
        """Return where a file of the last good start is kept."""
        return os.path.join(self.good, path.replace("/", "%"))

    def keep(self):
        """Remember what it was started with, so that a later start can go back to it."""
        new = self.good + ".new"
        shutil.rmtree(new, ignore_errors=True)
        os.mkdir(new, 0o700)
        for path in self.files():
            if os.path.exists(path):
                replace(path, os.path.join(new, os.path.basename(self.copy_of(path))))
        with open(os.path.join(new, "fingerprint.json"), "w") as file:
            json.dump(self.fingerprint(), file)
        shutil.rmtree(self.good, ignore_errors=True)
        os.rename(new, self.good)

    def point_to(self, release):
        if os.path.realpath(self.link) != release:
            link(release, self.link)

    def read_units(self):
        """Let systemd read its units anew, if this one has changed on disk, and not else.

        It can cut running containers off their GPUs.
        """
        question = ("show", "--value", "--property=NeedDaemonReload", self.unit)
        if self.systemctl(*question)[1] == "yes":
            self.do("daemon-reload")

    def do(self, *arguments):
        status, words = self.systemctl(*arguments)
        if status != 0:
            first = (words or "no words").splitlines()[0]
            raise Sick("systemctl {} failed: {}".format(" ".join(arguments), first))

    def last_words(self):
        """Return the service's last lines in the journal."""
        command = ["journalctl", "--no-pager", "-o", "cat", "-n", "6"]
        command += ["-u", self.unit, "-u", self.trial]
        status, out, _err = self.module.run_command(command)
        lines = [line.strip() for line in out.splitlines() if line.strip()]
        return ". Its last words: {}".format(" | ".join(lines)) if status == 0 and lines else ""

    def remove(self):
        """Take the service off this host. Return whether there was anything."""
        there = [
            path
            for path in (
                self.unit_file,
                os.path.dirname(self.dropin),
                self.link,
                self.previous,
                self.good,
            )
            if os.path.lexists(path)
        ]
        if not there or self.module.check_mode:
            return bool(there)
        unit_was_there = os.path.exists(self.unit_file)
        if unit_was_there:
            self.do("disable", "--no-reload", "--now", self.unit)
        for path in there:
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        if self.systemctl("show", "--value", "--property=LoadState", self.unit)[1] == "loaded":
            self.do("daemon-reload")
        self.systemctl("reset-failed", self.unit)
        return True

    def version_of(self, release):
        """Return which gpumon lies in a release; None where its Python is gone or does not run."""
        python = os.path.join(release, "bin", "python")
        if not os.path.exists(python):
            return None
        status, out, _err = self.module.run_command([python, "-I", "-m", "gpumon", "--version"])
        return out.split()[-1] if status == 0 and out.strip() else None

    def report(self):
        """Return what runs here."""
        release = os.path.realpath(self.link) if os.path.islink(self.link) else None
        told = {"release": release and os.path.basename(release), "version": None, "well": None}
        told["active"], told["enabled"] = self.is_active(), self.is_enabled()
        if release is not None:
            told["version"] = self.version_of(release)
            try:
                self.ask("/healthz")
                told["well"] = "yes"
            except Sick as sick:
                told["well"] = str(sick)
            told["gpus"] = self.seen() if self.name == "agent" else None
        told["certificate_days"] = days_left(os.path.join(self.params["etc"], "host.crt"))
        return told


def digest(path):
    """Return the hash of a file with its mode and owner; None where it is not there."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            content = hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None
    return f"{content} {status.st_mode:o} {status.st_uid}:{status.st_gid}"


def link(target, name):
    """Let the link point there, in one step."""
    new = name + ".new"
    if os.path.lexists(new):
        os.unlink(new)
    os.symlink(target, new)
    os.replace(new, name)


def replace(source, target):
    """Copy a file with its mode and owner, in one step."""
    new = target + ".new"
    shutil.copy2(source, new)
    status = os.stat(source)
    os.chown(new, status.st_uid, status.st_gid)
    os.replace(new, target)


def port_in(config, key, usual):
    """Return the port that a configuration names, the usual one where it names none."""
    try:
        with open(config, errors="replace") as file:
            found = re.search(rf"^{key}:\s*(\d+)\s*(#|$)", file.read(), re.MULTILINE)
    except OSError:
        return usual
    return int(found.group(1)) if found else usual


def days_left(certificate):
    """Return how many days a certificate is still good; None where it can't be told."""
    try:
        ends = ssl._ssl._test_decode_cert(certificate)["notAfter"]
        return int((ssl.cert_time_to_seconds(ends) - time.time()) // 86400)
    except (OSError, AttributeError, LookupError, ValueError):
        return None


def main():
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True, "choices": ["agent", "web"]},
            "state": {
                "type": "str",
                "default": "started",
                "choices": ["started", "absent", "reported"],
            },
            "release": {"type": "path"},
            "files": {"type": "list", "elements": "path", "default": []},
            "reloads": {"type": "list", "elements": "path", "default": []},
            "pending": {"type": "list", "elements": "path", "default": []},
            "config_text": {"type": "str", "default": ""},
            "port": {"type": "int", "default": 0},
            "address": {"type": "str", "default": "127.0.0.1"},
            "tls": {"type": "bool", "default": False},
            "server_name": {"type": "str", "default": "localhost"},
            "etc": {"type": "path", "default": "/etc/gpumon"},
            "replaces": {"type": "list", "elements": "str", "default": []},
            "patience": {"type": "int", "default": 60},
            "reload_seconds": {"type": "int", "default": 15},
            "steady": {"type": "float", "default": 3},
            "root": {"type": "path", "default": "/opt/gpumon"},
        },
        required_if=[("state", "started", ("release",))],
        supports_check_mode=True,
    )
    service = Service(module)
    try:
        if module.params["state"] == "reported":
            module.exit_json(changed=False, report=service.report())
        if module.params["state"] == "absent":
            module.exit_json(changed=service.remove())
        if not module.check_mode and not os.path.isdir(module.params["release"]):
            module.fail_json(
                msg="the release {} is not installed here: run without --tags, or with install "
                "among them".format(module.params["release"])
            )
        changes = service.changes()
        how = next((how for how in (RESTART, RELOAD) if how in [one for _, one in changes]), NONE)
        after = "".join(f"{SHOWN[one]}: {why}\n" for why, one in changes)
        if not module.check_mode:
            if how == RELOAD and not service.reload():
                how = RESTART
            if how == RESTART:
                service.start()
            elif changes and how == NONE:
                service.keep()
    except Sick as sick:
        module.fail_json(msg=f"{service.unit} is not well: {sick}")
    except OSError as error:
        module.fail_json(msg=f"{service.unit} can't be changed: {error}")
    told = {} if module.check_mode else service.report()
    module.exit_json(
        changed=how != NONE,
        reasons=[why for why, _ in changes],
        how=how,
        diff={"before": "", "after": after},
        report=told,
    )


if __name__ == "__main__":
    main()
