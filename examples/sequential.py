#!/usr/bin/env python3
"""A policy for corewise in Python: a thread that runs while all others of its application wait gets a fast PE.

    corewise run --policy 'exec:python3 examples/sequential.py' -- COMMAND

Sequential phases are shorter than an interval, so it asks for events: docs/policy-protocol.md.
"""
import json
import sys


def pes_of(text):
    """The PEs of a list such as 0-3,8."""
    ends = [part.split("-") for part in text.split(",") if part]
    return {pe for part in ends for pe in range(int(part[0]), int(part[-1]) + 1)}


def place(scene, alone):
    kinds = [pes_of(kind["pes"]) for kind in scene["machine"]["kinds"]]
    if len(kinds) < 2:
        return {"bind": [], "nothing_to_gain": "all PEs are equally fast"}
    for event in scene["events"]:
        if event["event"] == "tlp_changed":
            alone[event["application"]] = event["only"]
    fast = kinds[0] & pes_of(scene["allowed_pes"])
    chosen = [t["thread"] for t in scene["threads"] if t["thread"] == alone.get(t["application"])][:len(fast)]
    bind = []
    for thread in scene["threads"] if chosen else []:
        is_chosen = thread["thread"] in chosen
        usable = pes_of(thread["may_use_pes"])
        pes = usable & fast if is_chosen else usable - fast
        if thread["placeable"] and pes:
            reason = "nothing else of its application runs" if is_chosen else "a sequential phase has the fast PEs"
            bind.append({"thread": thread["thread"], "pes": ",".join(map(str, sorted(pes))), "reason": reason})
    return {"bind": bind}


json.loads(sys.stdin.readline())  # The greeting.
print(json.dumps({"version": 1, "events": True}), flush=True)
alone = {}
for line in sys.stdin:
    scene = json.loads(line)
    print(json.dumps({"step": scene["step"], **place(scene, alone)}), flush=True)
