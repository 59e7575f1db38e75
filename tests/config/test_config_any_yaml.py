"""Whatever stands in the file: a configuration or a ConfigError, and nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpumon.config import Config
from gpumon.config.loader import load
from gpumon.config.settings import HOST_KEYS, SETTINGS, TOP_KEYS
from gpumon.errors import ConfigError

KEYS = st.sampled_from(
    [*TOP_KEYS, *HOST_KEYS, *(name.rpartition(".")[2] for name in SETTINGS)]
) | st.text(max_size=8)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["self", "host1", "[::1]:1", "https://a:2/", "10.0.0.0/8", "/gpus"])
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def load_bytes(data: bytes) -> Config | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any.yml"
        path.write_bytes(data)
        faults: list[str] | None = None
        try:
            config = load(str(path), environ={})
        except ConfigError as error:
            faults = error.faults
        if faults is not None:
            assert faults
            assert all(fault.isprintable() and fault.strip() for fault in faults)
            return None
        assert len({host.name for host in config.hosts}) == len(config.hosts)
        return config


@given(st.binary(max_size=200))
@example(b"\xff\xfe")
@example(b"\x00")
@settings(max_examples=150, deadline=None)
def test_any_bytes_give_a_configuration_or_a_config_error(data: bytes) -> None:
    load_bytes(data)


@given(st.text(alphabet="ab:-[]{},#&*!|>'\"%@`?~\\U0F \n\t", max_size=60))
@example('"\\UFFFFFFFF"')
@example("%YAML " + "9" * 5000 + ".1\n---\na")
@example("&a [*a]")
@example("a: &a {<<: *a}")
@example("[" * 500)
@example("? " * 500)
@example("- " * 500)
@settings(max_examples=400, deadline=None)
def test_any_yaml_like_text_gives_a_configuration_or_a_config_error(text: str) -> None:
    load_bytes(text.encode())


@given(st.dictionaries(st.sampled_from(TOP_KEYS), TREES, max_size=5))
@settings(max_examples=200, deadline=None)
def test_any_values_give_a_configuration_or_a_config_error(tree: object) -> None:
    load_bytes(yaml.safe_dump(tree).encode())


def test_a_bomb_of_aliases_is_refused_at_once() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for one, other in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{other}: &{other} [{', '.join(['*' + one] * 9)}]")
    assert load_bytes("\n".join(lines).encode()) is None
