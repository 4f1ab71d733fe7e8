#!/usr/bin/env bash
# Runs in a guest of 8 PEs: 2 sockets, 2 cores each, 2 PEs each. Placements and shares only. See README.md.
measure=$1
cpu=/sys/devices/system/cpu
online() { local pe; for pe in {1..7}; do echo $((pe < $1)) >$cpu/cpu$pe/online; done; }
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
echo "kernel $(uname -r)"
echo "slice $(cat /sys/kernel/debug/sched/base_slice_ns 2>/dev/null)"
for threads in 2 3 4; do "$measure" pairs $threads 30; done
online 1
for level in 5 10; do "$measure" weights 0 $level 3; done
echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/{a,b}
a=/sys/fs/cgroup/a/cgroup.procs b=/sys/fs/cgroup/b/cgroup.procs
"$measure" groups $a 1 $b 9 3
echo 300 >/sys/fs/cgroup/b/cpu.weight
"$measure" groups $a 4 $b 4 3
online 2
"$measure" pinned 2 5
for pes in 2 4 8; do online $pes; "$measure" shares $((pes + 1)) 5; done
echo end
