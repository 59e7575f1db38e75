"""The arguments of `gpumon certs`, apart from it: they are parsed without its library."""

from __future__ import annotations

import argparse

RENEW_DAYS = 60
"""Certificates that end within this time are renewed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands of `gpumon certs`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    init = actions.add_parser("init", allow_abbrev=False, help="make an authority in a folder")
    init.add_argument("folder", metavar="DIR")
    init.add_argument(
        "--domain", action="append", default=[], help="it may only sign for names under this one"
    )
    init.add_argument(
        "--network", action="append", default=[], help="it may only sign for addresses in this one"
    )
    init.add_argument("--days", type=_days, default=3650, help="how long it is good (3650)")
    host = actions.add_parser(
        "host", allow_abbrev=False, help="make key and certificate for one machine"
    )
    host.add_argument("name", metavar="NAME", help="as it stands in the server's hosts")
    host.add_argument("--also", action="append", default=[], metavar="NAME", help="another name")
    host.add_argument("--ip", action="append", default=[], metavar="ADDRESS", help="an IP address")
    host.add_argument("--days", type=_days, default=730, help="how long it is good (730)")
    show = actions.add_parser(
        "list",
        allow_abbrev=False,
        help="show what was made and when it ends; exit code 1 where one ends soon",
    )
    show.add_argument("--json", action="store_true", help="as JSON")
    renew = actions.add_parser(
        "renew",
        help=f"make new certificates for the same keys: those that end in {RENEW_DAYS} days",
    )
    renew.add_argument("name", nargs="*", metavar="NAME", help="these, whenever they end")
    for one in (host, show, renew):
        one.add_argument("--dir", default=".", metavar="DIR", help="the authority's folder (.)")
    for one in (init, host):
        one.add_argument("--force", action="store_true", help="replace what is there")


def _days(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 36_500:
        raise argparse.ArgumentTypeError(f'expected a number from 1 to 36500, found "{text}"')
    return int(text)
