"""A stand-in for vesta's sender, written from its description."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any


def gpu(index: int = 0, **fields: object) -> dict[str, object]:
    told = {
        "device_num": index,
        "uuid": f"GPU-{index:08}",
        "gpu_name": "NVIDIA GeForce RTX 3090",
        "temperature": 41,
        "total_memory": 24_576,
        "available_memory": 4_576,
        "used_memory": 20_000,
        "timestamp": "2026/01/05 08:02:03.123",
        "gpu_volatile": 87,
        "processes": [
            {"pid": "4242", "name": "/usr/bin/python", "user": "alice", "used_memory": 19_800}
        ],
    }
    return {**told, **fields}


class Sender:
    """As its description says: registers, posts, and registers again when it is unknown."""

    def __init__(self, port: int, host: str = "node-1.lab", token: str = "v-token") -> None:
        self.base = f"http://127.0.0.1:{port}"
        self.host, self.token = host, token
        self.identity: str | None = None
        self.clock = 0

    def get(self, path: str, **query: str) -> dict[str, Any]:
        return self._ask(urllib.request.Request(f"{self.base}{path}?{_query(query)}"))

    def post(self, path: str, body: bytes, **query: str) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        url = f"{self.base}{path}?{_query(query)}"
        return self._ask(urllib.request.Request(url, body, headers))

    def status_of(self, path: str) -> int:
        """Return what a post says: the status in the body, or that of HTTP where it has none."""
        try:
            return int(self.post(path, b"{}", token=self.token)["status_code"])
        except urllib.error.HTTPError as error:
            return error.code

    def _ask(self, request: urllib.request.Request) -> dict[str, Any]:
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 200
            told: dict[str, Any] = json.loads(answer.read())
            return told

    def send(self, *gpus: dict[str, object]) -> dict[str, Any]:
        self.clock += 1
        stamp = f"2026/01/05 08:02:03.{self.clock:03}"
        data = {f"gpu:{n}": {**told, "timestamp": stamp} for n, told in enumerate(gpus)}
        return self.send_raw(json.dumps({"gpu_data": data}).encode())

    def send_raw(self, body: bytes) -> dict[str, Any]:
        for _ in range(2):
            if self.identity is None:
                told = self.get("/register/", host_name=self.host, token=self.token)
                if told["status_code"] != 200:
                    return told
                self.identity = told["id"]
            told = self.post(f"/update/host/{self.identity}", body, token=self.token)
            if told["status_code"] != 404:
                break
            self.identity = None
        return told


def _query(query: dict[str, str]) -> str:
    return urllib.parse.urlencode(query)
