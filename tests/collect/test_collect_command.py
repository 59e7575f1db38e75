"""Secrets on command lines: the usual forms are masked before anything leaves the host."""

from __future__ import annotations

import subprocess
import time

import pytest
from collect_helpers import until
from hypothesis import given
from hypothesis import strategies as st

from gpumon.collect import moment, procfs
from gpumon.collect.command import command_line, masked
from gpumon.collect.processes import Enricher
from gpumon.model import Gpu, Process


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["run", "--token", "s3", "-v"], "run --token *** -v"),
        (["run", "--token=s3", "x"], "run --token=*** x"),
        (["run", "--Api-Key", "s3 s3", "x"], "run --Api-Key *** x"),
        (["run", "-password", "s3"], "run -password ***"),
        (["run", "--db.password=s3 s3"], "run --db.password=***"),
        (["run", "trainer.api_key=s3", "lr=1"], "run trainer.api_key=*** lr=1"),
        (["env", "API_KEY=s3", "PGPASSWORD=s3", "run"], "env API_KEY=*** PGPASSWORD=*** run"),
        (["docker", "run", "-e", "HF_TOKEN=s3", "i"], "docker run -e HF_TOKEN=*** i"),
        (["run", "--env", "AWS_SECRET_ACCESS_KEY=s3"], "run --env AWS_SECRET_ACCESS_KEY=***"),
        (["curl", "-H", "Authorization: Bearer s3"], "curl -H Authorization: ***"),
        (["curl", "-H", "X-Api-Key: s3", "u"], "curl -H X-Api-Key: *** u"),
        (["git", "clone", "https://me:s3@host/x"], "git clone https://***@host/x"),
        (["pip", "--proxy", "http://s3@host"], "pip --proxy http://***@host"),
        (["sh", "-c", "export A_KEY=s3; run"], "sh -c export A_KEY=*** run"),
        (["sh", "-c", "run --token s3 -v"], "sh -c run --token *** -v"),
        (["sh", "-c", "run --token 's3 s3' -v"], "sh -c run --token *** -v"),
        (["sh", "-c", "curl -H 'Authorization: Bearer s3' u"],
         "sh -c curl -H 'Authorization: ***' u"),
        (["run", '{"api_key": "s3 s3", "lr": 1}'], 'run {"api_key": ***, "lr": 1}'),
        (["python train.py --token s3 --lr 3"], "python train.py --token *** --lr 3"),
        (["run", "--key", "--token", "s3"], "run --key --token ***"),
    ],
)  # fmt: skip
def test_a_secret_that_has_a_name_is_masked(arguments, shown):
    assert command_line(arguments) == shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["python", "train.py", "--lr", "3e-4", "--max-tokens", "100"],
        ["run", "--tokenizer", "gpt2", "--author=ann", "--keyboard", "us"],
        ["key", "value", "https://host/x@y", "a=b"],
        ["run", "--token"],
        ["run", "--token="],
        ["run", "--use-auth", "--verbose"],
        ["ray::train"],
    ],
)
def test_what_is_no_secret_stays(arguments):
    assert masked(arguments) == arguments


def test_no_arguments_are_no_command_line():
    assert command_line([]) is None


@given(st.lists(st.text(st.sampled_from("ab-=: \"'key/@token."), max_size=30), max_size=6))
def test_any_arguments_become_one_line(arguments):
    line = command_line([argument.replace("\0", "") for argument in arguments])
    assert line is None or line.isprintable()


@pytest.mark.parametrize("part", ["a", "secret", "-", " ", "key ", "://", "a=", '"', "--key\0"])
def test_masking_costs_little_whatever_the_text_is(part):
    arguments = (part * 100_000).split("\0")
    begin = time.process_time()
    command_line(arguments)
    assert time.process_time() - begin < 0.5


def test_a_running_process_shows_no_secret(spawn):
    arguments = ["--token", "s3cret", "API_KEY=s3cret", "https://me:s3cret@host"]
    process = spawn(["sh", "-c", "read line", *arguments], stdin=subprocess.PIPE)
    until(lambda: procfs.read_arguments(f"/proc/{process.pid}")[3:] == arguments, "it runs")
    row = Process(pid=process.pid)
    Enricher(pids_are_ours=True).enrich([Gpu(index=0, processes=[row])], moment.now(), [])
    assert row.command == "sh -c read line --token *** API_KEY=*** https://***@host"
