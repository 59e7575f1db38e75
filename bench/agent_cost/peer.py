"""One reading after another by another tool, in its own virtual environment.

    python peer.py gpustat|nvitop|glances

It uses what each tool offers to programs, kept in one process. For each line "s" on standard input:
one sample, and a JSON text as one line.
"""

# The tools are installed where this runs, and nowhere else.
# mypy: disable-error-code="import-not-found, import-untyped"

import json
import sys
from collections.abc import Callable


def gpustat() -> Callable[[], str]:
    import gpustat

    return lambda: json.dumps(gpustat.new_query().jsonify(), default=str)


def nvitop() -> Callable[[], str]:
    from nvitop import Device, take_snapshots

    devices = Device.all()

    def sample() -> str:
        found = take_snapshots(devices)
        rows = [dict(row) for row in (*found.devices, *found.gpu_processes)]
        return json.dumps(rows, default=str)

    return sample


def glances() -> Callable[[], str]:
    # Below its plugin, which gives the answer before as long as that is younger than two seconds.
    from glances.plugins.gpu.cards.nvidia import NvidiaGPU

    gpus = NvidiaGPU()
    return lambda: json.dumps(gpus.get_device_stats())


def main() -> None:
    take = {"gpustat": gpustat, "nvitop": nvitop, "glances": glances}[sys.argv[1]]()
    for _ in sys.stdin.buffer:
        sys.stdout.write(take().replace("\n", " ") + "\n")
        sys.stdout.flush()


main()
