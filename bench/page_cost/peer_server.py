"""Another tool's web server, on loopback, over the invented hosts; in its own environment.

`python peer_server.py gpuview|gpustat-web|nvgpu FILE` with the FILE of gpumonitor_way.py, which
also has "ssh". Each is started as its own command starts it, but for the address that it listens
on (gpustat-web has no choice of that) and the place of gpuview's list of hosts.
"""

# The tools are installed where this runs, and nowhere else.
# mypy: disable-error-code="import-not-found, import-untyped"

import json
import os
import sys
from pathlib import Path
from typing import Any


def gpuview(task: dict[str, Any], folder: Path) -> None:
    from gpuview import app, core

    lines = [f"{name}\thttp://{address}:{port}\n" for name, address, port in task["hosts"]]
    core.HOSTS_DB = str(folder / "gpuhosts.db")
    Path(core.HOSTS_DB).write_text("".join(lines))
    # No GPU here: without this option it would ask for its own, and say so in every answer.
    sys.argv[1:] = ["run", "--host", "127.0.0.1", "--port", str(task["port"]), "--exclude-self"]
    app.main()


def gpustat_web(task: dict[str, Any], folder: Path) -> None:
    from aiohttp import web
    from gpustat_web.app import create_app

    hosts = [address for _, address, _ in task["hosts"]]
    app, _ = create_app(hosts=hosts, default_port=task["ssh"], verify_host=False, verbose=False)
    web.run_app(app, host="127.0.0.1", port=task["port"])


def nvgpu(task: dict[str, Any], folder: Path) -> None:
    agents = [f"http://{address}:{port}" for _, address, port in task["hosts"]]
    config = folder / "nvgpu.cfg"
    config.write_text(f"AGENTS = {agents!r}\n")
    os.environ["NVGPU_CLUSTER_CFG"] = str(config)
    from nvgpu.webapp import app

    app.run(host="127.0.0.1", port=task["port"], threaded=True)


def main() -> None:
    start = {"gpuview": gpuview, "gpustat-web": gpustat_web, "nvgpu": nvgpu}[sys.argv[1]]
    path = Path(sys.argv[2])
    start(json.loads(path.read_text()), path.parent)


main()
