"""How many PEs are free for this process now."""

import math
import os
import time

# Over which time it is measured what others use.
MEASURED_FOR_S = 0.1


def pes(root="/"):
    """Those that it may use, less what others use now; at least one."""
    return free_of(allowed(), quota(root), others(root))


def free_of(allowed_pes, quota_pes, used_by_others):
    """A part of a PE that is in use is a PE in use; a part of a quota is a thread of its own only if it is a half."""
    free = allowed_pes - math.ceil(used_by_others - 0.25)
    return max(1, min(free, round(quota_pes)) if quota_pes is not None else free)


def allowed():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def quota(root="/"):
    """The PEs that the innermost limit of the process's control groups (v2, v1) lets it have; None without one."""
    found = []
    for line in _lines(os.path.join(root, "proc/self/cgroup")):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, read = "sys/fs/cgroup", _quota_v2
        elif "cpu" in controllers.split(","):
            mount, read = "sys/fs/cgroup/cpu", _quota_v1
        else:
            continue
        parts = [part for part in path.split("/") if part]
        for depth in range(len(parts) + 1):
            found.append(read(os.path.join(root, mount, *parts[:depth])))
    return min((quota for quota in found if quota is not None), default=None)


def _quota_v2(group):
    words = " ".join(_lines(os.path.join(group, "cpu.max"))).split()
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0] != "max" else None


def _quota_v1(group):
    quota, period = (_lines(os.path.join(group, f"cpu.cfs_{name}_us")) for name in ("quota", "period"))
    return int(quota[0]) / int(period[0]) if quota and period and int(quota[0]) > 0 else None


def others(root="/", measured_for_s=MEASURED_FOR_S):
    """The PEs, of those that this process may use, that others use, as a mean over a moment."""
    if not hasattr(os, "sched_getaffinity"):
        return 0.0
    ours = os.sched_getaffinity(0)
    before, began, own_before = _busy_s(root, ours), time.monotonic(), time.process_time()
    time.sleep(measured_for_s)
    after, elapsed = _busy_s(root, ours), time.monotonic() - began
    own = time.process_time() - own_before
    return max(0.0, (after - before - own) / elapsed)


def _busy_s(root, cpus):
    """CPU time that was used so far on these CPUs: neither idle nor waiting for a device, without that of guests,
    which is part of the user's (proc(5))."""
    names = {f"cpu{cpu}" for cpu in cpus}
    busy = 0
    for line in _lines(os.path.join(root, "proc/stat")):
        name, *times = line.split()
        if name in names:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, times[:8])
            busy += user + nice + system + irq + softirq + steal
    return busy / os.sysconf("SC_CLK_TCK")


def _lines(path):
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []
