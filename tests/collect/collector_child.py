"""Runs a Collector for the tests, against the fake NVML that the environment names.

The binding never unloads a library, so this can't be done in the tests' own process. Reads one JSON
object a line: {"new": {...}} starts over with a new Collector, {"later": 60, "wall_step": 0} moves
the clocks and takes a sample. Each is answered by one line: the snapshot, or the progress numbers.
"""

import sys

import msgspec

from gpumon.collect import moment
from gpumon.collect.devices import Skipped
from gpumon.collect.moment import Moment
from gpumon.collect.snapshot import Collector
from gpumon.model import encode


class Clock:
    def __init__(self) -> None:
        self.later = 0.0
        self.wall_step = 0.0

    def __call__(self) -> Moment:
        now = moment.now()
        return Moment(now.wall + self.wall_step, now.monotonic + self.later, now.boot + self.later)


def main() -> None:
    clock = Clock()
    progress: list[int] = []
    collector = None
    for line in sys.stdin:
        command = msgspec.json.decode(line)
        if "new" in command:
            if collector is not None:
                collector.close()
            skip = {
                int(index): Skipped(**skipped) for index, skipped in command["new"]["skip"].items()
            }
            clock = Clock()
            collector = Collector(
                interval=5.0,
                skip=skip,
                progress=progress.append,
                kernel_log=command["new"]["kernel_log"],
                state_path=command["new"]["state"],
                log=lambda text: print(text, file=sys.stderr, flush=True),
                clock=clock,
            )
            answer = b"{}"
        elif "progress" in command:
            answer = encode(progress)
        else:
            clock.later += command["later"]
            clock.wall_step += command["wall_step"]
            progress.clear()
            answer = encode(collector.sample())
        sys.stdout.buffer.write(answer + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
