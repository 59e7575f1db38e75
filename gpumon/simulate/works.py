"""Who runs what on the invented cluster, and how each kind of program treats the machine."""

from __future__ import annotations

import msgspec

FIRST_UID = 2001

_SOME = """
alice bob chen dana emil farah goran hana ivan jun kofi lena mei nadia omar priya quinn rosa sven
tomas uma viktor wei xenia yuki zara amir bea carla dmitri elif felix greta hugo ines jan kira liam
mira noor oskar pia ravi sara timo ursa vera wim
"""
_NAMES = _SOME.split()


def user_name(number: int) -> str:
    """Return the login name of the person with this number: alice, ..., then alice2, ..."""
    turn, place = divmod(number, len(_NAMES))
    return _NAMES[place] + (str(turn + 1) if turn else "")


class Work(msgspec.Struct, kw_only=True, frozen=True):
    """A kind of program, and how it treats the machine. Pairs are from, to."""

    program: str
    command: str
    memory: tuple[float, float]
    """Share of the GPU memory that it may have."""
    use: tuple[float, float]
    """Utilization in percent around which it wanders."""
    swing: float
    works_for: tuple[float, float] | None = None
    """Seconds after which it stops using its GPU and keeps it: a notebook somebody forgot."""
    ranks: bool = False
    """One process per GPU; otherwise a single process holds all its GPUs."""
    pauses: bool = False
    """Drops now and then, for a checkpoint or an evaluation."""
    cpu: tuple[float, float] = (95.0, 130.0)
    rss_gib: tuple[float, float] = (3.0, 18.0)
    container: str | None = None
    visible: bool = True
    """False: its memory stays, its process is not to be seen from the host."""


TRAINING = (
    Work(
        program="python train.py",
        command="python train.py --config configs/base.yaml --bf16",
        memory=(0.55, 0.95),
        use=(78, 97),
        swing=6,
        pauses=True,
    ),
    Work(
        program="python pretrain.py",
        command="python -u pretrain.py --nproc-per-node 8 --resume latest",
        memory=(0.8, 0.97),
        use=(88, 98),
        swing=4,
        ranks=True,
        pauses=True,
    ),
    Work(
        program="python finetune.py",
        command="python finetune.py --model checkpoints/7b --lora-rank 16 --lr 2e-4",
        memory=(0.3, 0.8),
        use=(55, 92),
        swing=12,
        pauses=True,
    ),
    Work(
        program="gmx",
        command="gmx mdrun -deffnm md_prod -nb gpu -ntomp 16",
        memory=(0.02, 0.08),
        use=(62, 88),
        swing=5,
        cpu=(700, 1500),
        rss_gib=(0.4, 2.0),
    ),
    Work(
        program="python sweep.py",
        command="python sweep.py --trials 200 --seed 7",
        memory=(0.1, 0.45),
        use=(22, 60),
        swing=14,
    ),
)
SERVING = (
    Work(
        program="vllm",
        command="vllm serve models/instruct-8b --port 8000 --gpu-memory-utilization 0.9",
        memory=(0.85, 0.93),
        use=(14, 55),
        swing=18,
        container="docker 9c1f0a7d3b52 (vllm-chat)",
    ),
    Work(
        program="tritonserver",
        command="tritonserver --model-repository=/models",
        memory=(0.2, 0.6),
        use=(12, 40),
        swing=10,
        container="docker 4be07c61d8fa (triton)",
    ),
)
FORGOTTEN = (
    Work(
        program="jupyter",
        command="python -m ipykernel_launcher -f kernel.json",
        memory=(0.25, 0.95),
        use=(20, 70),
        swing=15,
        works_for=(300, 2400),
        cpu=(0.0, 0.8),
        rss_gib=(1.5, 9.0),
    ),
    Work(
        program="python",
        command="python -i explore.py",
        memory=(0.1, 0.6),
        use=(15, 50),
        swing=10,
        works_for=(300, 2400),
        cpu=(0.0, 0.5),
        rss_gib=(1.0, 5.0),
    ),
)
INVISIBLE = (
    Work(
        program="",
        command="",
        memory=(0.6, 0.85),
        use=(20, 40),
        swing=5,
        works_for=(0, 0),
        visible=False,
    ),
)
