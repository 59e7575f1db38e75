"""Short names of processes."""

from __future__ import annotations

import pytest

from gpumon.collect.program import program


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["python", "train.py", "--token", "secret"], "python train.py"),
        (["/usr/bin/python3.11", "-u", "/home/ann/train.py"], "python train.py"),
        (["python3", "-W", "ignore", "-X", "dev", "train.py"], "python train.py"),
        (["python3", "-Wignore", "-uB", "train.py"], "python train.py"),
        (["python3", "--check-hash-based-pycs", "always", "train.py"], "python train.py"),
        (["python", "-m", "torch.distributed.run", "train.py"], "python -m torch.distributed.run"),
        (["python", "-um", "vllm.entrypoints", "--key", "s"], "python -m vllm.entrypoints"),
        (["python", "-mhttp.server"], "python -m http.server"),
        (["python", "-c", "import secrets"], "python -c"),
        (["python", "-uc", "import secrets"], "python -c"),
        (["python", "-"], "python"),
        (["python"], "python"),
        (["python3.13t", "a.py"], "python a.py"),
        (["python3-config", "a"], "python3-config"),
        (["/opt/venv/bin/python", "/opt/venv/bin/torchrun", "--nproc=8"], "python torchrun"),
        (["python", "-m", "ipykernel_launcher", "-f", "/run/kernel-1.json"], "jupyter"),
        (["python", "/lib/ipykernel_launcher.py", "-f", "x"], "jupyter"),
        (["bash", "run.sh", "secret"], "bash run.sh"),
        (["bash", "-c", "run --key secret"], "bash"),
        (["-bash"], "bash"),
        (["perl", "-I", "lib", "x.pl"], "perl"),
        (["/opt/blender/blender", "-b", "scene.blend"], "blender"),
        (["ray::train"], "ray::train"),
        (["nginx: worker process"], "nginx"),
        (["python train.py [epoch 3]"], "python train.py"),
        (["/opt/my app/run"], "run"),
        (["\x1b[31mred\n", "x"], "\ufffd[31mred"),
        ([""], "kernel-name"),
        (["", "x"], "kernel-name"),
        (["/usr/bin/", "x"], "bin"),
    ],
)
def test_the_short_name_shows_what_runs_and_never_an_argument(arguments, name):
    comm = b"run" if name == "run" else b"kernel-name"
    assert program(comm, arguments) == name


def test_a_kernel_name_that_was_cut_is_extended_by_the_first_argument():
    assert program(b"ansible-playboo", ["/usr/bin/ansible-playbook", "x"]) == "ansible-playbook"


def test_without_arguments_the_kernels_name_is_used():
    assert program(b"nvidia-modeset/", []) == "nvidia-modeset/"
    assert program(b"a) b\n(\xff", []) == "a) b (\ufffd"
    assert program(b"", []) is None


def test_a_long_name_is_cut_visibly():
    assert program(b"x", ["a" * 500, "b"]) == "a" * 63 + "…"
