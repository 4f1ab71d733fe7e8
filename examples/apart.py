#!/usr/bin/env python3
"""A policy for corewise in Python: FPU-intensive threads apart, two on one core only when all cores have one.

    corewise run --policy 'exec:python3 examples/apart.py' -- COMMAND

corewise writes a scene a line, this program answers each with a line: docs/policy-protocol.md.
"""
import json
import sys


def pes_of(text):
    """The PEs of a list such as 0-3,8."""
    ends = [part.split("-") for part in text.split(",") if part]
    return {pe for part in ends for pe in range(int(part[0]), int(part[-1]) + 1)}


def place(scene):
    allowed = pes_of(scene["allowed_pes"])
    shared = [pes_of(s["by"]) for s in scene["machine"]["shared"] if s["what"] in ("core", "module")]
    alone = [{pe} for pe in pes_of(scene["machine"]["pes"]) - set().union(*shared)]
    # What holds no other unit of its own counts: cores, or modules where there are some.
    units = [unit & allowed for unit in shared + alone if not any(unit < other for other in shared)]
    load = {index: 0 for index, unit in enumerate(units) if unit}
    bind = []
    for thread in sorted(scene["threads"], key=lambda thread: thread["thread"]):
        if thread["fpu_class"] != "intensive" or not thread["placeable"]:
            continue
        may_use = pes_of(thread["may_use_pes"])
        own = pes_of(thread["bound_pes"] or "")
        fits = [index for index in load if units[index] & may_use]
        if not fits:
            continue
        # The emptiest unit; of equal ones its own, so that nobody moves without need.
        best = min(fits, key=lambda index: (load[index], not units[index] & own, index))
        load[best] += 1
        pes = ",".join(map(str, sorted(units[best] & may_use)))
        bind.append({"thread": thread["thread"], "pes": pes, "reason": f"number {load[best]} there"})
    return bind


json.loads(sys.stdin.readline())  # The greeting.
print(json.dumps({"version": 1}), flush=True)
for line in sys.stdin:
    scene = json.loads(line)
    print(json.dumps({"step": scene["step"], "bind": place(scene)}), flush=True)
