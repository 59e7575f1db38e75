"""What one sample costs on this driver, and each of its NVML calls: `calls.py SAMPLES`.

Prints a Markdown table, the dearest call first. Run under load for figures that mean something.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pynvml

from gpumon.collect.snapshot import Collector

WARM_UP = 3


def time_calls(times: dict[str, list[float]]) -> None:
    """Wrap the binding's look-up of the library's functions, so that each call is timed."""
    find = pynvml._nvmlGetFunctionPointer
    wrapped: dict[str, Callable[..., Any]] = {}

    def timed(name: str) -> Callable[..., Any]:
        if name not in wrapped:
            function = find(name)

            def call(*arguments: Any) -> Any:
                start = time.perf_counter()
                try:
                    return function(*arguments)
                finally:
                    times[name].append(time.perf_counter() - start)

            wrapped[name] = call
        return wrapped[name]

    pynvml._nvmlGetFunctionPointer = timed


def main() -> int:
    samples = int(sys.argv[1])
    times: dict[str, list[float]] = defaultdict(list)
    time_calls(times)
    collector = Collector(interval=1.0)
    cpu, wall = [], []
    for number in range(WARM_UP + samples):
        if number == WARM_UP:
            times.clear()
        began, used = time.perf_counter(), time.process_time()
        collector.sample()
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
        time.sleep(0.5)  # A measurement at a pace, not a wait: the driver's own caches age.
    collector.close()
    in_calls = 1000 * sum(sum(values) for values in times.values()) / samples
    print(
        f"- one sample: {1000 * statistics.median(wall[WARM_UP:]):.2f} ms,"
        f" CPU {1000 * statistics.median(cpu[WARM_UP:]):.2f} ms,"
        f" of it in the driver {in_calls:.2f} ms; the first {1000 * wall[0]:.0f} ms\n"
    )
    print("| NVML call | a sample | median | most |\n| --- | --- | --- | --- |")
    for name, values in sorted(times.items(), key=lambda item: -sum(item[1])):
        print(
            f"| {name} | {len(values) / samples:.1f} | {1e6 * statistics.median(values):.0f} µs"
            f" | {1e6 * max(values):.0f} µs |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
