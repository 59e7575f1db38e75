"""`make test-gpu`: is what gpumon says about real GPUs what nvidia-smi says?

Starts a CUDA load on GPU 0, compares each field of `gpumon snapshot --json` with nvidia-smi,
checks owner, memory and runtime of the load and of processes of another user, asks a real agent by
XML-RPC, lets a program fail and looks for its XID, and measures what a sample costs. Every wait has
a limit; the whole takes under two minutes. Prints a report in Markdown; exit 0 when all holds, 1
when something differs, 2 where there is no GPU to ask.
"""

from __future__ import annotations

import csv
import getpass
import io
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import xmlrpc.client
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import owners

HERE = Path(__file__).resolve().parent
LOAD_SECONDS = 75
START_SECONDS = 45
GPUMON = [sys.executable, "-m", "gpumon"]

# nvidia-smi's query name, our field, and by how much the two may differ, since they look at moments
# up to a second apart. None: equal.
FIELDS: list[tuple[str, str, float | None]] = [
    ("uuid", "uuid", None),
    ("name", "name", None),
    ("pci.bus_id", "pci_bus_id", None),
    ("utilization.gpu", "utilization_percent", 30),
    ("utilization.memory", "memory_utilization_percent", 40),
    ("memory.total", "memory_total_mib", 1),
    ("memory.used", "memory_used_mib", 64),
    ("memory.reserved", "memory_reserved_mib", 8),
    ("memory.free", "memory_free_mib", 64),
    ("temperature.gpu", "temperature_celsius", 6),
    ("power.draw", "power_draw_watts", 150),
    ("enforced.power.limit", "enforced_power_limit_watts", 1),
    ("clocks.sm", "sm_clock_mhz", 400),
    ("clocks.mem", "memory_clock_mhz", 200),
    ("fan.speed", "fan_speed_percent", 10),
    ("pstate", "performance_state", 2),
    ("utilization.encoder", "encoder_utilization_percent", 10),
    ("utilization.decoder", "decoder_utilization_percent", 10),
    ("clocks_event_reasons.active", "clock_event_reasons", None),
    ("ecc.mode.current", "ecc_mode", None),
    ("ecc.errors.corrected.volatile.total", "ecc_volatile_corrected", 0),
    ("ecc.errors.uncorrected.volatile.total", "ecc_volatile_uncorrected", 0),
    ("ecc.errors.corrected.aggregate.total", "ecc_aggregate_corrected", 0),
    ("ecc.errors.uncorrected.aggregate.total", "ecc_aggregate_uncorrected", 0),
    ("compute_mode", "compute_mode", None),
    ("persistence_mode", "persistence_mode", None),
    ("pcie.link.gen.current", "pcie_generation", 2),
    ("pcie.link.width.current", "pcie_width", 0),
    ("mig.mode.current", "mig_mode", None),
]
REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
)
"""The bits of nvidia-smi's clocks_event_reasons.active, lowest first."""
UNKNOWN = ("[n/a]", "n/a", "[not supported]", "[unknown error]", "[gpu requires reset]", "")


class Report:
    """The report, and whether everything held."""

    def __init__(self) -> None:
        self.faults = 0

    def say(self, text: str = "") -> None:
        print(text, flush=True)

    def check(self, holds: bool, text: str) -> None:
        self.faults += not holds
        self.say(f"- {'ok' if holds else 'DIFFERS'}: {text}")


def run(command: list[str], seconds: float = 30) -> str:
    """Return what the command printed; an empty text where it failed, said on stderr."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"{command[0]}: {error}", file=sys.stderr)
        return ""
    if done.returncode != 0:
        print(f"{' '.join(command)}: exit {done.returncode}: {done.stderr[-500:]}", file=sys.stderr)
    return done.stdout


def smi(fields: list[str]) -> list[dict[str, str]]:
    """Return nvidia-smi's answer per GPU, without the fields that it does not know."""
    known = [name for name in fields if "is not a valid field" not in run_any(name)]
    out = run(["nvidia-smi", f"--query-gpu={','.join(known)}", "--format=csv,noheader,nounits"])
    rows = csv.reader(io.StringIO(out), skipinitialspace=True)
    return [dict(zip(known, (value.strip() for value in row), strict=True)) for row in rows if row]


def run_any(field: str) -> str:
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stdout + done.stderr


def ours(value: Any) -> str | float | None:
    """Return one of our values the way nvidia-smi's become by `theirs`."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "enabled" if value else "disabled"
    if isinstance(value, str):
        return value.lower()
    if isinstance(value, list):
        return " ".join(value) or "none"
    return float(value)


def theirs(text: str) -> str | float | None:
    if text.lower() in UNKNOWN:
        return None
    if text.lower().startswith("0x"):
        bits = int(text, 16)
        return " ".join(word for bit, word in enumerate(REASONS) if bits >> bit & 1) or "none"
    text = text.removeprefix("P") if text[:1] == "P" and text[1:].isdigit() else text
    try:
        return float(text)
    except ValueError:
        return text.lower()


def agree(mine: str | float | None, other: str | float | None, slack: float | None) -> bool:
    if isinstance(mine, float) and isinstance(other, float):
        return abs(mine - other) <= (slack or 0)
    if isinstance(mine, str) and isinstance(other, str):
        # nvidia-smi writes some modes with blanks.
        return mine.replace("_", " ") == other.replace("_", " ")
    return mine is None and other is None


def snapshot() -> dict[str, Any] | None:
    try:
        return json.loads(run([*GPUMON, "snapshot", "--json"]))
    except ValueError:
        return None


def start_load(prefix: Sequence[str] = ()) -> tuple[subprocess.Popen[str] | None, str, float]:
    """Start the load with the first Python that manages; returns it, how, and when it began.

    `prefix`: a command that starts it (as another user, say).
    """
    for python in dict.fromkeys([sys.executable, shutil.which("python3") or sys.executable]):
        began = time.time()
        load = subprocess.Popen(
            [*prefix, python, str(HERE / "load.py"), str(LOAD_SECONDS)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert load.stdout is not None
        give_up = threading.Timer(START_SECONDS, load.kill)
        give_up.start()
        line = load.stdout.readline().strip()
        give_up.cancel()
        if line:
            return load, line, began
        end(load)
    return None, "", 0.0


def end(process: subprocess.Popen[str]) -> int:
    """End a process, by force where it does not listen; return its exit code."""
    process.terminate()
    try:
        return process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait(timeout=10)


def compare_fields(report: Report) -> None:
    report.say("\n## Fields beside nvidia-smi, under load\n")
    mine, other = snapshot(), smi([name for name, _, _ in FIELDS])
    if mine is None or not other:
        report.check(False, "gpumon snapshot and nvidia-smi both answer")
        return
    report.check(len(mine["gpus"]) == len(other), f"{len(other)} GPUs in both")
    driver = run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    report.check(
        mine["driver_version"] == driver.partition("\n")[0].strip(),
        f"driver {mine['driver_version']}, CUDA {mine['cuda_version']}",
    )
    report.say("\n| GPU | field | gpumon | nvidia-smi | |\n| --- | --- | --- | --- | --- |")
    for gpu, row in zip(mine["gpus"], other, strict=False):
        for name, field, slack in FIELDS:
            if name not in row:
                continue
            holds = agree(ours(gpu[field]), theirs(row[name]), slack)
            report.faults += not holds
            shown = (
                gpu[field] if gpu[field] is not None else f"unknown: {gpu['unknown'].get(field)}"
            )
            report.say(
                f"| {gpu['index']} | {field} | {shown} | {row[name]} |"
                f" {'ok' if holds else '**DIFFERS**'} |"
            )


def check_load(report: Report, load: subprocess.Popen[str], how: str, began: float) -> None:
    report.say(f"\n## The load's process ({how})\n")
    mine = snapshot()
    gpu = mine["gpus"][0] if mine and mine["gpus"] else {}
    rows = [p for p in gpu.get("processes") or [] if p["pid"] == load.pid]
    report.check(bool(rows), f"pid {load.pid} stands under GPU 0")
    if not rows:
        report.say(
            "  (in a container without the host's pids this can't be; then its note says so)"
        )
        return
    row, held = rows[0], int(how.split()[1])
    runtime = time.time() - began
    report.check(row["user"] == getpass.getuser(), f"owner {row['user']}")
    used = row["gpu_memory_used_mib"]
    report.check(used is not None and used >= held, f"{used} MiB held, at least {held} asked for")
    report.check(
        row["runtime_seconds"] is not None and abs(row["runtime_seconds"] - runtime) < 5,
        f"runtime {row['runtime_seconds']} s, started {runtime:.1f} s ago",
    )
    utilization = gpu["utilization_percent"]
    report.check(utilization is not None and utilization > 0, f"utilization {utilization} %")


def check_agent(report: Report, *, fault: bool) -> None:
    report.say("\n## The agent\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.yml")
        config.write_text(f"rpc_port: {port}\nagent: {{sample_interval: 1}}\n")
        agent = subprocess.Popen([*GPUMON, "agent", "--config", str(config)], text=True)
        try:
            proxy = xmlrpc.client.ServerProxy(f"http://127.0.0.1:{port}", allow_none=True)
            first = wait_for_sample(proxy)
            report.check(first is not None, "it has a sample within 30 s")
            if first is None:
                return
            times = []
            for _ in range(200):
                start = time.perf_counter()
                proxy.snapshot_json()
                times.append(1000 * (time.perf_counter() - start))
            times.sort()
            median = statistics.median(times)
            report.say(f"- snapshot_json: median {median:.2f} ms, p99 {times[197]:.2f} ms")
            legacy = json.loads(str(proxy.gpu_stats()))
            report.check(len(legacy["gpus"]) == len(legacy["procs"]) > 0, "gpu_stats() answers")
            time.sleep(10)  # A measurement, not a wait: what ten samples cost.
            report.say(f"- health: {json.dumps(proxy.health())}")
            report.say(f"- CPU and memory after ten more samples: {costs(agent.pid)}")
            if fault:
                check_fault(report, proxy)
        finally:
            code = end(agent)
            report.check(code == 0, f"SIGTERM ends it with exit {code}")


def check_fault(report: Report, proxy: xmlrpc.client.ServerProxy) -> None:
    """Let a program write to foreign memory; the agent must tell the driver's XID."""
    report.say("\n## A program's fault\n")
    said = run([sys.executable, str(HERE / "fault.py")]).strip()
    report.check(bool(said), f"a program is stopped by the driver: {said or 'it was not'}")
    limit, found = time.monotonic() + 10, []
    while said and not found and time.monotonic() < limit:
        gpu: Any = proxy.snapshot()
        found = [item for item in gpu["gpus"][0]["health"] if item["kind"] == "xid"]
        time.sleep(0.5)
    report.check(bool(found), "the agent tells it: " + "; ".join(x["text"] for x in found))
    for item in found:
        report.say(f"  source: {item['source']}; level: {item['level']}; ended: {item['ended_at']}")


def check_calls(report: Report) -> None:
    report.say("\n## What a sample costs here\n")
    report.say(run([sys.executable, str(HERE / "calls.py"), "20"], seconds=60).rstrip())


def wait_for_sample(proxy: xmlrpc.client.ServerProxy) -> dict[str, Any] | None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            found: Any = proxy.snapshot()
            if found["sample_age_seconds"] is not None:
                return dict(found)
        except (OSError, xmlrpc.client.Error):
            pass
        time.sleep(0.2)
    return None


def costs(pid: int) -> str:
    import psutil

    parts = []
    process = psutil.Process(pid)
    for one in [process, *process.children(recursive=True)]:
        cpu = one.cpu_times()
        rss = one.memory_info().rss / 1e6
        parts.append(f"pid {one.pid}: {cpu.user + cpu.system:.2f} s CPU, {rss:.0f} MB")
    return "; ".join(parts)


def main() -> int:
    if shutil.which("nvidia-smi") is None or not run(["nvidia-smi", "-L"]).startswith("GPU"):
        print(
            "test-gpu: nvidia-smi names no GPU on this machine; nothing to compare.",
            file=sys.stderr,
        )
        return 2
    report = Report()
    began = time.monotonic()
    report.say(f"# gpumon beside nvidia-smi\n\n{run([*GPUMON, '--version']).strip()}, ")
    report.say(run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]))
    load, how, load_began = start_load()
    report.check(load is not None, f"a CUDA load runs: {how or 'none could be started'}")
    try:
        if load is not None:
            time.sleep(3)  # Utilization is a mean over up to a second: let the load fill it.
        compare_fields(report)
        if load is not None:
            check_load(report, load, how, load_began)
            owners.check(report, snapshot, start_load)
        check_agent(report, fault=load is not None)
        check_calls(report)
        report.say("\n## gpumon snapshot\n\n```")
        report.say(run([*GPUMON, "snapshot"]).rstrip() + "\n```")
    finally:
        if load is not None:
            end(load)
    report.say(f"\n{report.faults} differences, {time.monotonic() - began:.0f} s.")
    return 1 if report.faults else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
