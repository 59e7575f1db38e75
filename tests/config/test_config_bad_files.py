"""One file per rule in bad/; the comment lines at its top are the faults that it must give."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.config.loader import load
from gpumon.errors import ConfigError

BAD = Path(__file__).parent / "bad"
MARK = "# expect: "


def expected(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix(MARK) for line in lines if line.startswith(MARK)]


def faults_of(path: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(path, environ={})
    return caught.value.faults


@pytest.mark.parametrize("path", sorted(BAD.glob("*.yml")), ids=lambda path: path.stem)
def test_a_bad_file_gives_exactly_the_faults_it_names(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(BAD)
    wanted = expected(path)
    assert wanted, "a bad file names its faults"
    assert faults_of(path.name) == wanted


def test_no_fault_shows_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BAD)
    with_secrets = [path for path in BAD.glob("*.yml") if "s3cret" in path.read_text("utf-8")]
    assert len(with_secrets) >= 5
    for path in with_secrets:
        assert not any("s3cret" in fault for fault in faults_of(path.name)), path.name


def test_every_fault_is_one_line_with_file_and_line() -> None:
    for path in BAD.glob("*.yml"):
        for fault in faults_of(str(path)):
            assert fault.startswith(f"{path}:")
            assert fault[len(f"{path}:")].isdigit()
            assert "\n" not in fault
            assert fault.endswith((".", "?"))


def test_thousands_of_faults_are_told_in_a_hundred_lines(tmp_path: Path) -> None:
    path = tmp_path / "config.yml"
    path.write_text("x: 1\n" * 3000)
    faults = faults_of(str(path))
    assert len(faults) == 101
    assert faults[-1] == f"{path}: and 2900 more faults."
