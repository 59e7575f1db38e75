"""Agents of earlier tools, built on loopback from the descriptions of what they send."""

from __future__ import annotations

import json
import threading
import xmlrpc.server
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

GPUMONITOR_PROCESS = {
    "pid": 4711,
    "process_name": "/opt/conda/bin/python",
    "used_memory": 20480,
    "unit": "MiB",
    "userid": "alice",
    "time": "1 day, 2:03:04",
}


def gpumonitor_gpu(**fields: Any) -> dict[str, Any]:
    """An empty GPU as gpumonitor tells it: MiB as floats."""
    return {
        "memory_total": 81559.0,
        "memory_used": 530.4375,
        "memory_free": 81028.5625,
        "utilization": 0,
        "temperature": 31,
        "model": "NVIDIA A100-SXM4-80GB",
        **fields,
    }


def gpumonitor_stats(*gpus: Any, procs: Any = None) -> str:
    """The text of gpu_stats(): as many lists of processes as GPUs."""
    lists = [[] for _ in gpus] if procs is None else procs
    return json.dumps({"gpus": list(gpus), "procs": lists})


class _QuietXmlRpc(xmlrpc.server.SimpleXMLRPCRequestHandler):
    def log_message(self, *_: object) -> None: ...


@contextmanager
def gpumonitor_agent(gpu_stats: Callable[[], Any], **methods: Callable[..., Any]) -> Iterator[int]:
    """Python's own XML-RPC server with the one method, one client at a time. Yields its port."""
    server = xmlrpc.server.SimpleXMLRPCServer(("127.0.0.1", 0), _QuietXmlRpc)
    server.register_function(gpu_stats, "gpu_stats")
    for name, method in methods.items():
        server.register_function(method, name)
    with _running(server):
        yield server.server_address[1]


def nvgpu_gpu(**fields: Any) -> dict[str, Any]:
    """An empty GPU as an agent of nvgpu tells it."""
    return {
        "type": "Tesla V100-SXM2-32GB",
        "is_available": True,
        "pids": "",
        "users": "",
        "running_since": None,
        "utilization": 0,
        "clock_mhz": 135,
        "temperature": 40,
        "cmd": None,
        **fields,
    }


@contextmanager
def nvgpu_agent(report: Callable[[], tuple[int, bytes]]) -> Iterator[int]:
    """A web server whose GET /gpu_status answers with status and body. Yields its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = report() if self.path == "/gpu_status" else (404, b"not here")
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with _running(server):
        yield server.server_address[1]


@contextmanager
def _running(server: Any) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
