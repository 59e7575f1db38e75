"""Short names of GPU models."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.cluster.models import short_model


@pytest.mark.parametrize(
    ("name", "memory", "short"),
    [
        ("NVIDIA H100 80GB HBM3", 81559, "H100 80G"),
        ("NVIDIA H100 PCIe", 81559, "H100 80G"),
        ("NVIDIA H100 NVL", 95830, "H100 NVL 94G"),
        ("NVIDIA A100-SXM4-40GB", 40960, "A100 40G"),
        ("NVIDIA A100 80GB PCIe", 81920, "A100 80G"),
        ("NVIDIA A100-SXM4-80GB", None, "A100 80G"),
        ("NVIDIA GeForce RTX 3090", 24576, "RTX 3090 24G"),
        ("NVIDIA GeForce GTX 1080 Ti", 11264, "GTX 1080 Ti 11G"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16376, "RTX 4090 Laptop 16G"),
        ("NVIDIA RTX 6000 Ada Generation", 49140, "RTX 6000 Ada 48G"),
        ("Quadro RTX 8000", 49152, "Quadro RTX 8000 48G"),
        ("Tesla V100-SXM2-32GB", 32510, "V100 32G"),
        ("Tesla T4", 15360, "T4 15G"),
        ("NVIDIA GH200 480GB", 97871, "GH200 96G"),
        ("NVIDIA GB10", None, "GB10"),
        ("NVIDIA TITAN RTX", 0, "TITAN RTX"),
        ("NVIDIA", 24576, "unknown GPU 24G"),
        (None, 24576, "unknown GPU"),
        ("", None, "unknown GPU"),
    ],
)
def test_models_are_called_as_people_call_them(name, memory, short):
    assert short_model(name, memory) == short


@given(st.text(max_size=60), st.one_of(st.none(), st.integers(-5, 10**6)))
def test_any_name_gives_a_short_one_without_blanks_around(name, memory):
    short = short_model(name, memory)
    assert short
    assert short == short.strip(" -")
