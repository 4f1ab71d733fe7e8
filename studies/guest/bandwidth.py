"""CPU bandwidth limits on the threads of a QEMU process that are its virtual PEs, by control groups.

The limits are what slows a PE down, so the groups have the highest weight: what else runs on the host hardly matters.
"""

import glob
import os
import re

PERIOD_US = 20_000


def limits(pid, shares):
    """Groups for the virtual PEs of a process, without limits yet. `shares` are those of a CPU."""
    threads = virtual_pes(pid)
    if len(threads) != len(shares):
        raise SystemExit(f"{len(shares)} speeds for {len(threads)} virtual PEs")
    for version in (Version1, Version2):
        if version.is_there():
            return version(pid, threads, shares)
    raise SystemExit("this machine has no control groups that limit CPU bandwidth")


class Limits:
    """One control group for each virtual PE, below one for the process."""

    def __init__(self, pid, threads, shares):
        self.group, self.shares = f"{self.ROOT}/amp-guest-{pid}", shares
        os.mkdir(self.group)
        self.prepare(pid)
        for pe, thread in enumerate(threads):
            os.mkdir(self.of(pe))
            self.add(pe, thread)

    def of(self, pe):
        return f"{self.group}/{pe}"

    def set(self, differ):
        """Whether the limits hold from now on."""
        for pe, share in enumerate(self.shares):
            self.limit(pe, round(share * PERIOD_US) if differ else None)

    def remove(self):
        """Removes the groups of a process that has ended."""
        for group in [*map(self.of, range(len(self.shares))), self.group]:
            os.rmdir(group)


class Version1(Limits):
    ROOT = "/sys/fs/cgroup/cpu"

    @staticmethod
    def is_there():
        return os.path.exists(f"{Version1.ROOT}/cpu.cfs_quota_us")

    def prepare(self, _):
        write(f"{self.group}/cpu.shares", 262144)

    def add(self, pe, thread):
        write(f"{self.of(pe)}/cpu.cfs_period_us", PERIOD_US)
        write(f"{self.of(pe)}/tasks", thread)

    def limit(self, pe, quota):
        write(f"{self.of(pe)}/cpu.cfs_quota_us", -1 if quota is None else quota)


class Version2(Limits):
    """Threads of one process may be in different groups if these are "threaded"."""

    ROOT = "/sys/fs/cgroup"

    @staticmethod
    def is_there():
        with open(f"{Version2.ROOT}/cgroup.controllers") as file:
            return "cpu" in file.read().split()

    def prepare(self, pid):
        write(f"{self.ROOT}/cgroup.subtree_control", "+cpu")
        write(f"{self.group}/cpu.weight", 10000)
        write(f"{self.group}/cgroup.procs", pid)

    def add(self, pe, thread):
        write(f"{self.of(pe)}/cgroup.type", "threaded")
        write(f"{self.group}/cgroup.subtree_control", "+cpu")
        write(f"{self.of(pe)}/cgroup.threads", thread)

    def limit(self, pe, quota):
        write(f"{self.of(pe)}/cpu.max", f"{'max' if quota is None else quota} {PERIOD_US}")


def virtual_pes(pid):
    """The thread of each virtual PE, in their order; QEMU names them if asked to (`debug-threads=on`)."""
    found = {}
    for comm in glob.glob(f"/proc/{pid}/task/*/comm"):
        with open(comm) as file:
            name = re.fullmatch(r"CPU (\d+)/\w+\n", file.read())
        if name:
            found[int(name[1])] = int(comm.split("/")[4])
    return [found[pe] for pe in sorted(found)]


def write(path, value):
    with open(path, "w") as file:
        file.write(str(value))
