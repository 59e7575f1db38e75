"""The one door to NVML: starting, stopping, single calls, and errors in words.

Nothing but this module imports the binding. Its functions never raise, except `start`: whatever
comes out of the binding (NVML's errors, undecodable text, ctypes trouble) becomes an `Unknown` with
a reason that a person can read. The binding loads the library once and never unloads it, calls can
hang and can crash the process: this module belongs into the sampler's child process only.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import msgspec
import pynvml

from gpumon.errors import CollectError
from gpumon.text import clean

if not hasattr(pynvml, "nvmlMemory_v2"):
    raise ImportError(
        "the module pynvml is not NVIDIA's, or too old: pip install --force-reinstall nvidia-ml-py "
        f"(it is {pynvml.__file__})"
    )

NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
OPERATING_SYSTEM = 17
LIB_RM_VERSION_MISMATCH = 18
NOT_SUPPORTED_WITH_VGPU = 22
ARGUMENT_VERSION_MISMATCH = 25
UNKNOWN = 999

_WORDS = {
    1: "the driver library was closed",
    2: "the driver refused the question",
    NOT_SUPPORTED: "not supported",
    NO_PERMISSION: "no permission",
    NOT_FOUND: "not found",
    INSUFFICIENT_SIZE: "more entries at each attempt than room for them",
    8: "the external power cables are not attached",
    DRIVER_NOT_LOADED: "the driver is not loaded",
    TIMEOUT: "the driver timed out",
    11: "the driver has an interrupt problem with this GPU",
    LIBRARY_NOT_FOUND: "the driver library was not found",
    FUNCTION_NOT_FOUND: "not offered by this driver",
    14: "the GPU's infoROM is corrupted",
    GPU_IS_LOST: "the GPU is lost",
    RESET_REQUIRED: "the GPU needs a reset",
    OPERATING_SYSTEM: "blocked by the operating system",
    LIB_RM_VERSION_MISMATCH: "driver and library have different versions",
    20: "the driver is out of memory",
    21: "no data yet",
    NOT_SUPPORTED_WITH_VGPU: "not supported with this vGPU",
    ARGUMENT_VERSION_MISMATCH: "not offered by this driver",
    26: "no longer offered by this driver",
    28: "the GPU was not found",
    UNKNOWN: "unknown error of the driver",
}

_SETTLED = frozenset({NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, 22, 25, 26, None})

TEMPERATURE_GPU: int = pynvml.NVML_TEMPERATURE_GPU
CLOCK_SM: int = pynvml.NVML_CLOCK_SM
CLOCK_MEMORY: int = pynvml.NVML_CLOCK_MEM
MEMORY_V2: int = pynvml.nvmlMemory_v2
CORRECTED: int = pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED
UNCORRECTED: int = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
VOLATILE: int = pynvml.NVML_VOLATILE_ECC
AGGREGATE: int = pynvml.NVML_AGGREGATE_ECC
FIELDS_ECC_VOLATILE: tuple[int, int] = (
    pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL,
    pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL,
)
FIELDS_ECC_AGGREGATE: tuple[int, int] = (
    pynvml.NVML_FI_DEV_ECC_SBE_AGG_TOTAL,
    pynvml.NVML_FI_DEV_ECC_DBE_AGG_TOTAL,
)
"""Corrected, uncorrected."""
FIELDS_HEALTH: dict[str, int] = {
    "remapped_rows_corrected": pynvml.NVML_FI_DEV_REMAPPED_COR,
    "remapped_rows_uncorrected": pynvml.NVML_FI_DEV_REMAPPED_UNC,
    "remapped_rows_pending": pynvml.NVML_FI_DEV_REMAPPED_PENDING,
    "remapped_rows_failure": pynvml.NVML_FI_DEV_REMAPPED_FAILURE,
    "retired_pages_corrected": pynvml.NVML_FI_DEV_RETIRED_SBE,
    "retired_pages_uncorrected": pynvml.NVML_FI_DEV_RETIRED_DBE,
    "retired_pages_pending": pynvml.NVML_FI_DEV_RETIRED_PENDING,
    "recovery_action": 230,  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, which older bindings lack
}
"""The model's names and the driver's numbers."""
XID_EVENT: int = pynvml.nvmlEventTypeXidCriticalError
ECC_EVENT: int = pynvml.nvmlEventTypeDoubleBitEccError

# How the driver lays out its records in memory (nvml.h, native alignment).
PROCESS_V1 = struct.Struct("@IQ")
"""pid, used GPU memory in bytes."""
PROCESS_V2 = struct.Struct("@IQII")
"""pid, used GPU memory in bytes, GPU instance, compute instance; the same in _v3."""
_SAMPLE = struct.Struct("@IQIIII")

NO_MEMORY_VALUE = 2**64 - 1
"""What the driver writes for the memory of a process where it knows none."""
NO_INSTANCE = 2**32 - 1
"""Instance id of a process outside MIG instances."""

_ATTEMPTS = 4


class Unknown(msgspec.Struct, frozen=True):
    """An answer that is none: why, in words, and NVML's code where it was NVML that said so."""

    reason: str
    code: int | None = None

    @property
    def settled(self) -> bool:
        """Whether asking again soon is pointless: the answer will be the same."""
        return self.code in _SETTLED


def start() -> None:
    """Load the library and open NVML. Raises CollectError, which says what to do."""
    failure = _guard(pynvml.nvmlInit)
    if isinstance(failure, Unknown):
        raise _start_error(failure)


def stop() -> None:
    """Close NVML; whatever goes wrong then has no consequence. `start` opens it again."""
    _guard(pynvml.nvmlShutdown)


def call(name: str, *args: object) -> Any:
    """Return what the binding's function `name` returns, or an Unknown; never raises."""
    function = getattr(pynvml, name, None)
    if function is None:
        return Unknown("not offered by the installed nvidia-ml-py", FUNCTION_NOT_FOUND)
    return _guard(function, *args)


def call_first(names: tuple[str, ...], *args: object) -> Any:
    """Return the answer of the first of the binding's functions that this driver offers."""
    answer: Any = Unknown("not offered by this driver", FUNCTION_NOT_FOUND)
    for name in names:
        answer = call(name, *args)
        if not (isinstance(answer, Unknown) and answer.code == FUNCTION_NOT_FOUND):
            break
    return answer


def text(name: str, *args: object) -> str | Unknown:
    """Return the text that the binding's function `name` returns, cleaned, or an Unknown."""
    return as_text(call(name, *args))


def bus_id(handle: object) -> str | Unknown:
    """Return the PCI bus id as nvidia-smi writes it, "00000000:65:00.0", or an Unknown."""
    info = call("nvmlDeviceGetPciInfo", handle)
    # Even reading the field can raise: the binding decodes it only then.
    return as_text(info if isinstance(info, Unknown) else _guard(getattr, info, "busId"))


def as_text(answer: Any) -> str | Unknown:
    """Return a text of the driver's, cleaned; old bindings give bytes, new ones str."""
    if isinstance(answer, Unknown):
        return answer
    if isinstance(answer, bytes):
        answer = _guard(answer.decode)
        if isinstance(answer, Unknown):
            return answer
    if not isinstance(answer, str):
        return Unknown(f"a text was expected, found {type(answer).__name__}")
    return clean(answer) or Unknown("the driver gave an empty text")


def address(handle: object) -> int:
    """Return what tells a handle from others; 0 for one that is none."""
    value = _guard(ctypes.cast, handle, ctypes.c_void_p)
    return 0 if isinstance(value, Unknown) else value.value or 0


def process_records(
    name: str, handle: object, layout: struct.Struct
) -> list[tuple[int, ...]] | Unknown:
    """Return the records of one of NVML's process lists, `layout` each, or an Unknown.

    The binding asks for the size first and for the list then. One call with room enough does the
    same, and a list that grows meanwhile is asked for again instead of failing.
    """

    def fill(function: Any, count: Any, buffer: Any) -> int:
        return int(function(handle, ctypes.byref(count), buffer))

    return _records(name, layout, 64, fill)


def utilization_samples(handle: object, since: int) -> list[tuple[int, ...]] | Unknown:
    """Return (pid, time, SM %, memory %, encoder %, decoder %) per process that was busy.

    Both times are microseconds since the epoch; the driver is asked for samples after `since`.
    """

    def fill(function: Any, count: Any, buffer: Any) -> int:
        last_seen = ctypes.c_ulonglong(since)
        return int(function(handle, buffer, ctypes.byref(count), last_seen))

    return _records("nvmlDeviceGetProcessUtilization", _SAMPLE, 128, fill)


def field_values(handle: object, fields: tuple[int, ...]) -> list[int | Unknown] | Unknown:
    """Return the whole numbers behind NVML field ids, each alone or Unknown, in one call.

    Where none of them is known the whole is Unknown.
    """
    values = call("nvmlDeviceGetFieldValues", handle, fields)
    if isinstance(values, Unknown):
        return values
    found: list[int | Unknown] = []
    for value in values:
        code, kind = value.nvmlReturn, value.valueType  # each look at a field takes its time
        if code != 0:
            found.append(_unknown(code))
        elif kind == pynvml.NVML_VALUE_TYPE_UNSIGNED_INT:
            found.append(int(value.value.uiVal))
        elif kind in (
            pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG,
            pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
        ):
            found.append(int(value.value.ullVal))
        else:
            found.append(Unknown(f"a whole number was expected, found type {kind}"))
    failures = [value for value in found if isinstance(value, Unknown)]
    return failures[0] if len(failures) == len(found) else found


def _records(
    name: str, layout: struct.Struct, room: int, fill: Callable[[Any, Any, Any], int]
) -> list[tuple[int, ...]] | Unknown:
    function = call("_nvmlGetFunctionPointer", name)
    if isinstance(function, Unknown):
        return function
    for _ in range(_ATTEMPTS):
        # Twice the size: drivers 535.54 to .98 write 32 bytes per record where callers expect 24.
        buffer = ctypes.create_string_buffer(2 * layout.size * room)
        count = ctypes.c_uint(room)
        code = _guard(fill, function, count, buffer)
        if isinstance(code, Unknown):
            return code
        if code == 0:
            if count.value > room:
                return Unknown(f"the driver gave {count.value} entries where {room} had room")
            return list(layout.iter_unpack(memoryview(buffer)[: layout.size * count.value]))
        if code != INSUFFICIENT_SIZE:
            return _unknown(code)
        room = 2 * min(max(count.value, room), 100_000)
    return _unknown(INSUFFICIENT_SIZE)


def _guard(function: Callable[..., Any], *args: object) -> Any:
    try:
        return function(*args)
    except pynvml.NVMLError as error:
        return _unknown(error.value)
    except UnicodeDecodeError:
        return Unknown("the driver's text does not decode as UTF-8")
    except Exception as error:  # the binding's other troubles: ctypes, AttributeError, OSError ...
        return Unknown(clean(f"{type(error).__name__}: {error}", 160))


def _unknown(code: int) -> Unknown:
    return Unknown(_WORDS.get(code, f"NVML error {code}"), code)


def _start_error(failure: Unknown) -> CollectError:
    if failure.code == LIBRARY_NOT_FOUND:
        return CollectError(
            "no library",
            "The driver library libnvidia-ml.so.1 was not found: no NVIDIA driver is installed on "
            "this host, or the loader doesn't find it. Check: ldconfig -p | grep nvidia-ml",
        )
    if failure.code == DRIVER_NOT_LOADED:
        return CollectError(
            "no driver",
            "The NVIDIA driver is not loaded, or this host has no NVIDIA GPU. "
            "Check: lsmod | grep nvidia; load it with: modprobe nvidia",
        )
    if failure.code == LIB_RM_VERSION_MISMATCH:
        return CollectError(
            "version mismatch",
            "The driver was upgraded, but its old version is still loaded: reboot this host. "
            "Where the driver was reloaded already, restart the agent.",
        )
    if failure.code in (NO_PERMISSION, OPERATING_SYSTEM):
        return CollectError(
            "no permission",
            f"This user may not talk to the NVIDIA driver ({failure.reason}). "
            "Check the rights on /dev/nvidia* and the DeviceAllow= lines of the service.",
        )
    return CollectError(
        "failed",
        f"The NVIDIA driver could not be opened: {failure.reason}. Check: nvidia-smi",
    )
