"""An application on a real socket, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from gpumon.http.server import Site, open_sockets, serve


@contextlib.contextmanager
def served(app: Any, port: int = 0) -> Iterator[int]:
    """Serve `app` on loopback; give the port, a free one where none is asked for."""
    listening = Site(name="web", app=app, binds=[f"127.0.0.1:{port}"])
    port = int(open_sockets(listening)[0].rpartition(":")[2])
    loop, shutdown = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve([listening], shutdown),))
    thread.start()
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(shutdown.set)
        thread.join(timeout=10)
        assert not thread.is_alive()
        loop.close()
