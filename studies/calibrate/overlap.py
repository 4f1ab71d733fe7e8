#!/usr/bin/env python3
"""How many figures of two profiles have overlapping 95 % intervals, and how wide they are."""

import json
import statistics
import sys


def load_name(load):
    return f"{load['kernel']} {load['region_bytes']}"


def figures(profile):
    """Every Δ against running alone and every rate and latency, by name."""
    for pair in profile["pairs"]:
        name = f"class {pair['class']}: {load_name(pair['workload']['first'])} + {load_name(pair['workload']['second'])}"
        if pair["delta_alone"]:
            yield "delta", name, pair["delta_alone"]
        else:
            yield "synchronisation rate", name, pair["rate"]
    for delta in profile["deltas"]:
        yield "delta", f"{delta['close']} against {delta['distant']}: {delta['subject']}", delta["delta"]
    for point in profile["memory"]:
        yield "memory alone", load_name(point["load"]), point["rate"]
    for curve in profile["contention"]:
        for duty, slowdown in curve["points"]:
            yield "contention", f"{curve['class']} {curve['resource']} {duty}", slowdown


first, second = ({(t, n): e for t, n, e in figures(json.load(open(path)))} for path in sys.argv[1:3])
tables = {}
for key in first.keys() & second.keys():
    tables.setdefault(key[0], []).append((key[1], first[key], second[key]))
for table, pairs in sorted(tables.items()):
    apart = [name for name, a, b in pairs if a["high"] < b["low"] or b["high"] < a["low"]]
    if table == "delta":
        widths = [(e["high"] - e["low"]) / 2 for _, a, b in pairs for e in (a, b)]
    else:
        widths = [(e["high"] - e["low"]) / 2 / e["value"] for _, a, b in pairs for e in (a, b)]
    overlap = 100 * (1 - len(apart) / len(pairs))
    half = statistics.median(widths)
    print(f"{table}: {len(pairs)} figures, {overlap:.1f} % overlap, median half width {half:.3f}")
    for name in sorted(apart):
        print(f"  apart: {name}")
