"""The collector at one sample per five seconds, by a clock that is turned forward by hand.

So the questions of once a minute are asked as often as in real life. For each line "s" on standard
input: one sample, five seconds after the one before, and a line.
"""

from __future__ import annotations

import sys

import msgspec

from gpumon.collect import moment
from gpumon.collect.snapshot import Collector

STEP_SECONDS = 5.0


def main() -> None:
    now = moment.now()
    collector = Collector(interval=STEP_SECONDS, clock=lambda: now)
    for _ in sys.stdin.buffer:
        now = msgspec.structs.replace(
            now,
            wall=now.wall + STEP_SECONDS,
            monotonic=now.monotonic + STEP_SECONDS,
            boot=now.boot + STEP_SECONDS,
        )
        collector.sample()
        print(flush=True)
    collector.close()


if __name__ == "__main__":
    main()
