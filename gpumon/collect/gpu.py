"""One GPU: from its NVML handle to one `Gpu`, each field alone."""

from __future__ import annotations

import copy
import math
from typing import Any

from gpumon.collect import memory, nvml, nvml_processes
from gpumon.collect.clock_events import reason_words
from gpumon.collect.health.conditions import RECOVERY_ACTIONS
from gpumon.collect.memory import LARGEST_BYTES, mib
from gpumon.collect.mig import MigReader
from gpumon.collect.moment import Round
from gpumon.collect.nvml import Unknown
from gpumon.collect.questions import FOREVER, MINUTE, Questions, Sheet
from gpumon.model import Gpu

_COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
_MOST_MILLIWATTS = 10_000_000
_MOST_MHZ = 20_000
_MOST_ERRORS = 2**53
_UNDER_MIG = Unknown("not available under MIG")
_NO_MIG = frozenset({nvml.NOT_SUPPORTED, nvml.FUNCTION_NOT_FOUND, nvml.NOT_SUPPORTED_WITH_VGPU})
"""What a GPU or driver without MIG answers when it is asked for its mode."""


class GpuReader:
    """Reads one GPU again and again.

    `phase` (seconds) spreads the questions of once a minute over the GPUs of a host.
    """

    def __init__(self, index: int, *, phase: float = 0.0) -> None:
        self._handle: object = None
        self._questions = Questions(phase)
        self._seldom = Questions(phase)
        """What is asked once a minute and less; between, `_kept` has all of its answers."""
        self._kept = Gpu(index=index)
        self._kept_until = -math.inf
        self._mig = MigReader()
        self._utilization_known = False
        self.known = Gpu(index=index)
        """Index, UUID, bus id and name as last read: what stays known of a GPU that gets lost."""

    def read(self, handle: object, this: Round) -> Gpu:
        """Return what the driver says now; raises GpuLost when it says that the GPU is gone."""
        self._handle = handle
        questions = self._questions
        questions.begin(this.now.monotonic)
        if this.now.monotonic >= self._kept_until:
            self._read_seldom(this.now.monotonic)
        gpu = copy.copy(self._kept)
        gpu.unknown = self._kept.unknown.copy()
        gpu.health, gpu.hints, gpu.mig = [], [], []
        sheet = Sheet(gpu)
        total = self._memory(sheet)
        self._utilization(sheet)
        self._sensors(sheet)
        self._ecc_counts(sheet, questions, "volatile", nvml.VOLATILE, nvml.FIELDS_ECC_VOLATILE)
        self._processes(gpu, total, this)
        if questions.failure is not None and questions.asked and not questions.answered:
            gpu.error = (
                f"the driver answers no question about this GPU ({questions.failure.reason}); "
                "look for NVRM and Xid lines in the kernel log: dmesg"
            )
        return gpu

    def _read_seldom(self, now: float) -> None:
        """Put together anew what is the same in all samples until one of its answers is due."""
        self._seldom.begin(now)
        gpu = Gpu(index=self.known.index)
        sheet = Sheet(gpu)
        self._identity(sheet)
        self.known = Gpu(index=gpu.index, uuid=gpu.uuid, pci_bus_id=gpu.pci_bus_id, name=gpu.name)
        self._mig_mode(sheet)
        limit = self._ask_seldom("nvmlDeviceGetEnforcedPowerLimit")
        sheet.put("enforced_power_limit_watts", limit, 1, _MOST_MILLIWATTS, _watts)
        sheet.put("ecc_mode", _first(self._ask_seldom("nvmlDeviceGetEccMode")), 0, 1, bool)
        self._ecc_counts(
            sheet, self._seldom, "aggregate", nvml.AGGREGATE, nvml.FIELDS_ECC_AGGREGATE, MINUTE
        )
        self._wear(sheet)
        self._modes(sheet)
        self._kept, self._kept_until = gpu, self._seldom.good_until

    def _ask_seldom(self, name: str) -> Any:
        return self._seldom.ask(name, nvml.call, name, self._handle, keep=MINUTE)

    def _ask(self, name: str) -> Any:
        return self._questions.ask(name, nvml.call, name, self._handle)

    def _identity(self, sheet: Sheet) -> None:
        def text(name: str) -> Any:
            return self._seldom.ask(name, nvml.text, name, self._handle, keep=FOREVER)

        sheet.put_text("uuid", text("nvmlDeviceGetUUID"))
        sheet.put_text("name", text("nvmlDeviceGetName"))
        bus_id = self._seldom.ask("bus id", nvml.bus_id, self._handle, keep=FOREVER)
        sheet.put_text("pci_bus_id", bus_id)

    def _memory(self, sheet: Sheet) -> int:
        """Set the memory fields; return the most bytes that a process can hold."""
        gpu = sheet.gpu
        found = memory.read(self._questions, self._handle, gpu.name)
        gpu.unified_memory = found.unified
        sheet.put("memory_total_mib", found.total, 0, LARGEST_BYTES, mib)
        sheet.put("memory_used_mib", found.used, 0, LARGEST_BYTES, mib)
        sheet.put("memory_reserved_mib", found.reserved, 0, LARGEST_BYTES, mib)
        sheet.put("memory_free_mib", found.free, 0, LARGEST_BYTES, mib)
        return LARGEST_BYTES if isinstance(found.total, Unknown) else found.total

    def _mig_mode(self, sheet: Sheet) -> None:
        gpu = sheet.gpu
        modes = self._ask_seldom("nvmlDeviceGetMigMode")
        sheet.put("mig_mode", _first(modes), 0, 1, bool)
        gpu.unknown.pop("mig", None)
        if gpu.mig_mode is None and not (isinstance(modes, Unknown) and modes.code in _NO_MIG):
            # There may be instances, and whole jobs in them, of which the GPU itself shows nothing.
            gpu.unknown["mig"] = gpu.unknown["mig_mode"]
        if not isinstance(modes, Unknown) and modes[1] in (0, 1) and modes[0] != modes[1]:
            gpu.mig_mode_pending = bool(modes[1])

    def _utilization(self, sheet: Sheet) -> None:
        """Set the four utilizations. Under MIG the driver has none, some say 0 instead."""
        if not sheet.gpu.mig_mode:
            rates = self._ask("nvmlDeviceGetUtilizationRates")
            if isinstance(rates, Unknown) and self._utilization_known:
                # It was there a sample ago: has MIG been enabled since?
                self._seldom.forget("nvmlDeviceGetMigMode")
                self._mig_mode(sheet)
                self._kept_until = -math.inf
        self._utilization_known = False
        if sheet.gpu.mig_mode:
            rates = encoder = decoder = _UNDER_MIG
        else:
            self._utilization_known = not isinstance(rates, Unknown)
            encoder = _first(self._ask("nvmlDeviceGetEncoderUtilization"))
            decoder = _first(self._ask("nvmlDeviceGetDecoderUtilization"))
        known = not isinstance(rates, Unknown)
        sheet.put("utilization_percent", rates.gpu if known else rates, 0, 100)
        sheet.put("memory_utilization_percent", rates.memory if known else rates, 0, 100)
        sheet.put("encoder_utilization_percent", encoder, 0, 100)
        sheet.put("decoder_utilization_percent", decoder, 0, 100)

    def _sensors(self, sheet: Sheet) -> None:
        ask = self._ask
        temperature = self._questions.ask("temperature", _temperature, self._handle)
        sheet.put("temperature_celsius", temperature, 0, 150)
        limit_watts = sheet.gpu.enforced_power_limit_watts
        most = _MOST_MILLIWATTS if limit_watts is None else int(limit_watts * 2000)
        sheet.put("power_draw_watts", ask("nvmlDeviceGetPowerUsage"), 0, most, _watts)
        sm_clock = self._questions.ask("sm clock", nvml.call, _CLOCK, self._handle, nvml.CLOCK_SM)
        sheet.put("sm_clock_mhz", sm_clock, 0, _MOST_MHZ)
        memory_clock = self._questions.ask(
            "memory clock", nvml.call, _CLOCK, self._handle, nvml.CLOCK_MEMORY
        )
        sheet.put("memory_clock_mhz", memory_clock, 0, _MOST_MHZ)
        sheet.put("fan_speed_percent", ask("nvmlDeviceGetFanSpeed"), 0, 200)
        sheet.put("performance_state", ask("nvmlDeviceGetPerformanceState"), 0, 15)
        reasons = self._questions.ask("clock reasons", _clock_reasons, self._handle)
        sheet.put("clock_event_reasons", reasons, 0, 2**64 - 1, reason_words)

    def _ecc_counts(
        self,
        sheet: Sheet,
        questions: Questions,
        period: str,
        counter: int,
        fields: tuple[int, ...],
        keep: float = 0.0,
    ) -> None:
        """Set both counts of memory errors, with one call where the driver offers that."""
        ask, handle = questions.ask, self._handle
        both = ask(f"ecc {period}", nvml.field_values, handle, fields, keep=keep)
        if isinstance(both, Unknown):
            name = "nvmlDeviceGetTotalEccErrors"
            both = [
                ask(f"ecc {period} {error}", nvml.call, name, handle, error, counter, keep=keep)
                for error in (nvml.CORRECTED, nvml.UNCORRECTED)
            ]
        sheet.put(f"ecc_{period}_corrected", both[0], 0, _MOST_ERRORS)
        sheet.put(f"ecc_{period}_uncorrected", both[1], 0, _MOST_ERRORS)

    def _wear(self, sheet: Sheet) -> None:
        """Set what is known of broken memory, and what the driver asks for to recover the GPU."""
        fields = nvml.FIELDS_HEALTH
        answer = self._seldom.ask(
            "wear", nvml.field_values, self._handle, tuple(fields.values()), keep=MINUTE
        )
        values = [answer] * len(fields) if isinstance(answer, Unknown) else answer
        for field, value in zip(fields, values, strict=True):
            if field == "recovery_action":
                sheet.put(field, value, 0, 2**32 - 1, _recovery_action)
            elif field.endswith(("_pending", "_failure")):
                sheet.put(field, value, 0, 1, bool)
            else:
                sheet.put(field, value, 0, _MOST_ERRORS)

    def _modes(self, sheet: Sheet) -> None:
        """Set what only an administrator or the link's power saving changes."""
        mode = self._ask_seldom("nvmlDeviceGetComputeMode")
        sheet.put("compute_mode", mode, 0, 3, _COMPUTE_MODES.__getitem__)
        persistence = self._ask_seldom("nvmlDeviceGetPersistenceMode")
        sheet.put("persistence_mode", persistence, 0, 1, bool)
        generation = self._ask_seldom("nvmlDeviceGetCurrPcieLinkGeneration")
        sheet.put("pcie_generation", generation, 1, 20)
        width = self._ask_seldom("nvmlDeviceGetCurrPcieLinkWidth")
        sheet.put("pcie_width", width, 1, 32)

    def _processes(self, gpu: Gpu, most_bytes: int, this: Round) -> None:
        under_mig = bool(gpu.mig_mode)
        gpu.processes, why = nvml_processes.read(
            self._questions,
            self._handle,
            most_bytes=most_bytes,
            pid_max=this.pid_max,
            outside_instances=under_mig,
        )
        if why is not None:
            gpu.unknown["processes"] = why
        if not under_mig:
            if gpu.processes:
                nvml_processes.add_sm_share(self._questions, self._handle, gpu.processes, this)
            return
        instances = self._mig.read(
            self._questions, self._handle, most_bytes=most_bytes, pid_max=this.pid_max
        )
        if isinstance(instances, Unknown):
            gpu.unknown["mig"] = instances.reason
        else:
            gpu.mig = instances


_CLOCK = "nvmlDeviceGetClockInfo"


def _first(answer: Any) -> Any:
    """Return the current one of a [current, pending] or [value, period] pair."""
    return answer if isinstance(answer, Unknown) else answer[0]


def _recovery_action(number: int) -> str:
    known = number < len(RECOVERY_ACTIONS)
    return RECOVERY_ACTIONS[number] if known else f"other_{number}"


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000


def _temperature(handle: object) -> Any:
    names = ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV")
    return nvml.call_first(names, handle, nvml.TEMPERATURE_GPU)


def _clock_reasons(handle: object) -> Any:
    names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    return nvml.call_first(names, handle)
