"""GPUs that are shared through CUDA MPS, the Multi-Process Service."""

from __future__ import annotations

from gpumon.model import Process

SHARED = "shared through MPS: the driver names its server and not who uses it"

_SERVER = "nvidia-cuda-mps-server"


def hide_owner_of_mps(rows: list[Process]) -> None:
    """Take the owner from the MPS server where the driver lists none of its clients.

    All their work runs in the server then, and root, who started that, is not the one who uses the
    GPU. A server of another uid works for that uid alone; so nobody else gets rid of a process by
    calling it a server. `rows` are those of one GPU or instance.
    """
    servers = [row for row in rows if row.program == _SERVER and row.uid == 0]
    if any("mps" in row.kinds and row not in servers for row in rows):
        return
    for server in servers:
        server.user, server.user_by, server.note = None, None, SHARED
