"""What the simulated agents answer: 8 GPUs with 20 processes each, in the bytes of a real agent."""

from __future__ import annotations

import base64
import gzip
import random

import msgspec

from gpumon.http.xmlrpc import ARRAY, ENVELOPE, array, enveloped, json_text, string
from gpumon.model import Gpu, HostInfo, HostSnapshot, Process, encode
from gpumon.summary import summarize

GPUS = 8
PROCESSES = 20
"""Per GPU."""
SAMPLE_SECONDS = 5.0
"""An agent takes a sample this often: a poll after that brings news."""

_USERS = ("ada", "grace", "linus", "barbara", "ken", "donald")
_COMMAND = (
    "python -m torch.distributed.run --nproc-per-node 8 train.py --config configs/pretrain-7b.yaml "
    "--seed {} --run-name sweep-{} --output /data/runs/{}"
)
_SPLICED = ("sample_age_seconds", "time")


def a_snapshot(seed: int, gpus: int = GPUS, processes: int = PROCESSES) -> HostSnapshot:
    """Return the reading of an invented host, with as much in it as a real one has."""
    rng = random.Random(seed)
    return HostSnapshot(
        sample_age_seconds=1.0,
        hostname=f"node-{seed:05}",
        time=1_764_000_000.0,
        sample_interval_seconds=SAMPLE_SECONDS,
        agent_version="0.1.0",
        driver_version="570.133.20",
        cuda_version="12.8",
        gpu_count=gpus,
        host=HostInfo(cpu_percent=37.5, memory_total_mib=2_063_937, memory_available_mib=1_437_822),
        gpus=[_gpu(index, processes, rng) for index in range(gpus)],
    )


def _gpu(index: int, processes: int, rng: random.Random) -> Gpu:
    owners = rng.sample(_USERS, 2)
    return Gpu(
        index=index,
        uuid=_uuid(rng),
        pci_bus_id=f"00000000:{index:02X}:00.0",
        name="NVIDIA H100 80GB HBM3",
        utilization_percent=rng.randrange(101),
        memory_total_mib=81_559,
        memory_used_mib=60_000 + rng.randrange(20_000),
        memory_reserved_mib=551,
        temperature_celsius=rng.randrange(40, 85),
        power_draw_watts=rng.randrange(100, 700) + 0.5,
        enforced_power_limit_watts=700.0,
        processes=[_process(rng, rng.choice(owners)) for _ in range(processes)],
    )


def _process(rng: random.Random, owner: str) -> Process:
    number = rng.randrange(10**6)
    return Process(
        pid=rng.randrange(1000, 4_000_000),
        user=owner,
        kinds=["compute"],
        gpu_memory_used_mib=rng.randrange(500, 4000),
        started_at=1_763_000_000.0 + rng.randrange(10**6),
        program="python",
        command=_COMMAND.format(number, number, number),
    )


def _uuid(rng: random.Random) -> str:
    digits = f"{rng.getrandbits(128):032x}"
    return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


class Agent:
    """Ready bytes of one kind of host, told apart by their UUIDs host by host."""

    def __init__(self, seed: int, gpus: int = GPUS, processes: int = PROCESSES) -> None:
        snapshot = a_snapshot(seed, gpus, processes)
        self.uuids = [str(gpu.uuid) for gpu in snapshot.gpus]
        plain = encode(snapshot)
        self.json_bytes = len(plain)
        self.packed = string(base64.b64encode(gzip.compress(plain, 6)))
        summary = msgspec.to_builtins(summarize(snapshot))
        for name in _SPLICED:
            del summary[name]
        # The two fields that change between two polls come first, so that nothing is encoded twice.
        self._rest = json_text(encode(summary))[1:]

    def summary(self, host: int, sampled: float) -> bytes:
        """Return the summary of host number `host`, sampled at `sampled` (epoch seconds)."""
        own = b"GPU-%04x" % host
        head = b'{"sample_age_seconds":1.0,"time":%.3f,' % sampled
        rest = self._rest
        for uuid in self.uuids:
            rest = rest.replace(uuid.encode(), own + uuid[8:].encode())
        return head + rest

    def news(self, revision: bytes, summary: bytes) -> bytes:
        """Return the answer to a poll that does not know `revision`."""
        return enveloped(array([string(revision), string(summary), self.packed]))


def unchanged(revision: bytes) -> bytes:
    """Return the answer to a poll that knows `revision`."""
    news = b'{"sample_age_seconds":2.0,"sampler_error":null}'
    return enveloped(array([string(revision), string(news)]))


def answered(body: bytes, *headers: bytes) -> bytes:
    """Return `body` as the HTTP answer of an agent."""
    lines = [b"HTTP/1.1 200 OK", b"content-type: text/xml", b"content-length: %d" % len(body)]
    return b"\r\n".join([*lines, *headers]) + b"\r\n\r\n" + body


EMPTY = ENVELOPE[0] + ARRAY[0] + ARRAY[1] + ENVELOPE[1]
