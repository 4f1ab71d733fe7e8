"""Runs of workloads: what each consists of, and how it is measured on a machine with fast and slow PEs.

    python3 runs.py FOLDER SETTINGS RUN...

runs on such a machine: in a guest, or under `corewise emulate-slow`. FOLDER holds the programs and `corewise`;
AMP_FAST names the fast PEs. SETTINGS are JSON: the `scale` of the programs, and more `options` of `corewise run`. Each
RUN is `round/workload/policy`. For each the script prints a line of JSON.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..")
# Without corewise; by hand: the first program on the fast PEs at a high weight, all others free; and under a corewise
# that only watches.
DEFAULT, BY_HAND, WATCHED = "default", "by-hand", "watched"
# What the threads of a program gain from a fast PE, "measured a priori" as in the paper: its slow cores have half the
# clock, which programs that wait for memory notice less. (Emulated PEs are slower at everything.)
RATIOS = {"CI": 2.0, "MI": 1.4}


def table(name):
    with open(os.path.join(ROOT, "workloads", name)) as file:
        rows = [line.rstrip("\n").split("\t") for line in file if not line.startswith("#")]
    return {row[0]: row[1:] for row in rows}


PROGRAMS = table("programs.tsv")
PAIRS = table("pairs.tsv")


def programs_of(workload):
    """The programs of a workload: those of a pair, or one alone."""
    return PAIRS.get(workload) or [workload]


def parallelism(program):
    return PROGRAMS[program][0].split()[0]


def threads_of(workload, pes):
    """How many threads each parallel program of a workload has."""
    programs = programs_of(workload)
    singles = sum(parallelism(program) == "ST" for program in programs)
    parallel = len(programs) - singles
    return max(2, (pes - singles) // parallel) if parallel else 1


def build(folder, corewise):
    """Fills a folder with the programs, each under its own name, and corewise."""
    for source in ("phases", "together"):
        path = os.path.join(ROOT, "workloads", f"{source}.c")
        # Static, as a guest loads libraries slowly.
        subprocess.run(["cc", "-O2", "-static", "-pthread", "-o", os.path.join(folder, source), path], check=True)
    for program in PROGRAMS:
        shutil.copy(os.path.join(folder, "phases"), os.path.join(folder, program))
    shutil.copy(corewise, os.path.join(folder, "corewise"))


class Machine:
    """A machine with fast and slow PEs, which these are from `differ` to `equal`."""

    def __init__(self, folder, scale, options):
        self.folder, self.scale, self.options = folder, scale, options
        self.pes, self.fast = len(os.sched_getaffinity(0)), os.environ["AMP_FAST"]
        self.is_guest = "GUEST" in os.environ

    def speeds(self, word):
        if self.is_guest:
            subprocess.run(["speeds", word], check=True)

    def command(self, workload, program):
        threads = threads_of(workload, self.pes)
        options = PROGRAMS[program][1].format(threads=threads)
        return f"{self.folder}/{program} {options} --scale {self.scale}"

    def corewise(self, policy):
        if policy == WATCHED:
            policy = "default"
        if policy == "static-ipc":
            kinds = {program: of[0].split()[1] for program, of in PROGRAMS.items()}
            policy += ":" + ",".join(f"ratios.{program}={RATIOS[kind]}" for program, kind in kinds.items())
        return [f"{self.folder}/corewise", "run", "--quiet", "--policy", policy, "--fast", self.fast, *self.options]

    def seconds(self, workload, policy):
        """Runs the programs of a workload at once; how long each took."""
        commands = [self.command(workload, program) for program in programs_of(workload)]
        together = [f"{self.folder}/together", *commands]
        if policy not in (DEFAULT, BY_HAND):
            together = self.corewise(policy) + ["--", *together]
        running = subprocess.Popen(together, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        word, *pids = running.stdout.readline().split() or [""]
        if word != "ready":
            raise SystemExit(f"{workload} under {policy}: the programs did not start")
        if policy == BY_HAND:
            os.sched_setaffinity(int(pids[0]), set(map(int, self.fast.split(","))))
            os.setpriority(os.PRIO_PROCESS, int(pids[0]), -15)
        self.speeds("differ")
        running.stdin.write("go\n")
        running.stdin.flush()
        seconds = [None] * len(commands)
        while None in seconds:
            line = running.stdout.readline().split()
            if not line or line[0] == "ended" and line[3] != "0":
                raise SystemExit(f"{workload} under {policy}: a program failed")
            if line[0] == "ended":
                seconds[int(line[1])] = float(line[2])
        self.speeds("equal")
        running.stdin.close()
        if running.wait():
            raise SystemExit(f"{workload} under {policy}: corewise failed")
        return seconds


def main():
    folder, settings, *runs = sys.argv[1:]
    settings = json.loads(settings)
    with tempfile.TemporaryDirectory() as local:
        # Files of the host are slow in a guest.
        local = shutil.copytree(folder, os.path.join(local, "programs"))
        machine = Machine(local, settings["scale"], settings["options"])
        for run in runs:
            number, workload, policy = run.split("/")
            seconds = machine.seconds(workload, policy)
            done = {"round": int(number), "workload": workload, "policy": policy, "seconds": seconds}
            print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main()
