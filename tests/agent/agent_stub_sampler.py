"""A sampler without a driver: speaks the frame protocol and misbehaves as a plan file says.

    python agent_stub_sampler.py PLAN [--interval S] [--skip JSON] [--progress-fd N]

The plan is JSON, read before each sample: {"gpus": 4, "do": WORD, "bad": {"2": WORD}}. WORD is what
happens on the way to the sample, or when that GPU is read. The stub notes its pid in PLAN.pids, and
for each request its pid in PLAN.asked.
"""

import json
import mmap
import os
import signal
import struct
import sys
import time

plan_path = sys.argv[1]
options = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
skip = json.loads(options.get("--skip", "{}"))
progress = mmap.mmap(int(options["--progress-fd"]), 4)


def note(name, text):
    with open(f"{plan_path}.{name}", "a") as file:
        file.write(text + "\n")


def misbehave(word):
    if word == "hang":
        time.sleep(3600)
    elif word == "hang, deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)
    elif word == "hang, may be held":
        import ctypes

        set_ptracer, anybody = 0x59616D61, ctypes.c_ulong(-1)
        ctypes.CDLL(None).prctl(set_ptracer, anybody)
        time.sleep(3600)
    elif word == "abort":
        os.abort()
    elif word == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif word.startswith("exit "):
        print("last words", file=sys.stderr, flush=True)
        os._exit(int(word[5:]))
    elif word == "slow":
        time.sleep(0.3)
    elif word == "garbage":
        os.write(1, b"nvml: warning, this is no frame\n" * 10)
    elif word == "huge":
        os.write(1, struct.pack(">II", 2**31, 2**31))
    elif word == "half a frame":
        os.write(1, struct.pack(">II", 100, 100) + b"{")
        os._exit(0)
    elif word == "not JSON":
        os.write(1, struct.pack(">II", 3, 3) + b"abcdef")
    elif word == "chatter":
        for number in range(200):
            print(f"chatter {number}\x1b[31m " + "x" * 2000, file=sys.stderr)
        sys.stderr.write("y" * 200_000)
        sys.stderr.flush()
    elif word == "close":
        os.close(1)
        time.sleep(3600)


def sample(number):
    with open(plan_path) as file:
        plan = json.load(file)
    misbehave(plan.get("do", ""))
    gpus = []
    for index in range(plan["gpus"]):
        row = {"index": index, "uuid": f"GPU-{index}", "name": "Stub 9000"}
        if str(index) in skip:
            row = {"index": index, **skip[str(index)]}
        else:
            struct.pack_into("<i", progress, 0, index)
            misbehave(plan.get("bad", {}).get(str(index), ""))
            row.update(utilization_percent=number, processes=[])
        gpus.append(row)
    struct.pack_into("<i", progress, 0, -1)
    head = {"schema": 1, "sample_age_seconds": None, "sampler_error": None, "hostname": "stub"}
    more = {"gpu_count": len(gpus), "time": time.time(), "sample_interval_seconds": 1.0}
    whole = json.dumps({**head, **more, "gpus": gpus}, separators=(",", ":")).encode()
    rows = [{"index": gpu["index"], "error": gpu.get("error")} for gpu in gpus]
    short = json.dumps({**head, "time": more["time"], "gpus": rows}, separators=(",", ":")).encode()
    frame = struct.pack(">II", len(whole), len(short)) + whole + short
    os.write(1, 2 * frame if plan.get("do") == "twice" else frame)


note("pids", str(os.getpid()))
for number, line in enumerate(sys.stdin):
    note("asked", str(os.getpid()))
    if line == "s\n":
        sample(number)
