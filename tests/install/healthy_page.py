"""Stands for the page of a server that is well, where a module asks whether it is."""

from __future__ import annotations

import http.server


class HealthyPage(http.server.BaseHTTPRequestHandler):
    """Answers whatever is asked with one fresh host."""

    def do_GET(self) -> None:
        body = b'{"hosts_fresh": 1}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
