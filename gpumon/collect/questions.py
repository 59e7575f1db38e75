"""Asking one device: what may be asked now, what is kept from before, what went wrong.

The driver answers some questions slowly and each of them disturbs the GPU a little. So what never
changes is asked once, what changes by an administrator's hand once a minute, and what this GPU or
driver does not support not again before the next minute.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gpumon.collect.nvml import (
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    NOT_SUPPORTED,
    NOT_SUPPORTED_WITH_VGPU,
    RESET_REQUIRED,
    Unknown,
)
from gpumon.model import OUT_OF_RANGE, Gpu

FOREVER = math.inf
MINUTE = 60.0
_NOT_OFFERED = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND, NOT_SUPPORTED_WITH_VGPU})
"""Plain answers of a driver that works: a Jetson's says hardly anything else."""


class GpuLost(Exception):
    """The driver says that the GPU behind this handle is gone; nothing else may be asked of it."""

    def __init__(self, answer: Unknown) -> None:
        super().__init__(answer.reason)
        self.answer = answer


class Questions:
    """The questions to one device and their kept answers.

    `phase` (seconds) is added once to the first keeping of an answer, so that the GPUs of a host
    do not all refresh in the same sample.
    """

    def __init__(self, phase: float = 0.0) -> None:
        self._phase = phase
        self._kept: dict[str, tuple[float, Any]] = {}
        self.now = 0.0
        self.good_until = math.inf
        """Until when each of this round's answers would be the same, by what is kept."""
        self.asked = 0
        self.answered = 0
        """How many of this round's questions about the moment were asked, and were answered.

        Those that this GPU or driver does not support don't count.
        """
        self.failure: Unknown | None = None
        """The last of those that was not."""

    def begin(self, now: float) -> None:
        """Begin a round at `now` (seconds, monotonic)."""
        self.now = now
        self.good_until = math.inf
        self.asked = self.answered = 0

    def ask(self, key: str, question: Callable[..., Any], *args: object, keep: float = 0.0) -> Any:
        """Return the answer of `question(*args)`, or the one kept under `key` while it is good.

        A good answer is kept for `keep` seconds; an Unknown that will not change soon for a minute.
        Raises GpuLost.
        """
        kept = self._kept.get(key)
        if kept is not None and self.now < kept[0]:
            self.good_until = min(self.good_until, kept[0])
            return kept[1]
        answer = question(*args)
        if isinstance(answer, Unknown):
            if answer.code in (GPU_IS_LOST, RESET_REQUIRED):
                raise GpuLost(answer)
            if not keep and answer.code not in _NOT_OFFERED:
                self.asked += 1
                self.failure = answer
            keep = MINUTE if answer.settled else 0.0
        elif not keep:
            self.asked += 1
            self.answered += 1
            self.good_until = self.now
            return answer
        due = self.now
        if keep:
            due += keep + (self._phase if kept is None else 0.0)
            self._kept[key] = (due, answer)
        self.good_until = min(self.good_until, due)
        return answer

    def forget(self, key: str) -> None:
        """Let the next question under `key` be asked whatever was kept."""
        self._kept.pop(key, None)


class Sheet:
    """Fills the fields of one Gpu: each with a value in range, or with None and the reason."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu

    def put(
        self,
        field: str,
        answer: int | Unknown,
        low: int,
        high: int,
        convert: Callable[[int], Any] = int,
    ) -> None:
        """Set `field` to `convert(answer)` where `answer` lies from `low` to `high`."""
        if isinstance(answer, Unknown):
            self.gpu.unknown[field] = answer.reason
        elif not low <= answer <= high:
            self.gpu.unknown[field] = f"{OUT_OF_RANGE} (found {answer})"
        else:
            setattr(self.gpu, field, convert(answer))

    def put_text(self, field: str, answer: str | Unknown) -> None:
        """Set `field` to a text that the door has cleaned."""
        if isinstance(answer, Unknown):
            self.gpu.unknown[field] = answer.reason
        else:
            setattr(self.gpu, field, answer)
