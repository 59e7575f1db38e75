"""What the driver's XID numbers mean, and what to do.

In short words of our own after NVIDIA's "Xid Errors" and its catalog. Levels: "fault" where NVIDIA
asks for a reset, a reboot or a repair; "warning" where the GPU goes on working and wants attention;
"application" where a program did something wrong and the GPU is well.
"""

from __future__ import annotations

import msgspec

from gpumon.model import HealthLevel


class Xid(msgspec.Struct, frozen=True):
    """One XID number: `text` is a sentence without its number, `advice` what to do."""

    level: HealthLevel
    text: str
    advice: str


_RESET = (
    "Drain the GPU, then reset it (nvidia-smi --gpu-reset) or reboot the host; "
    "when it comes back, have the GPU checked"
)
_POWER_CYCLE = (
    "Drain the host and power-cycle it; when it comes back, check the GPU's seat, power and cooling"
)
_RESET_LATER = "Let the jobs finish, then reset the GPU or reboot the host"
_LINK = (
    "Look at nvidia-smi nvlink --status and the fabric manager's log; drain the host and reset its "
    "GPUs; when it comes back, have bridges and board checked"
)
_PROGRAM = "Look at the program that ran then; the GPU needs nothing unless other programs hit it"
_EARLIER = "Look for the error before it; alone it means that a program was killed"
_WATCH = "Nothing to do at once; when it comes often, have the GPU checked"

_LINK_TEXT = "NVLink reported an error"
_COPY_TEXT = "a program's copy of memory failed (copy engine)"
_VIDEO_TEXT = "a program's video or image work failed (decoder, encoder, JPEG or optical flow unit)"
_COMMANDS_TEXT = "a program sent broken commands to the GPU"

_COPY = (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))
_VIDEO = (60, 68, 82, 83, 84, 86, 88, 89, *range(96, 106), 139)
_COMMANDS = (11, 25, 32, 80)
_LINKS = (74, *range(144, 151), 155)

_XIDS: dict[int, Xid] = {
    **{code: Xid("application", _COPY_TEXT, _PROGRAM) for code in _COPY},
    **{code: Xid("application", _VIDEO_TEXT, _PROGRAM) for code in _VIDEO},
    **{code: Xid("application", _COMMANDS_TEXT, _PROGRAM) for code in _COMMANDS},
    **{code: Xid("fault", _LINK_TEXT, _LINK) for code in _LINKS},
    8: Xid("application", "a program's work stopped", _PROGRAM),
    13: Xid("application", "a program caused an exception on the GPU", _PROGRAM),
    31: Xid("application", "a program touched GPU memory that is not its own", _PROGRAM),
    43: Xid("application", "a program's work was stopped after an error of its own", _PROGRAM),
    45: Xid("application", "a program's work was cleaned up after an earlier error", _EARLIER),
    46: Xid("fault", "the GPU stopped processing", _RESET),
    48: Xid("fault", "an uncorrectable memory error (double bit)", _RESET),
    54: Xid("fault", "the GPU's power cables are not connected", "Check the power cables"),
    61: Xid("fault", "an internal controller of the GPU hit a breakpoint", _RESET),
    62: Xid("fault", "an internal controller of the GPU halted", _RESET),
    63: Xid("warning", "bad memory was marked to be replaced by spare memory", _RESET_LATER),
    64: Xid("fault", "bad memory could not be replaced by spare memory", _RESET),
    69: Xid("application", "a program used the GPU's graphics engine wrongly", _PROGRAM),
    79: Xid("fault", "the GPU has fallen off the bus", _POWER_CYCLE),
    92: Xid("warning", "many corrected memory errors in a short time", _WATCH),
    94: Xid("warning", "a memory error ended one program and no other", _RESET_LATER),
    95: Xid("fault", "a memory error that may have hit any program", _RESET),
    109: Xid("fault", "the GPU did not switch from one program to another in time", _RESET),
    110: Xid("fault", "a security fault", _RESET),
    119: Xid("fault", "the GPU's system processor (GSP) does not answer", _RESET),
    120: Xid("fault", "the GPU's system processor (GSP) failed", _RESET),
    121: Xid("warning", "the link between GPU and CPU reported an error", _WATCH),
    136: Xid("fault", "an NVLink could not be brought up", _LINK),
    137: Xid("application", "a program's access to another GPU's memory failed", _PROGRAM),
    140: Xid("fault", "an uncorrected memory error", _RESET),
    143: Xid("fault", "the GPU could not be initialised", _RESET),
    154: Xid(
        "warning",
        "the driver changed what it asks for to recover the GPU",
        "See what it asks for: nvidia-smi -q, GPU Recovery Action",
    ),
    156: Xid("fault", "a broken part of the GPU was taken out of use", _RESET),
    157: Xid("warning", "a broken part of the GPU could not be taken out of use", _WATCH),
    158: Xid("fault", "the GPU did not answer in time", _RESET),
    167: Xid("fault", "the PCIe link did not answer in time", _POWER_CYCLE),
    168: Xid("warning", "the GPU works with less memory than it has", _RESET_LATER),
    169: Xid("fault", "an internal controller of the GPU halted", _RESET),
    171: Xid("fault", "an uncorrectable memory error (DRAM)", _RESET),
    172: Xid("fault", "an uncorrectable memory error (SRAM)", _RESET),
}

_OTHER = Xid(
    "warning", "an error that gpumon does not know", "Look its number up in NVIDIA's Xid catalog"
)


def describe(code: int) -> Xid:
    """Return what XID `code` means. One that is not known here is a warning, never a fault."""
    return _XIDS.get(code, _OTHER)
