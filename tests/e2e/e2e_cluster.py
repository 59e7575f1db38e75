"""A cluster on a lab's hosts: its inventory, its playbooks, its jobs, its page."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from e2e.e2e_lab import Host, Lab
from e2e.e2e_trees import BUILD, LOGIN
from fake_nvml.scenario import Scenario, library, rtx

REPOSITORY = Path(__file__).parents[2]
INSTALL = REPOSITORY / "ansible-install"
BUILD_RELEASE = INSTALL / "roles/gpumon/files/build_release.py"
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "gpumon")
FAKE = "/opt/fake-nvml"
DROPIN = f"""[Service]
Environment=LD_LIBRARY_PATH={FAKE} FAKE_NVML_SCENARIO={FAKE}/gpus.scenario
# The hosts of the lab have pid namespaces of their own, and the fake driver speaks of their pids.
Environment=GPUMON_PIDS_ARE_MINE=1
"""
PAGE = "gpus.lab"
QUICK = {"poll_interval": 2, "agent": {"sample_interval": 2}}
"""What the page says is two seconds old, not ten: the tests wait less."""
OLD_UNIT = """[Unit]
Description=An earlier tool
[Service]
ExecStart=/usr/bin/python3 -m http.server {port}
WorkingDirectory=/tmp
[Install]
WantedBy=multi-user.target
"""


class Cluster:
    """One server `web1`, agents on the other hosts but the spare ones."""

    def __init__(self, lab: Lab, spare: Collection[str] = ()) -> None:
        self.lab = lab
        self.path = "/"  # of the page
        self.web = lab.hosts["web1"]
        others = {name: host for name, host in lab.hosts.items() if name != "web1"}
        self.agents = {name: host for name, host in others.items() if name not in spare}
        self.folder = lab.folder / "controller"
        self.folder.mkdir()
        self.releases = BUILD / "releases"
        self.inventory = self.folder / "hosts"
        self._plays = 0
        self.write_inventory()
        for host in others.values():
            self.give_gpus(host)

    def write_inventory(self, **more: str) -> None:
        """Write it; `more` has further variables by host."""
        lines = ["[webserver]", f"web1 ansible_host={self.web.address} {more.get('web1', '')}"]
        lines += ["", "[rpcservers]"]
        for name, host in self.agents.items():
            lines.append(f"{name} ansible_host={host.address} {more.get(name, '')}")
        lines += [
            "",
            "[all:vars]",
            f"ansible_user={LOGIN}",
            f"ansible_ssh_common_args=-F {self.lab.folder}/ssh_config",
            f"gpumon_releases_dir={self.releases}",
            f'gpumon_proxy_names=["{PAGE}"]',
            "gpumon_agent_dropin=" + json.dumps(DROPIN),
            "gpumon_config=" + json.dumps(QUICK),
        ]
        self.inventory.write_text("\n".join(lines) + "\n")

    # ---- Playbooks. ----

    def play(self, book: str, *arguments: str, seconds: float = 300, **variables: Any) -> Played:
        """Run a playbook of ansible-install/ in the lab's network."""
        with self.playing(book, *arguments, **variables) as running:
            running.process.wait(seconds)
        return Played(running)

    @contextlib.contextmanager
    def playing(self, book: str, *arguments: str, **variables: Any) -> Iterator[Running]:
        """Let a playbook run. It is killed with all its processes at the end, if it still runs."""
        given = {"gpumon_serial": "100%", **variables}
        command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(self.inventory)]
        command += [book, *arguments, "-e", json.dumps(given)]
        env = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
        env |= {"ANSIBLE_CONFIG": str(INSTALL / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
        env |= {"ANSIBLE_HOME": str(self.folder / "ansible"), "LANG": "C.UTF-8"}
        self._plays += 1
        output = self.folder / f"play-{self._plays}.log"
        with output.open("wb") as file:
            process = subprocess.Popen(
                ["nsenter", f"--net=/run/netns/{self.lab.tag}", *command],
                cwd=INSTALL,
                env=env,
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            began = time.monotonic()
            try:
                yield Running(process, output)
            finally:
                seconds = time.monotonic() - began
                print(f"{seconds:5.1f} s  {book} {' '.join(arguments)}")
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    def source(self, name: str, change: Callable[[Path], None]) -> Path:
        """Return a changed copy of gpumon's source, with its archive made for the hosts."""
        folder = self.folder / name
        folder.mkdir()
        for part in SOURCES:
            here = REPOSITORY / part
            copy = shutil.copytree if here.is_dir() else shutil.copyfile
            copy(here, folder / part)
        change(folder)
        self.make_release(folder)
        return folder

    def make_release(self, source: Path = REPOSITORY) -> None:
        """Make the archive where there is a network: within the lab there is none."""
        version = self.web.ask("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
        command = [sys.executable, str(BUILD_RELEASE), str(source), str(self.releases)]
        done = subprocess.run(
            [*command, "--python", version],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr

    # ---- GPUs and jobs. ----

    def give_gpus(self, host: Host) -> None:
        """Give a host two GPUs, of a fake driver, before it is installed."""
        host.write("/etc/gpumon-lab-gpus", "2\n")
        for number, node in ((255, "nvidiactl"), (0, "nvidia0"), (1, "nvidia1")):
            host.ask("mknod", "-m", "666", f"/dev/{node}", "c", "195", str(number))
        (host.root / FAKE.lstrip("/")).mkdir()
        shutil.copy(
            library() / "libnvidia-ml.so.1", host.root / FAKE.lstrip("/") / "libnvidia-ml.so.1"
        )
        self.set_jobs(host, {})

    def start_job(self, host: Host, user: str) -> int:
        """Start a process of a user's (or of a uid's); return its pid as the host knows it."""
        unit = f"job-{user}"
        host.ask(
            "systemd-run", f"--unit={unit}", "--quiet",
            "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "sleep", "infinity",
        )  # fmt: skip
        pid = int(host.ask("systemctl", "show", "--value", "-p", "MainPID", unit))
        assert pid != 0, f"{unit} ended"
        return pid

    def set_jobs(self, host: Host, pids: dict[int, list[int]]) -> None:
        """Let the driver say which processes are on which GPU."""
        number = int(host.address.rpartition(".")[2])
        scenario = Scenario(gpus=[rtx(2 * number), rtx(2 * number + 1)])
        for gpu, pid in ((gpu, pid) for gpu, those in pids.items() for pid in those):
            scenario.process(gpu, pid=pid, memory_mib=2048, sm=70)
        path = host.root / FAKE.lstrip("/") / "gpus.scenario"
        scenario.write(path)
        path.chmod(0o644)

    # ---- The page. ----

    def curl(self, path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.lab.inside(
            "curl", "--silent", "--show-error", "--max-time", "10",
            "--cacert", str(self.folder / "gpumon-secrets/ca.crt"),
            "--resolve", f"{PAGE}:443:{self.web.address}",
            "--resolve", f"{PAGE}:80:{self.web.address}",
            *arguments, f"https://{PAGE}{self.path}{path.lstrip('/')}",
        )  # fmt: skip

    def status(self) -> dict[str, dict[str, Any]]:
        """Return what /status.json says of each host, through the proxy."""
        done = self.curl("/status.json")
        assert done.returncode == 0, done.stderr
        return {host["name"]: host for host in json.loads(done.stdout)["hosts"]}

    def wait_for(self, what: str, holds: Callable[[dict[str, dict[str, Any]]], bool]) -> None:
        """Ask the page until it holds."""
        end = time.monotonic() + 60
        seen: Any = None
        while time.monotonic() < end:
            try:
                seen = self.status()
                if holds(seen):
                    return
            except (AssertionError, ValueError) as error:
                seen = error
            time.sleep(0.5)
        raise AssertionError(f"not within 60 s: {what}; the page said {str(seen)[:3000]}")

    def wait_until_fresh(self, *names: str) -> None:
        """Wait until they are fresh by an answer that was given after this call."""
        wanted, now = names or tuple(self.agents), time.time()
        self.wait_for(
            f"{', '.join(wanted)} fresh",
            lambda hosts: all(
                hosts[name]["state"] == "fresh" and hosts[name]["answered_at"] > now
                for name in wanted
            ),
        )

    def wait_until_not_fresh(self, name: str) -> str:
        """Return the reason that the page gives."""
        self.wait_for(f"{name} not fresh", lambda hosts: hosts[name]["state"] != "fresh")
        return str(self.status()[name]["reason"])


class Running:
    """A playbook that runs."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output

    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def wait_until(self, holds: Callable[[], bool], seconds: float = 120) -> None:
        """Wait for something that it does; it has to run until then."""
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, self.output()
            assert self.process.poll() is None, self.output()
            time.sleep(0.05)


class Played:
    """What came of a playbook."""

    def __init__(self, running: Running) -> None:
        self.ok = running.process.returncode == 0
        self.output = running.output()

    def count(self, word: str) -> dict[str, int]:
        """Return the recap's number for each host: `changed`, `failed`, `unreachable`, ..."""
        return {
            host: int(number)
            for host, number in re.findall(
                rf"^(\S+)\s+: .*\b{word}=(\d+)", self.output, re.MULTILINE
            )
        }


def install_old_tool(host: Host, unit: str, port: int) -> None:
    """Let something run on a host as a unit of an earlier tool."""
    host.write(f"/etc/systemd/system/{unit}.service", OLD_UNIT.format(port=port))
    host.ask("systemctl", "enable", "--now", unit)


def break_the_agent(folder: Path) -> None:
    """Change a copy of the source: its agent ends as soon as it is started."""
    break_a_command(folder, "agent", "True")


def break_rpc3_and_the_server(folder: Path) -> None:
    break_a_command(folder, "agent", "__import__('socket').gethostname() == 'rpc3'")
    break_a_command(folder, "web", "True")


def break_a_command(folder: Path, name: str, where: str) -> None:
    (folder / "gpumon/version.py").write_text('__version__ = "99.2.0"\n')
    command = folder / f"gpumon/commands/{name}.py"
    text, begin = command.read_text(), "    set_up_logging()\n"
    assert begin in text
    command.write_text(
        text.replace(begin, f"    if {where}:\n        raise SystemExit('sick')\n", 1)
    )
