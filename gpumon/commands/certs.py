"""`gpumon certs`: an authority, and certificates for server and agents. docs/certificates.md."""

from __future__ import annotations

import argparse
import datetime as dt
import ipaddress
import json
from collections.abc import Callable
from pathlib import Path

from gpumon.certs.authority import IpAddress, IpNetwork, Limits, Names, host_name
from gpumon.certs.folder import CertsFolder, Issued
from gpumon.commands.certs_arguments import RENEW_DAYS
from gpumon.errors import SetupError

SOON_DAYS = 30
"""A certificate that ends within this time is called out."""

_LINES = """\
  tls:
    cert: /etc/gpumon/cert.pem
    key: /etc/gpumon/key.pem
    ca: /etc/gpumon/ca.pem"""


def run(arguments: argparse.Namespace) -> int:
    """Do what the subcommand says. Raises StartError."""
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "init": _init,
        "host": _host,
        "list": _list,
        "renew": _renew,
    }
    return actions[arguments.action](arguments)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc).replace(microsecond=0)


def _init(arguments: argparse.Namespace) -> int:
    folder = CertsFolder(Path(arguments.folder))
    limits = Limits(
        tuple(map(host_name, arguments.domain)), tuple(map(_network, arguments.network))
    )
    folder.init("gpumon authority", limits, _now(), arguments.days, force=arguments.force)
    print(f"The authority lies in {folder.path}: ca.pem goes to every machine, ca-key.pem to none.")
    print("Keep the folder where only administrators read, and in the backup. Next, for each host")
    print(f"and for the server itself: gpumon certs host NAME --dir {folder.path}")
    return 0


def _host(arguments: argparse.Namespace) -> int:
    folder = CertsFolder(Path(arguments.dir))
    names = Names(
        tuple(dict.fromkeys(map(host_name, [arguments.name, *arguments.also]))),
        tuple(dict.fromkeys(map(_address, arguments.ip))),
    )
    made = folder.add(names, _now(), arguments.days, force=arguments.force)
    name = names.dns[0]
    print(f"{made} holds cert.pem, key.pem and ca.pem for {name}. Copy them to /etc/gpumon/ on it,")
    print("key.pem readable by the user that runs gpumon only, and write in its config.yml:")
    print(_LINES)
    print("An agent asks for a certificate then, and the server shows its own. In the server's")
    print(f"hosts this one stands as {' or '.join([*names.dns, *map(_bracketed, names.ips)])}.")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    rows = list(CertsFolder(Path(arguments.dir)).issued())
    now = _now()
    told = [_told(row, now) for row in rows]
    if arguments.json:
        print(json.dumps([_plain(row, now) for row in rows], indent=2))
    else:
        width = max(len(row.name) for row in rows)
        for row, words in zip(rows, told, strict=True):
            names = f"  {', '.join(row.names)}" if row.names else ""
            print(f"{row.name:<{width}}  {words}{names}")
    return 1 if any(_wants_care(row, now) for row in rows) else 0


def _renew(arguments: argparse.Namespace) -> int:
    folder, now = CertsFolder(Path(arguments.dir)), _now()
    wanted = [host_name(name) for name in arguments.name] or [
        row.name
        for row in list(folder.issued())[1:]
        if row.ends is not None and _days_left(row.ends, now) < RENEW_DAYS
    ]
    for name in wanted:
        ends = folder.renew(name, now)
        print(f"{name}: good until {ends:%Y-%m-%d}. Copy {folder.host_folder(name)}/cert.pem to it")
        print("  and restart its gpumon.")
    if not wanted:
        print(f"Nothing to renew: no host's certificate ends within {RENEW_DAYS} days.")
    return 0


def _days_left(ends: dt.datetime, now: dt.datetime) -> float:
    return (ends - now) / dt.timedelta(days=1)


def _wants_care(row: Issued, now: dt.datetime) -> bool:
    return row.fault is not None or row.ends is None or _days_left(row.ends, now) < SOON_DAYS


def _told(row: Issued, now: dt.datetime) -> str:
    if row.ends is None:
        return row.fault or "can't be read"
    left = int(_days_left(row.ends, now))
    words = f"until {row.ends:%Y-%m-%d}, " + (
        "EXPIRED" if row.ends <= now else f"{left} days left" if left >= SOON_DAYS
        else f"ENDS in {left} days"
    )  # fmt: skip
    return f"{words}, {row.fault}" if row.fault else words


def _plain(row: Issued, now: dt.datetime) -> dict[str, object]:
    return {
        "name": row.name,
        "names": row.names,
        "ends": None if row.ends is None else row.ends.isoformat(),
        "days_left": None if row.ends is None else round(_days_left(row.ends, now), 1),
        "fault": row.fault,
    }


def _address(text: str) -> IpAddress:
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        raise SetupError(f'--ip: expected an IP address, found "{text[:80]}"') from None


def _network(text: str) -> IpNetwork:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise SetupError(
            f'--network: expected a network such as 10.0.0.0/8, found "{text[:80]}"'
        ) from None


def _bracketed(ip: IpAddress) -> str:
    return f"[{ip}]" if ip.version == 6 else str(ip)
