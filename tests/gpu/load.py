"""A real CUDA load on GPU 0 for a number of seconds: `load.py SECONDS`.

By torch, by cupy, or, where neither is installed, by the driver's own API (libcuda.so.1), which
is on every machine with a driver: 1 GiB held and filled again and again. Prints one line once the
memory is held: the way taken, then the MiB.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable

MIB = 1024 * 1024
HELD_MIB = 1024


def by_torch() -> Callable[[], object]:
    import torch

    held = torch.ones(HELD_MIB * MIB // 4, device="cuda:0")
    square = held[: 4096 * 4096].view(4096, 4096)

    def step() -> None:
        torch.mm(square, square)
        torch.cuda.synchronize()

    return step


def by_cupy() -> Callable[[], object]:
    import cupy

    held = cupy.ones(HELD_MIB * MIB // 4, dtype=cupy.float32)

    def step() -> None:
        cupy.multiply(held, held, out=held)
        cupy.cuda.Stream.null.synchronize()

    return step


def by_driver() -> Callable[[], object]:
    cuda = ctypes.CDLL("libcuda.so.1")

    def check(name: str, *arguments: object) -> None:
        code = getattr(cuda, name)(*arguments)
        if code != 0:
            raise OSError(f"{name} failed with CUDA error {code}")

    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    check("cuInit", 0)
    check("cuDeviceGet", ctypes.byref(device), 0)
    check("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    check("cuCtxSetCurrent", context)
    check("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(HELD_MIB * MIB))

    def step() -> None:
        for value in range(50):
            check(
                "cuMemsetD32_v2", memory, ctypes.c_uint(value), ctypes.c_size_t(HELD_MIB * MIB // 4)
            )
        check("cuCtxSynchronize")

    return step


def main() -> int:
    seconds = float(sys.argv[1])
    failures = []
    for way in (by_torch, by_cupy, by_driver):
        try:
            step = way()
            step()
        except (ImportError, OSError, RuntimeError, AttributeError) as error:
            failures.append(f"{way.__name__}: {type(error).__name__}: {error}")
            continue
        print(way.__name__, HELD_MIB, flush=True)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            step()
        return 0
    print("no CUDA load could be started:", "; ".join(failures), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
