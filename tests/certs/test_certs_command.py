"""`gpumon certs` as a person runs it: words, exit codes, JSON."""

from __future__ import annotations

import datetime as dt
import json
import sys
from pathlib import Path

import pytest

from gpumon.certs.authority import Limits, Names
from gpumon.certs.folder import CertsFolder
from gpumon.cli import main
from gpumon.config.loader import load


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["certs", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_an_authority_and_a_host_are_made_with_the_lines_for_the_configuration(run, tmp_path):
    assert run("init", "ca")[0] == 0
    code, out, _ = run(
        "host", "GPU-01", "--also", "gpu-01.lab.org", "--ip", "fd00::7", "--dir", "ca"
    )
    assert code == 0
    assert "stands as gpu-01 or gpu-01.lab.org or [fd00::7]." in out
    lines = [line for line in out.splitlines() if line.startswith("  ")]
    config = tmp_path / "config.yml"
    config.write_text("\n".join(line[2:] for line in lines))
    tls = load(str(config), environ={}).tls
    assert tls is not None
    assert tls.key == Path("/etc/gpumon/key.pem")
    assert "PRIVATE" not in out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("host", "gpu-01"), 2, "holds no authority"),
        (("list",), 2, "holds no authority"),
        (("renew",), 2, "holds no authority"),
        (("host", "../x"), 2, "expected a host name"),
        (("host", "a", "--ip", "gpu"), 2, "--ip: expected an IP address"),
        (("init", "x", "--network", "10.0.0.1/8"), 2, "--network: expected a network"),
        (("init", "/proc/x"), 1, "can't be made"),
    ],
)
def test_what_can_not_be_done_is_one_line(run, arguments, code, words):
    found, out, err = run(*arguments)
    assert (found, out, len(err.splitlines())) == (code, "", 1)
    assert words in err


def test_the_list_warns_of_an_end_by_its_exit_code(run, tmp_path):
    folder = CertsFolder(tmp_path / "ca")
    now = dt.datetime.now(dt.timezone.utc) - dt.timedelta(hours=2)
    long_ago = now - dt.timedelta(days=720)
    folder.init("x", Limits(), long_ago, 3650, force=False)
    folder.add(Names(("fresh",)), now, 730, force=False)
    code, out, _ = run("list", "--dir", "ca")
    assert (code, "729 days left" in out) == (0, True)
    folder.add(Names(("soon",)), long_ago, 730, force=False)
    folder.add(Names(("over",)), long_ago, 700, force=False)
    code, out, _ = run("list", "--dir", "ca")
    assert code == 1
    assert "EXPIRED  over" in out
    assert "ENDS in 9 days  soon" in out
    code, out, _ = run("list", "--json", "--dir", "ca")
    rows = {row["name"]: row for row in json.loads(out)}
    assert code == 1
    assert rows["over"]["days_left"] < 0
    assert rows["soon"]["names"] == ["soon"]


def test_renew_takes_those_that_end_soon_and_says_so(run, tmp_path):
    test_the_list_warns_of_an_end_by_its_exit_code(run, tmp_path)
    code, out, _ = run("renew", "--dir", "ca")
    assert code == 0
    assert ["fresh" in out, "soon: good until" in out, "over: good until" in out] == [
        False, True, True,
    ]  # fmt: skip
    assert run("list", "--dir", "ca")[0] == 0
    assert "Nothing to renew" in run("renew", "--dir", "ca")[1]


def test_without_its_library_it_says_what_to_install(run, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("gpumon.certs.authority", "gpumon.certs.folder", "gpumon.commands.certs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    code, _, err = run("list")
    assert code == 1
    assert "In the folder of gpumon's source: pip install '.[certs]'" in err
