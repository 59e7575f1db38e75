"""The short name of a process, fit for everybody's eyes: never an argument of the user's."""

from __future__ import annotations

import re

from gpumon.text import clean

_LENGTH = 64
_KERNEL_NAME_BYTES = 15

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*t?\Z")
_OTHER_INTERPRETERS = frozenset(
    {"bash", "dash", "julia", "lua", "node", "perl", "Rscript", "ruby", "sh", "zsh"}
)
_PYTHON_OPTIONS_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})


def program(comm: bytes, arguments: list[str]) -> str | None:
    """Return the name, such as "python train.py", "python -m package.module", "jupyter", "blender".

    `comm` is the kernel's name, `arguments` the argument list, [] where there is none. The first
    argument is preferred: the kernel cuts its name after 15 bytes, and threads change it.
    """
    # A rewritten title is one argument: its first word is the name.
    words = arguments if len(arguments) > 1 else " ".join(arguments).split()
    kernel_name = comm.decode("utf-8", "replace")
    if len(arguments) == 1 and _base(arguments[0]) == kernel_name:
        return clean(kernel_name, _LENGTH) or None  # a path that holds blanks
    base = _base(words[0]).lstrip("-").rstrip(":") if words else ""
    if _PYTHON.match(base):
        return clean(_python(words), _LENGTH)
    if base in _OTHER_INTERPRETERS and len(words) > 1 and not words[1].startswith("-"):
        base = f"{base} {_base(words[1])}"
    return clean(base or kernel_name, _LENGTH) or None


def _python(words: list[str]) -> str:
    """Name what the interpreter runs: script or module; code given with -c stays out."""
    position = 1
    while position < len(words) and words[position].startswith("-"):
        option = words[position]
        if option.startswith("--") or option in _PYTHON_OPTIONS_WITH_VALUE:
            position += 2 if option in _PYTHON_OPTIONS_WITH_VALUE else 1
            continue
        # Short options can be joined, the last with its value: -um module, -Wignore.
        for place, letter in enumerate(option[1:], 2):
            if letter == "m":
                return _module(option[place:] or "".join(words[position + 1 : position + 2]))
            if letter == "c":
                return "python -c"
            if letter in "WX":
                break
        position += 1
    script = _base(words[position]) if position < len(words) else ""
    if script.startswith("ipykernel"):
        return "jupyter"
    return f"python {script}".rstrip()


def _module(name: str) -> str:
    return "jupyter" if name.startswith("ipykernel") else f"python -m {name}"


def _base(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
