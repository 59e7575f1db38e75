"""Keeps a sampler alive, and with it the newest sample, whatever the driver does.

NVML can hang for ever or crash the process that calls it. So it runs in a child (see `child.py`),
and this is the policy around it: one sample per interval, a deadline for each, a fresh child after
a failure. A GPU that made a child fail is left out of the next ones (see `skips.py`), so that it
costs its own row only, and is tried again in a second child beside the working one, so that a try
costs no sample.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable

import msgspec

from gpumon.agent.beginnings import Beginnings
from gpumon.agent.child import Child, Frame
from gpumon.agent.failures import SamplerFailed
from gpumon.agent.latest import Latest, SkippedGpu
from gpumon.agent.launch import sampler_command
from gpumon.agent.odd import OddValues
from gpumon.agent.skips import Skips
from gpumon.agent.usage import Usage
from gpumon.config import Limits
from gpumon.model import decode_snapshot, encode

log = logging.getLogger(__name__)

RETRY_PAUSES = (60.0, 1800.0)
"""Shortest and longest pause, in seconds, before a GPU that made a sampler fail is tried again."""
RESTART_PAUSES = (1.0, 60.0)
"""Shortest and longest pause before a sampler is replaced; doubles with each failure in a row."""

_STUMBLED = "its log says why (journalctl -u gpumon-agent)"


class Supervisor:
    """Takes a sample every `interval` seconds; `latest` has the newest, from any thread."""

    def __init__(
        self,
        *,
        interval: float,
        limits: Limits = Limits(),  # noqa: B008  frozen
        deadline: float = 10.0,
        start_deadline: float = 30.0,
        command: list[str] | None = None,
        retry_pauses: tuple[float, float] = RETRY_PAUSES,
        restart_pauses: tuple[float, float] = RESTART_PAUSES,
    ) -> None:
        """All times are seconds: `deadline` bounds a sample, `start_deadline` the first of a child.

        The first one loads NVML, which takes its time where persistence mode is off. `command`
        starts a sampler; its options are appended.
        """
        self._interval = interval
        self._deadline = deadline
        self._start_deadline = start_deadline
        self._command = command or sampler_command()
        self._outdated = False
        """Whether the child runs with a command of before."""
        self._skips = Skips(*retry_pauses)
        self._usage = Usage(interval, limits)
        self._beginnings = Beginnings()
        self._odd = OddValues()
        self._restart_pauses = restart_pauses
        self._pause = restart_pauses[0]
        self._run_id = os.urandom(4).hex()
        self._samples = 0
        self._unanswered_since: float | None = None  # epoch, of the first request since a sample
        self._child: Child | None = None
        self._trial: asyncio.Task[Child | None] | None = None
        self._trial_command = self._command
        self._closing: set[asyncio.Task[None]] = set()
        self._latest = Latest(revision=f"{self._run_id}-0", interval=interval)

    def latest(self) -> Latest:
        """Return what is known now. Never waits; for any thread."""
        return self._latest

    def replace_command(self, command: list[str]) -> None:
        """Take the next samples with another command. Called from the loop that `run` is in."""
        if command != self._command:
            self._command = command
            self._outdated = True

    async def run(self) -> None:
        """Take samples until cancelled. Nothing that a sampler does ends it."""
        turn = time.monotonic()
        try:
            while True:
                try:
                    self._use_trial()
                    self._publish(await self._sample())
                except SamplerFailed as failure:
                    await self._recover(failure)
                except Exception:  # the loop must live; what is unforeseen is a failure like others
                    log.exception("the supervisor stumbled")
                    await self._recover(SamplerFailed("the agent failed", advice=_STUMBLED))
                else:
                    self._begin_trial()
                    turn = next_turn(turn, time.monotonic(), self._interval)
                    await asyncio.sleep(turn - time.monotonic())
        finally:
            await self._end()

    async def _sample(self) -> Frame:
        if self._outdated and self._child is not None:
            self._retire(self._child)
            self._child = None
        self._outdated = False
        if self._child is None:
            self._child = await self._start(self._skips.all())
        if self._unanswered_since is None:
            self._unanswered_since = time.time()
        deadline = self._deadline if self._child.asked else self._start_deadline
        return await self._child.ask(deadline, self._unanswered_since)

    async def _start(self, skip: Iterable[SkippedGpu]) -> Child:
        return await Child.start(self._command, self._interval, skip)

    def _publish(self, frame: Frame) -> None:
        now = time.monotonic()
        means = self._usage.add(frame.summary, now)
        begun = self._beginnings.add(
            frame.health, time=frame.summary.time, now=now, longest_gap=self._usage.longest_gap()
        )
        self._odd.add(frame.odd)
        self._samples += 1
        self._unanswered_since = None
        self._pause = self._restart_pauses[0]
        self._change(
            revision=f"{self._run_id}-{self._samples}",
            snapshot=frame.snapshot,
            summary=encode(frame.summary),
            means=means,
            begun=begun,
            taken_at=now,
            sampler_error=None,
            out_of_range=self._odd.counts(),
        )

    def _report(self, sentence: str) -> None:
        log.warning("%s", sentence)
        self._change(sampler_error=sentence, last_error=sentence)

    def _change(self, **changes: object) -> None:
        changed = {"skipped": self._skips.all(), **changes}
        self._latest = msgspec.structs.replace(self._latest, **changed)

    async def _recover(self, failure: SamplerFailed) -> None:
        """End the child, leave out the GPU that it failed on, pause; the next turn starts anew."""
        child, self._child = self._child, None
        if child is not None and failure.gpu is not None and failure.gpu not in child.skipped:
            self._blame(failure.gpu, failure)
            self._pause = self._restart_pauses[0]  # the next child does not meet this GPU
        self._report(str(failure))
        if child is not None and not await child.kill():
            # Within the driver, deaf to SIGKILL. Another child would only join it there.
            self._report(
                f"{failure.what}; the sampler (process {child.pid}) can't be ended before the "
                "driver lets it go, and is replaced then; if that takes long, reboot the host"
            )
            await child.wait_until_gone()
        await asyncio.sleep(self._pause)
        self._pause = min(2 * self._pause, self._restart_pauses[1])
        self._change(restarts=self._latest.restarts + 1)

    def _blame(self, index: int, failure: SamplerFailed) -> None:
        uuid, name = self._identity(index)
        self._skips.blame(index, uuid, name, str(failure), time.monotonic())

    def _identity(self, index: int) -> tuple[str | None, str | None]:
        """Return uuid and name that the GPU had in the newest sample."""
        if self._latest.snapshot is not None:
            for gpu in decode_snapshot(self._latest.snapshot).gpus:
                if gpu.index == index:
                    return gpu.uuid, gpu.name
        return None, None

    # ---- Trying a skipped GPU again, beside the working child. ----

    def _begin_trial(self) -> None:
        gpu = self._skips.due(time.monotonic())
        if gpu is not None and self._trial is None:
            self._trial = asyncio.create_task(self._try(gpu))
            self._trial_command = self._command

    async def _try(self, gpu: SkippedGpu) -> Child | None:
        """Return a child that has read `gpu`, None when that failed."""
        child: Child | None = None
        try:
            others = [other for other in self._skips.all() if other.index != gpu.index]
            child = await self._start(others)
            await child.ask(self._start_deadline)
        except SamplerFailed as failure:
            log.warning("GPU %d was tried again: %s", gpu.index, failure)
            self._blame(gpu.index, failure)
            self._change()
            if child is not None and not await child.kill():
                await child.wait_until_gone()  # no other trial before that
            return None
        except BaseException:
            if child is not None:
                await child.kill()
            raise
        log.info("GPU %d was tried again and answers", gpu.index)
        self._skips.heal(gpu.index, time.monotonic())
        self._change()
        return child

    def _use_trial(self) -> None:
        """Put the child of a trial that went well in the place of the one that skips the GPU."""
        if self._trial is None or not self._trial.done():
            return
        trial, self._trial = self._trial, None
        new, old = trial.result(), self._child
        if new is None:
            return
        self._outdated |= self._trial_command != self._command
        if {gpu.index for gpu in self._skips.all()} <= new.skipped:
            self._child = new
        else:
            # Another GPU has failed meanwhile, which the new child reads, and the old one does not
            # read the healed one. The next sample starts a child that is right in both.
            self._child = None
            self._retire(new)
        if old is not None:
            self._retire(old)

    def _retire(self, child: Child) -> None:
        """End a child that is well, without waiting for it."""
        task = asyncio.create_task(child.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _end(self) -> None:
        """End all children."""
        if self._trial is not None:
            self._trial.cancel()
            await asyncio.wait({self._trial})
            if not self._trial.cancelled() and self._trial.exception() is None:
                self._use_trial()
        if self._child is not None:
            await self._child.close()
        if self._closing:
            await asyncio.wait(self._closing)


def next_turn(turn: float, now: float, interval: float) -> float:
    """Return the first time after `now` on the schedule `turn`, `turn + interval`, ..."""
    missed = int((now - turn) // interval)
    return turn + (missed + 1) * interval
