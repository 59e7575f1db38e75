"""docs/configuration.md and config.yml follow the table of settings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from gpumon.config import Config, HostEntry
from gpumon.config.loader import load
from gpumon.config.settings import HOST_KEYS, SETTINGS
from gpumon.errors import ConfigError

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "configuration.md").read_text("utf-8")
EXAMPLE = (ROOT / "config.yml").read_text("utf-8")
SELF = HostEntry(name="self", source="self", address="self")


def skeleton() -> str:
    [block] = re.findall(r"```yaml\n(.*?)```", DOCS, re.DOTALL)
    return str(block)


def with_commented_keys(text: str) -> str:
    """Return the text with "# key: value" switched on; comments in words stay comments."""
    return re.sub(r"(?m)^# ((?:  )?[a-z_]+:(?: .*)?)$", r"\1", text)


def leaves(tree: dict[str, object], start: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            found |= leaves(value, f"{start}{key}.")
        else:
            found[start + key] = value
    return found


@pytest.mark.parametrize("text", [skeleton(), EXAMPLE], ids=["docs", "config.yml"])
def test_every_setting_is_shown_and_no_other(text: str) -> None:
    shown = leaves(yaml.safe_load(with_commented_keys(text)))
    assert set(shown) == {*SETTINGS, "hosts"}


@pytest.mark.parametrize("text", [skeleton(), EXAMPLE], ids=["docs", "config.yml"])
def test_every_value_shown_is_the_default(text: str) -> None:
    shown = leaves(yaml.safe_load(with_commented_keys(text)))
    for name, setting in SETTINGS.items():
        if setting.default is not None:
            assert shown[name] == setting.default, name


def test_a_key_without_a_default_is_shown_as_a_comment() -> None:
    active = leaves(yaml.safe_load(skeleton()))
    assert {name for name, setting in SETTINGS.items() if setting.default is None} == (
        set(SETTINGS) - set(active)
    )


def test_the_help_and_the_expectation_of_every_setting_stand_in_the_docs() -> None:
    lines = [line.replace("#", "").strip() for line in skeleton().splitlines()]
    for name, setting in SETTINGS.items():
        place = lines.index(setting.help)
        key = name.rpartition(".")[2]
        assert re.match(rf"{key}: .*\s{re.escape(setting.kind.expected)}$", lines[place + 1]), name


def test_every_variable_and_flag_stands_in_the_docs_and_no_other() -> None:
    rows = re.findall(r"\| `([a-z_.]+)` \| `(GPUMON_[A-Z_]+)` \| `(--[a-z-]+)` \|", DOCS)
    assert rows == [
        (name, setting.variable, setting.flag)
        for name, setting in SETTINGS.items()
        if setting.variable is not None or setting.flag is not None
    ]
    assert set(re.findall(r"GPUMON_[A-Z_]+", DOCS)) == {
        "GPUMON_CONFIG",
        *(variable for _, variable, _ in rows),
    }


def test_every_key_of_a_host_stands_in_the_docs() -> None:
    rows = re.findall(r"\| `(\w+)` \| (.*) \|", DOCS)
    assert [row for row in rows if row[0] in HOST_KEYS] == list(HOST_KEYS.items())


def test_the_forms_of_a_host_in_the_docs_are_taken(tmp_path: Path) -> None:
    table = DOCS.split("| entry | meaning |")[1].split("\n\n")[0]
    forms = re.findall(r"`([^`]+)`", "\n".join(row.split("|")[1] for row in table.splitlines()[2:]))
    assert len(forms) == 19
    for form in forms:
        path = tmp_path / "config.yml"
        path.write_text(f"hosts:\n  - {form if form.startswith('{') else repr(form)}\n")
        assert len(load(str(path), environ={}).hosts) == 1, form


def test_the_messages_in_the_docs_are_what_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ["# 1", "rpc_port: 98000", "", "", "", "web:", "  titel: x", "", "", "hosts:"]
    lines += ["- a", "- b", "- c", "- d:98000"]
    (tmp_path / "config.yml").write_text("\n".join(lines))
    with pytest.raises(ConfigError) as caught:
        load(environ={})
    assert "\n".join(caught.value.faults) in DOCS


def test_the_example_works_in_its_folder_out_of_the_box(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert load(environ={}) == Config(path=ROOT / "config.yml", hosts=[SELF])


def test_the_commented_lines_of_the_example_are_sound_too(tmp_path: Path) -> None:
    path = tmp_path / "config.yml"
    text = with_commented_keys(EXAMPLE)
    text = re.sub(r"(?m)^  # - ", "  - ", text)
    path.write_text(text)
    config = load(str(path), environ={})
    assert config.token_file is not None
    assert [host.name for host in config.hosts] == [
        "self",
        "host1",
        "host2",
        "host3",
        "gpu-09",
        "north.example.org",
        "dgx-3",
    ]
