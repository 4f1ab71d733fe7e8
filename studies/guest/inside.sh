#!/usr/bin/env bash
# Faults on a machine of 4 cores with 2 PEs each. See README.md.
corewise=$1 burn=$2
failures=0

# check WHAT COMMAND...: says whether the command succeeds.
check() {
  local what=$1
  shift
  if "$@"; then echo "ok      $what"; else echo "FAILED  $what"; failures=$((failures + 1)); fi
}

# The masks of all threads of the test program, one a line: name and PEs.
masks() {
  local task
  for task in /proc/[0-9]*/task/*; do
    [[ $(readlink "${task%/task/*}/exe") == */burn ]] || continue
    awk '/^Name:/ { name = $2 } /^Cpus_allowed_list:/ { print name, $2 }' "$task/status" 2>/dev/null
  done
}

# How many threads named `fp` are bound to a single PE.
bound() { masks | grep -cE '^fp [0-9]+$'; }
# How many cores they have: PEs 0 and 1 are a core, 2 and 3 the next.
cores() { masks | awk '/^fp [0-9]+$/ { print int($2 / 2) }' | sort -u | wc -l; }
# Whether every thread may use just these PEs.
wide() { ! masks | awk '{ print $2 }' | grep -qvxF "$1"; }
others_free() { ! masks | grep -v '^fp' | grep -qv ' 0-7$'; }

# until_true SECONDS COMMAND...
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do ((SECONDS < end)) || return 1; sleep 0.2; done
}
at_least_bound() { (($(bound) >= $1)); }
on_cores() { (($(bound) == $1 && $(cores) == $1)); }
# Neither corewise nor its guardian, which is started as /proc/self/exe.
nobody_left() { ! pgrep -x 'corewise|exe' >/dev/null; }
pe_is_free() { ! masks | grep -qE " $1\$"; }

start() {
  "$corewise" run -q --report /tmp/report.json "$@" -- "$burn" 600 4*fp 2*int sleep >/dev/null &
  run=$!
  until_true 90 at_least_bound 4
}
stop() {
  kill -KILL $(pgrep -x burn) 2>/dev/null
  wait "$run" 2>/dev/null
  until_true 20 eval '! pgrep -x burn >/dev/null && nobody_left'
}

mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
"$corewise" topo

start
check "4 fp threads have 4 different cores" on_cores 4
check "integer and sleeping threads are free" others_free
victim=$(masks | awk '/^fp [0-9]+$/ && $2 > 0 { print $2; exit }')
echo 0 >"/sys/devices/system/cpu/cpu$victim/online"
check "PE $victim offline: no thread is bound to it" until_true 30 pe_is_free "$victim"
check "PE $victim offline: 4 fp threads have 4 cores again" until_true 60 on_cores 4
echo 1 >"/sys/devices/system/cpu/cpu$victim/online"
sleep 3
check "PE $victim online again: corewise goes on" kill -0 "$run"
check "PE $victim online again: free threads may use it" others_free
kill -KILL "$run"
check "kill -9: every mask is given back" until_true 30 wide 0-7
stop

start
victim=$(masks | awk '/^fp [0-9]+$/ && $2 > 0 { print $2; exit }')
echo 0 >"/sys/devices/system/cpu/cpu$victim/online"
kill -KILL "$run"
until_true 30 nobody_left
echo 1 >"/sys/devices/system/cpu/cpu$victim/online"
check "kill -9 while PE $victim was offline: every mask is given back" until_true 10 wide 0-7
stop

echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/small
echo 0-7 >/sys/fs/cgroup/small/cpuset.cpus
echo 0-3 >/sys/fs/cgroup/small/cpuset.cpus
echo $$ >/sys/fs/cgroup/small/cgroup.procs
"$corewise" run -q -- "$burn" 600 4*fp 2*int sleep >/dev/null &
run=$!
until_true 90 at_least_bound 2
check "cpuset 0-3: what is bound is within" eval '! masks | grep -qE " [4-7]"'
echo 0-7 >/sys/fs/cgroup/small/cpuset.cpus
check "cpuset grown: 4 fp threads get 4 cores" until_true 60 on_cores 4
echo 2-3 >/sys/fs/cgroup/small/cpuset.cpus
sleep 3
check "cpuset shrunk: corewise goes on" kill -0 "$run"
kill -KILL "$run"
until_true 30 nobody_left
check "cpuset shrunk, kill -9: all have the cpuset" wide 2-3
echo 0-7 >/sys/fs/cgroup/small/cpuset.cpus
check "cpuset grown after the end: no thread is narrower" until_true 10 wide 0-7
stop
echo "$failures failures"
exit $((failures > 0))
