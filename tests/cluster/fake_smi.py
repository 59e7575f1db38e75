"""A stand-in for nvidia-smi: prints what the file "scenario.json" beside it says.

It answers to the options that gpumon uses in the form that NVIDIA's prints: a header with units,
fields in the order asked for, one refused name at a time. Started as a program, never imported.
"""

import json
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
UNITS = {
    "utilization.gpu": "%",
    "utilization.memory": "%",
    "memory.total": "MiB",
    "memory.used": "MiB",
    "memory.free": "MiB",
    "memory.reserved": "MiB",
    "power.draw": "W",
    "enforced.power.limit": "W",
    "clocks.current.sm": "MHz",
    "clocks.current.memory": "MHz",
    "fan.speed": "%",
    "used_gpu_memory": "MiB",
}
PRINTED = {"used_memory": "used_gpu_memory", "clocks.sm": "clocks.current.sm"}


def main():
    with open(os.path.join(HERE, "scenario.json"), encoding="utf-8") as file:
        scenario = json.load(file)
    arguments = sys.argv[1:]
    with open(os.path.join(HERE, "calls"), "a", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {' '.join(arguments)}\n")
    if arguments == ["-L"]:
        print(scenario.get("list", ""))
        return 0
    asked = next(a for a in arguments if a.startswith("--query-"))
    kind, _, fields = asked.partition("=")
    part = scenario["gpus" if kind == "--query-gpu" else "processes"]
    if isinstance(part, dict):
        return special(part)
    fields = fields.split(",")
    for field in fields:
        if field in scenario.get("refused", []):
            print(f'Field "{field}" is not a valid field to query.\n')
            return 2
    if scenario.get("reversed"):
        fields = fields[::-1]
    names = [PRINTED.get(field, field) for field in fields]
    print(", ".join(f"{n} [{UNITS[n]}]" if n in UNITS else n for n in names))
    for row in part:
        values = (row.get(n, row.get(f, "[N/A]")) for n, f in zip(names, fields, strict=True))
        print(", ".join(str(value) for value in values))
    words = scenario.get("words")
    if words and kind == "--query-gpu":
        print(words)
    return scenario.get("code", 0) if kind == "--query-gpu" else 0


def special(part):
    """Do what no table is: words and an exit code, silence, endless output."""
    sys.stdout.write(part.get("text", ""))
    sys.stdout.flush()
    if part.get("hang"):
        time.sleep(600)
    while part.get("drip"):
        sys.stdout.write("x")
        sys.stdout.flush()
        time.sleep(0.05)
    while part.get("endless"):
        sys.stdout.write("x" * 65536)
    return part.get("code", 0)


if __name__ == "__main__":
    sys.exit(main())
