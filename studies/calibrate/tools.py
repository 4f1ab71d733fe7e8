#!/usr/bin/env python3
"""The kernels of calibration beside public tools, in turn on PE 0 (and 1): medians and their ratio.

usage: studies/calibrate/tools.py [ROUNDS]

Needs `cargo build --release -p corewise-bench --examples`, likwid (Debian), lmbench (Debian non-free), stress-ng
(Debian), core-to-core-latency (crates.io) on the PATH. A tool that is missing is left out. Copies are given as bytes
copied; likwid counts each twice (read and written), so its figure is halved here.
"""

import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RATES = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/examples/kernel_rates"
LMBENCH = "/usr/lib/lmbench/bin/x86_64-linux-gnu/"
# lmbench otherwise spends minutes on calibrating its clock.
LMBENCH_ENV = dict(os.environ, ENOUGH="10000", TIMING_O="0", LOOP_O="0")
REGIONS_KIB = [16, 256, 4096, 65536]
found = {}


def output(*command, env=None):
    try:
        result = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
    except subprocess.TimeoutExpired:
        return ""
    return result.stdout + result.stderr


def note(what, tool, value):
    found.setdefault(what, {}).setdefault(tool, []).append(value)


def ours():
    for line in output(RATES, "memory", "pairs").splitlines():
        words = line.split()
        if words and words[0].isdigit() and int(words[0]) in REGIONS_KIB:
            for kernel, value in zip(["read", "write", "copy", "load-latency"], words[1:5]):
                note((kernel, int(words[0])), "corewise", float(value))
        elif words and words[0] in ("alternate", "hand-over"):
            note((words[0], 0), "corewise", float(words[2]))


def likwid():
    for kernel, test, factor in [("read", "load", 1), ("write", "store", 1), ("copy", "copy", 2)]:
        for region in REGIONS_KIB:
            text = output("likwid-bench", "-t", f"{test}_avx512", "-w", f"S0:{region}kB:1", "-s", "1")
            if rate := re.search(r"MByte/s:\s*([\d.]+)", text):
                note((kernel, region), f"likwid {test}_avx512", float(rate[1]) / 1000 / factor)


def lmbench():
    for kernel, mode in [("read", "frd"), ("write", "fwr"), ("copy", "fcp")]:
        for region in REGIONS_KIB:
            text = output("taskset", "-c", "0", LMBENCH + "bw_mem", "-N", "3", f"{region}k", mode, env=LMBENCH_ENV)
            if rate := re.search(r"^[\d.]+ ([\d.]+)$", text, re.M):
                note((kernel, region), f"bw_mem {mode}", float(rate[1]) / 1000)
    text = output("taskset", "-c", "0", LMBENCH + "lat_mem_rd", "-t", "-N", "1", "64", "64", env=LMBENCH_ENV)
    for size, ns in re.findall(r"^([\d.]+) ([\d.]+)$", text, re.M):
        kib = round(float(size) * 1024)
        if kib in REGIONS_KIB:
            note(("load-latency", kib), "lat_mem_rd -t", float(ns))


def stress_ng():
    text = output("stress-ng", "--stream", "1", "--taskset", "0", "-t", "10", "--metrics")
    if rate := re.search(r"memory rate: ([\d.]+) MB read/sec", text):
        note(("read", 65536), "stress-ng --stream, its reads", float(rate[1]) / 1000)


def core_to_core():
    for bench, kernel in [("1", "alternate"), ("2", "hand-over")]:
        text = output("core-to-core-latency", "5000", "100", "-b", bench, "--csv")
        if rows := re.findall(r"^([\d.]+),$", text, re.M):
            note((kernel, 0), f"core-to-core-latency -b {bench}", float(rows[0]))


for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
    ours()
    for program, run in [
        ("likwid-bench", likwid),
        (LMBENCH + "bw_mem", lmbench),
        ("stress-ng", stress_ng),
        ("core-to-core-latency", core_to_core),
    ]:
        if shutil.which(program):
            run()

print(f"measured; medians, and from the first to the third quartile\n{'':28}{'corewise':>24}  another tool")
for (kernel, region), tools in sorted(found.items()):
    own = tools.pop("corewise", [])
    if not own:
        continue
    unit = "GB/s" if kernel in ("read", "write", "copy") else "ns"
    what = f"{kernel} {region} KiB" if region else kernel

    def shown(values):
        quartiles = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
        return f"{statistics.median(values):.4g} ({quartiles[0]:.4g}-{quartiles[2]:.4g})"

    print(f"{what:22} {unit:5}{shown(own):>24}")
    for tool, values in sorted(tools.items()):
        ratio = statistics.median(own) / statistics.median(values)
        print(f"{'':28}{'':24}  {tool}: {shown(values)}, ratio {ratio:.3f}")
