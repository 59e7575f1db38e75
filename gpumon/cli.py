"""The command `gpumon`: argument parsing only. What a subcommand does stands in gpumon.commands.

Exit codes: 0 done, 1 failure, 2 wrong use or wrong configuration.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence

from gpumon.commands.certs_arguments import add_arguments as add_certs_arguments
from gpumon.errors import GpumonError, StartError
from gpumon.extras import how_to_install
from gpumon.version import __version__

TYPE_CHECKING = False  # a fifth of the time of `gpumon --version` goes into importing `typing`
if TYPE_CHECKING:
    from typing import Any

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What writing to a full disk, or to a terminal that is gone, ends in; such errors name no file."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code. No traceback leaves here for a known fault."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    arguments = _parser().parse_args(argv)
    for stream in (sys.stdout, sys.stderr):
        # Names hold letters that a plain locale can't write; that is no reason to fail.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        code: int = _command(arguments.command).run(arguments)
        # A closed pipe shows when the buffer is written out, which is here and not at exit.
        sys.stdout.flush()
    except GpumonError as error:
        for line in str(error).splitlines():
            print(f"gpumon: {line}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has seen enough (`| head`).
        _give_up_output()
        return 0
    except OSError as error:
        if error.errno not in _NO_ROOM or error.filename is not None:
            raise
        _give_up_output()
        print(f"gpumon: the output can't be written: {error.strerror}", file=sys.stderr)
        return 1
    return code


def _give_up_output() -> None:
    """Send what is left in the buffer nowhere: Python would complain about it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _command(name: str) -> Any:
    """Import a command when it runs: `snapshot` on a GPU host must not pay for the server."""
    try:
        return importlib.import_module(f"gpumon.commands.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("gpumon"):
            raise
        extra = "certs" if name == "certs" else "server"
        raise StartError(
            f"'gpumon {name}' needs the library {error.name}, which is not installed. "
            f"{how_to_install(extra)}"
        ) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpumon",
        allow_abbrev=False,
        description="Which GPU is free, who holds what since when, what is wasted or broken.",
        epilog="'gpumon COMMAND --help' tells more. Configuration: config.yml, see "
        "docs/configuration.md; without one everything works for this machine alone.",
    )
    parser.add_argument("--version", action="version", version=f"gpumon {__version__}")
    # With its name given, the parser need not find it out, for which it formats a text.
    commands = parser.add_subparsers(
        prog="gpumon", dest="command", metavar="COMMAND", required=True
    )

    up = commands.add_parser(
        "up",
        allow_abbrev=False,
        help="agent and web server for this machine (and the configured hosts) in one process",
    )
    _config_flags(up, "web_port", "rpc_port", "token_file")
    up.add_argument(
        "--or-demo",
        action="store_true",
        help="show the demo instead where no NVIDIA driver answers, and say so",
    )

    agent = commands.add_parser(
        "agent", allow_abbrev=False, help="on a GPU host: answer XML-RPC about its GPUs"
    )
    _config_flags(agent, "rpc_port", "bind", "token_file", "push")

    web = commands.add_parser(
        "web", allow_abbrev=False, help="poll the configured hosts and serve the page"
    )
    _config_flags(web, "web_port", "bind", "token_file")

    demo = commands.add_parser(
        "demo", allow_abbrev=False, help="the web server over an invented cluster"
    )
    demo.add_argument("--hosts", type=_host_count, default=7, help="how many hosts (default 7)")
    demo.add_argument("--seed", type=int, default=0, help="another number, another cluster")
    _config_flags(demo, "web_port", "bind")

    snapshot = commands.add_parser(
        "snapshot", allow_abbrev=False, help="print this host's GPUs once, without a daemon"
    )
    snapshot.add_argument("--json", action="store_true", help="as JSON, one line")

    export = commands.add_parser(
        "export",
        allow_abbrev=False,
        help="ask all hosts once and write web-gpu-monitor's static page and load_data.csv",
    )
    export.add_argument("--html", metavar="DIRECTORY", help="where to write index.html")
    export.add_argument("--csv", metavar="FILE", help="where to write the GPUs, one a line")
    _config_flags(export, "token_file")

    check = commands.add_parser(
        "check", allow_abbrev=False, help="check the configuration without starting anything"
    )
    check.add_argument("--json", action="store_true", help="as JSON")
    _config_flags(check)

    doctor = commands.add_parser(
        "doctor", allow_abbrev=False, help="look what is wrong on this machine, and say what to do"
    )
    doctor.add_argument("--agent", action="store_true", help="this machine runs the agent")
    doctor.add_argument("--server", action="store_true", help="this machine runs the page")
    doctor.add_argument("--url", help="the page's address for readers, to look at its proxy too")
    doctor.add_argument("--json", action="store_true", help="as JSON")
    _config_flags(doctor)

    certs = commands.add_parser(
        "certs", allow_abbrev=False, help="make certificates for the wire between server and agents"
    )
    add_certs_arguments(certs)
    return parser


def _config_flags(parser: argparse.ArgumentParser, *overrides: str) -> None:
    """Add --config and those flags that override a key of the configuration."""
    parser.add_argument("--config", metavar="PATH", help="configuration file to use")
    helps = {
        "web_port": ("PORT", "port of the page (default 8042)"),
        "rpc_port": ("PORT", "port of the agents (default 8043)"),
        "bind": ("ADDRESS", "address to listen on"),
        "token_file": ("PATH", "file with the agents' tokens, one a line"),
        "push": ("URL", "server to push every sample to, where it can't reach this host"),
    }
    for key in overrides:
        metavar, text = helps[key]
        parser.add_argument("--" + key.replace("_", "-"), dest=key, metavar=metavar, help=text)


def _host_count(text: str) -> int:
    try:
        count = int(text)
    except ValueError:
        count = 0
    if not 1 <= count <= 100_000:
        raise argparse.ArgumentTypeError(f'expected a number from 1 to 100000, found "{text}"')
    return count


if __name__ == "__main__":
    sys.exit(main())
