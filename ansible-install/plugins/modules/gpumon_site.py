#!/usr/bin/python
"""Puts the page's site into nginx or Caddy, and takes it back where it is not well."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpumon_site
short_description: The page's site of nginx or Caddy, with a test of the whole and a way back
description:
  - C(examined) changes nothing. It tells which of the names other sites have already, and on which
    addresses the site has to listen so that it is reached beside them.
  - C(present) writes the site, lets the proxy judge its whole configuration, loads it, and asks for
    the page through the proxy. Where one of these fails, the site of before is put back, so that
    other sites go on as they were.
  - C(asked) only asks for the page.
  - The proxy reads its configuration anew only when site, certificate or key differ from those of
    the last good end.
options:
  state:
    description: Whether only to look or to ask, or to put the site there.
    type: str
    choices: [examined, present, asked]
    default: present
  program:
    description: Which proxy.
    type: str
    choices: [nginx, caddy]
    required: true
  names:
    description: Names of the page, the first asked for by readers.
    type: list
    elements: str
    default: []
  own_names:
    description: Names that are given up silently where another site has them.
    type: list
    elements: str
    default: []
  path:
    description: File of the site.
    type: path
    required: true
  main:
    description: The proxy's own configuration.
    type: path
    required: true
  content:
    description: Text of the site.
    type: str
    default: ""
  files:
    description: Files that the site names, certificate and key.
    type: list
    elements: path
    default: []
  pending:
    description: In check mode, whether one of these files would have been changed before.
    type: bool
    default: false
  page:
    description: Path of the page.
    type: str
    default: /
  port:
    description: Port on which the page is asked for, at this machine's loopback address.
    type: int
    default: 443
  authority:
    description: File with the authority of its certificate, which is not judged without one.
    type: str
    default: ""
  login:
    description: Whether the site asks for a login, so that an answer without the page is well too.
    type: bool
    default: false
  patience:
    description: Seconds within which the page has to answer.
    type: int
    default: 15
  steady:
    description: Seconds after which it has to answer again.
    type: float
    default: 1
  good:
    description: File in which the last good end is remembered.
    type: path
    default: /opt/gpumon/.good-site
author:
  - The gpumon contributors (@gpumon)
"""

EXAMPLES = r"""
- name: Look at the other sites
  gpumon_site:
    state: examined
    program: nginx
    names: [gpus.example.org]
    path: /etc/nginx/conf.d/gpumon.conf
    main: /etc/nginx/nginx.conf
"""

RETURN = r"""
faults:
  description: What stands against the site, a sentence each.
  returned: when state is examined
  type: list
  elements: str
names:
  description: The names that are left for it.
  returned: when state is examined
  type: list
  elements: str
listens:
  description: What nginx has to listen on, by port.
  returned: when state is examined
  type: dict
reasons:
  description: Why the proxy was started or read its configuration anew.
  returned: when state is present
  type: list
  elements: str
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

TOKEN = re.compile(r"""\s+|\#[^\n]*|([{};])|("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s{};]+)""")
WILD = ("", "*", "0.0.0.0", "[::]")


class Sick(Exception):
    """The site is not well, in words."""


class Proxy:
    """What both proxies have in common."""

    test = ()

    def __init__(self, module):
        self.module = module
        self.params = module.params
        self.program, self.path = module.params["program"], module.params["path"]
        self.main = module.params["main"]

    def run(self, *command):
        """Return status, output and errors. A program that is missing gives status 127."""
        if shutil.which(command[0]) is None:
            return 127, "", f"{command[0]} is not installed"
        return self.module.run_command(list(command))

    def judge(self):
        """Let the proxy look at its whole configuration. Raises Sick."""
        status, _out, err = self.run(*self.test)
        if status != 0:
            raise Sick(f"{self.program} does not take its configuration: {worst(err)}")

    def examine(self):
        """Return faults, names that are left, and addresses to listen on."""
        listens = {"80": ["80"], "443": ["443"]}
        if has_ipv6():
            listens = {port: [port, f"[::]:{port}"] for port in listens}
        names = list(self.params["names"])
        if shutil.which(self.program) is None:
            return [], names, listens
        try:
            self.judge()
            others = self.others(listens)
        except Sick as sick:
            return [f"{sick}. Mend that first: {' '.join(self.test)}"], names, listens
        faults = []
        for name in list(names):
            place = others.get(name.lower())
            if place is None:
                continue
            if name in self.params["own_names"]:
                names.remove(name)
                continue
            faults.append(
                f"{self.program} has a site for {name} already ({place}): give the page another "
                "name with gpumon_proxy_names, or write its path into that site yourself and set "
                "gpumon_proxy_program=none (docs/reverse-proxy.md)"
            )
        return faults, names, listens

    # ---- Putting it there. ----

    def wanted(self):
        """Return the text of each file that this is about."""
        return {self.path: self.params["content"]}

    def fingerprint(self):
        """Return a hash of all that the proxy has read when it is well."""
        found = hashlib.sha256()
        for path, text in sorted(self.wanted().items()):
            found.update(f"{path}\0{text}\0".encode())
        for path in self.params["files"]:
            found.update((read_bytes(path) or b"missing") + b"\0")
        return found.hexdigest()

    def reasons(self):
        found = [f"{path} changed" for path, text in self.wanted().items() if read(path) != text]
        if self.params["pending"]:
            found.append("its certificate changed")
        if not found and (read(self.params["good"]) or "").strip() != self.fingerprint():
            found.append("it has not been loaded since a change")
        if self.systemctl("is-active")[0] != 0:
            found.append(f"{self.program} does not run")
        if self.systemctl("is-enabled")[0] != 0:
            found.append(f"{self.program} does not start at boot")
        return found

    def put(self):
        """Write, judge, load, ask; put back what was there and raise Sick where it is not well."""
        before = {path: read(path) for path in self.wanted()}
        ran = self.systemctl("is-active")[0] == 0
        began_at_boot = self.systemctl("is-enabled")[0] == 0
        try:
            for path, text in self.wanted().items():
                write(path, text)
            self.judge()
            self.do("reload" if ran else "start")
            if not began_at_boot:
                self.do("enable", "--no-reload")
            self.ask_patiently()
        except Sick as sick:
            raise Sick(f"{sick}. {self.go_back(before, ran, began_at_boot)}") from sick
        write(self.params["good"], self.fingerprint() + "\n")

    def go_back(self, before, ran, began_at_boot):
        """Return what came of it in a sentence."""
        for path, text in before.items():
            write(path, text)
        if not began_at_boot:
            self.systemctl("disable", "--no-reload")
        status, words = self.systemctl("reload" if ran else "stop")
        if status != 0:
            return f"The site of before is back, but {self.program} does not load it: {words}"
        kept = "runs as before" if ran else "is stopped, as before"
        return f"The site of before is back, and {self.program} {kept}"

    def systemctl(self, verb, *flags):
        status, out, err = self.run("systemctl", verb, *flags, self.program)
        return status, (err or out).strip()

    def do(self, verb, *flags):
        status, words = self.systemctl(verb, *flags)
        if status != 0:
            command = ("journalctl", "--no-pager", "-o", "cat", "-n", "8", "-u", self.program)
            raise Sick(f"systemctl {verb} {self.program}: {worst(self.run(*command)[1] or words)}")

    # ---- Asking for the page. ----

    def ask_patiently(self):
        """Ask until the page is there, and again: nginx's workers of before answer for a while."""
        deadline = time.monotonic() + self.params["patience"]
        while True:
            try:
                self.ask()
                time.sleep(self.params["steady"])
                return self.ask()
            except Sick:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.2)

    def ask(self):
        """Ask for the page by a name of it, at this machine itself. Raises Sick."""
        names, port = self.params["names"], self.params["port"]
        name = next((name for name in names if "*" not in name), names[0])
        path = self.params["page"] + "healthz"
        shown = f"https://{name}{path}"
        try:
            stream = socket.create_connection(("127.0.0.1", port), timeout=5)
            try:
                stream = self.tls().wrap_socket(stream, server_hostname=name)
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                connection.sock = stream
                connection.request("GET", path, headers={"Host": bracketed(name)})
                answer = connection.getresponse()
                body = answer.read(1 << 20)
            finally:
                stream.close()
        except (OSError, http.client.HTTPException) as error:
            raise Sick(f"{shown} does not answer at this machine's port {port}: {error}") from error
        if self.params["login"] and answer.status in (301, 302, 303, 307, 401, 403):
            return
        try:
            well = answer.status == 200 and "hosts_fresh" in json.loads(body)
        except ValueError:
            well = False
        if not well:
            raise Sick(f"{shown} gives no page of gpumon (HTTP status {answer.status})")

    def tls(self):
        if self.params["authority"]:
            return ssl.create_default_context(cafile=self.params["authority"])
        # A certificate of the site's own is for readers to judge: its authority may be theirs only.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context


class Nginx(Proxy):
    def __init__(self, module):
        super().__init__(module)
        self.test = ("nginx", "-t", "-q", "-c", self.main)

    def others(self, listens):
        """Return where each name of other sites stands; add their own addresses to `listens`.

        nginx lets a request to 10.0.0.2:443 reach only sites that listen on just that, where there
        are any. And two sockets for [::] and 0.0.0.0 can't be where the first takes both.
        """
        status, out, err = self.run("nginx", "-T", "-q", "-c", self.main)
        if status != 0:
            raise Sick(f"nginx does not show its configuration: {worst(err)}")
        found = {}
        for file, server in servers(out):
            if os.path.realpath(file) == os.path.realpath(self.path):
                continue
            for words in server.get("listen", [["80"]]):
                address, port = address_of(words[0])
                if port not in listens:
                    continue
                if address == "[::]" and "ipv6only=off" in words:
                    listens[port] = [own for own in listens[port] if own != port]
                elif address not in WILD and f"{address}:{port}" not in listens[port]:
                    listens[port].append(f"{address}:{port}")
                for names in server.get("server_name", []):
                    found.update({name.lower(): f"{file}, port {port}" for name in names})
        return found


class Caddy(Proxy):
    def __init__(self, module):
        super().__init__(module)
        self.test = ("caddy", "adapt", "--adapter", "caddyfile", "--config", self.main)
        self.line = f"import {self.path}"

    def judge(self):
        if read(self.main) is not None:
            super().judge()

    def wanted(self):
        main = read(self.main) or ""
        if self.line not in main.splitlines():
            main += ("" if main.endswith("\n") or not main else "\n") + self.line + "\n"
        return {**super().wanted(), self.main: main}

    def others(self, listens):
        """Return where each name of other sites stands. No two can have the same name."""
        ours = self.hosts(self.path) if self.line in (read(self.main) or "").splitlines() else set()
        return dict.fromkeys(self.hosts(self.main) - ours, self.main)

    def hosts(self, config):
        if read(config) is None:
            return set()
        status, out, err = self.run(*self.test[:-1], config)
        if status != 0:
            raise Sick(f"caddy does not take {config}: {worst(err)}")
        apps = (json.loads(out) or {}).get("apps") or {}
        return {
            host.lower()
            for server in ((apps.get("http") or {}).get("servers") or {}).values()
            for route in server.get("routes") or []
            for match in route.get("match") or []
            for host in match.get("host") or []
        }


def servers(dump):
    """Yield file and directives of each server block in what `nginx -T` prints.

    The directives are lists of words by name: {"listen": [["443", "ssl"]], ...}.
    """
    parts = re.split(r"^# configuration file (.+):$", dump, flags=re.MULTILINE)
    for number in range(1, len(parts), 2):
        file, blocks, words = parts[number], [], []
        for mark, word in TOKEN.findall(parts[number + 1]):
            if word:
                words.append(word.strip("\"'"))
            elif mark == "{":
                blocks.append((words[0] if words else "", {}))
                words = []
            elif mark == ";" and words:
                if blocks:
                    blocks[-1][1].setdefault(words[0], []).append(words[1:])
                words = []
            elif mark == "}" and blocks:
                name, directives = blocks.pop()
                if name == "server":
                    yield file, directives


def address_of(listen):
    """Return address and port of nginx's "443", "10.0.0.2:443", "[::]:443" or "10.0.0.2"."""
    if listen.startswith("unix:"):
        return listen, ""
    found = re.fullmatch(r"(?:(\[[^]]*\]|[^:\[]*):)?(\d+)", listen)
    return (found.group(1) or "", found.group(2)) if found else (listen, "80")


def has_ipv6():
    """Return whether this kernel lets anybody listen on [::]."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::", 0))
    except OSError:
        return False
    return True


def bracketed(name):
    return f"[{name}]" if ":" in name else name


def worst(words):
    """Return the line of a program's words that tells most."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    told = [line for line in lines if re.search(r"\[emerg\]|[Ee]rror", line)]
    return (told or lines or ["no words"])[0]


def read(path):
    found = read_bytes(path)
    return None if found is None else found.decode("utf-8", "replace")


def read_bytes(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def write(path, text):
    """Let the file have this text, in one step; None: let it not be there."""
    if text is None:
        if os.path.exists(path):
            os.unlink(path)
        return
    if read(path) == text:
        return
    new = path + ".new"  # not *.conf: nobody reads it
    with open(new, "w") as file:
        file.write(text)
    os.chmod(new, 0o644)
    os.replace(new, path)


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {
                "type": "str",
                "default": "present",
                "choices": ["examined", "present", "asked"],
            },
            "program": {"type": "str", "required": True, "choices": ["nginx", "caddy"]},
            "names": {"type": "list", "elements": "str", "default": []},
            "own_names": {"type": "list", "elements": "str", "default": []},
            "path": {"type": "path", "required": True},
            "main": {"type": "path", "required": True},
            "content": {"type": "str", "default": ""},
            "files": {"type": "list", "elements": "path", "default": []},
            "pending": {"type": "bool", "default": False},
            "page": {"type": "str", "default": "/"},
            "port": {"type": "int", "default": 443},
            "authority": {"type": "str", "default": ""},
            "login": {"type": "bool", "default": False},
            "patience": {"type": "int", "default": 15},
            "steady": {"type": "float", "default": 1},
            "good": {"type": "path", "default": "/opt/gpumon/.good-site"},
        },
        supports_check_mode=True,
    )
    proxy = {"nginx": Nginx, "caddy": Caddy}[module.params["program"]](module)
    if module.params["state"] == "examined":
        faults, names, listens = proxy.examine()
        module.exit_json(changed=False, faults=faults, names=names, listens=listens)
    if module.params["state"] == "asked":
        try:
            proxy.ask_patiently()
        except Sick as sick:
            module.fail_json(msg=str(sick))
        module.exit_json(changed=False)
    reasons = proxy.reasons()
    diff = [
        {"before_header": path, "after_header": path, "before": read(path) or "", "after": text}
        for path, text in proxy.wanted().items()
        if read(path) != text
    ]
    try:
        if reasons and not module.check_mode:
            proxy.put()
    except (Sick, OSError) as error:
        module.fail_json(msg=f"the page's site of {proxy.program}: {error}")
    module.exit_json(changed=bool(reasons), reasons=reasons, diff=diff)


if __name__ == "__main__":
    main()
