#!/bin/bash
# What is expected of corewise as a service, checked in a Debian that systemd has booted (by `service`).
# Each line gives what is expected and `ok`, `FAILED`, or `skipped` with the reason; the last one counts them.
shopt -s globstar nullglob
dropins=/run/systemd/system/corewise.service.d
cpus=$(nproc)
failures=0
patience=${PATIENCE:-60}

# check WHAT COMMAND...: says whether the command succeeds.
check() {
  local what=$1
  shift
  if "$@"; then echo "ok      $what"; else tell_failure "$what"; fi
}
tell_failure() {
  echo "FAILED  $1"
  failures=$((failures + 1))
  {
    systemctl status -n 8 corewise
    corewise status
    fp_masks
    # Why each thread is where it is.
    for pid in $(pgrep -x burn); do corewise status "$pid"; done
  } 2>&1 | sed 's/^/        | /'
}
skip() { echo "skipped $1: $2"; }

# soon COMMAND...: waits until it succeeds.
soon() {
  local end=$((SECONDS + patience))
  until "$@"; do ((SECONDS < end)) || return 1; sleep 0.2; done
}
not() { ! "$@"; }

# start UNIT PROPERTY... -- COMMAND...
start() {
  local unit=$1 properties=()
  shift
  while [[ $1 != -- ]]; do properties+=(-p "$1"); shift; done
  systemd-run --quiet --collect --unit="$unit" "${properties[@]}" "$@"
}
end() { systemctl stop "$@" 2>/dev/null; }

# How the service runs: its options, and what else is to stand in the section [Service]. What it does is
# checked, not at which cost: where PEs are emulated that would be too high.
service_runs() {
  mkdir -p "$dropins"
  printf '%s\n' '[Service]' ExecStart= "ExecStart=/usr/bin/corewise daemon --own-cost 50 $1" "${@:2}" \
    >"$dropins/check.conf"
  systemctl daemon-reload
}
main_pid() { systemctl show -P MainPID corewise; }
# The process of the service with this name: the guardian has it.
helper() {
  local pid
  for pid in $(cat /sys/fs/cgroup/{,systemd/}system.slice/corewise.service/cgroup.procs 2>/dev/null); do
    [[ $(cat "/proc/$pid/comm" 2>/dev/null) == "$1" ]] && echo "$pid"
  done
}
answers() { corewise status >/dev/null 2>&1; }
is_active() { systemctl --quiet is-active corewise; }
has_new_pid() { is_active && [[ $(main_pid) != "$1" ]]; }
nobody_left() { ! pgrep -x 'corewise|guardian|witness' >/dev/null; }
logged() { journalctl -q -u corewise -g "$1" -n 1 | grep -q .; }

# The PEs of all threads named fp, one thread a line.
fp_masks() {
  local task
  for task in $(pgrep -x burn); do
    awk '/^Name:/ { fp = $2 == "fp" } fp && /^Cpus_allowed_list:/ { print $2 }' \
      "/proc/$task/task"/*/status 2>/dev/null
  done
}
bound() { fp_masks | grep -qxE '[0-9]+'; }
wide() { local all; all=$(fp_masks) && [[ $all ]] && ! grep -qvxF "0-$((cpus - 1))" <<<"$all"; }
bound_within() { fp_masks | grep -qxE "[$1]"; }
# Two threads, each bound to a core or a PE, of two cores.
apart() {
  local pes
  mapfile -t pes < <(fp_masks)
  ((${#pes[@]} == 2)) && ! grep -qxF "0-$((cpus - 1))" <(fp_masks) &&
    [[ $(core_of "${pes[0]%%[-,]*}") != $(core_of "${pes[1]%%[-,]*}") ]]
}
core_of() { cat "/sys/devices/system/cpu/cpu$1/topology/core_cpus_list"; }

# All that corewise might change on the machine: of each user's thread its PEs, nice level and scheduling
# policy; of each control group its weight.
state() {
  grep -sH '^Cpus_allowed_list:' /proc/[0-9]*/task/*/status | sed 's/:Cpus_allowed_list:\t/ /'
  # The parent, the start, the nice level and the policy (proc(5)). Threads of the kernel are its own matter.
  grep -sH '' /proc/[0-9]*/task/*/stat | sed 's/:.*)//' | awk '$3 != 2 { print $1 "@" $21, $18 "," $40 }'
  grep -sH '' /sys/fs/cgroup/**/cpu.weight | sed 's/:/ /'
}
# Whether what is still there is as it was.
as_before() {
  state | awk 'NR == FNR { was[$1] = $2; next } $1 in was && was[$1] != $2 { bad = 1 }
    END { exit bad }' /tmp/before -
}
# Those that have no turn are SCHED_IDLE.
any_in_turns() {
  grep -sH '' /proc/[0-9]*/task/*/stat | sed 's/:.*)//' | awk '$40 == 5 { found = 1 } END { exit !found }'
}
writes_memory() { grep -qs '^word ' /run/corewise/*@*; }

echo "Debian $(cat /etc/debian_version), $(systemctl --version | head -n 1), Linux $(uname -r), $cpus PEs"
corewise topo
cpuset=
grep -qw cpuset /sys/fs/cgroup/cgroup.controllers 2>/dev/null && cpuset=yes
no_cpuset="systemd has no cpuset here: the machine's control groups are of version 1"

## As it is installed.
check "the service is not started by installing it" not is_active
systemctl start corewise
check "when it has started, it is active" is_active
check "it answers at once" answers
check "a user may ask, too" runuser -u user -- sh -c 'corewise status >/dev/null'
check "its rules are read again" systemctl reload corewise
if [[ $(core_of 0) == 0 ]]; then
  skip "threads in need of an FPU get a core each" "no two PEs share a core here"
else
  start work -- burn 100000 '2*fp'
  check "threads in need of an FPU get a core each" soon apart
  end work
fi
systemctl stop corewise
check "after stopping, no process is left" soon nobody_left

## With a fast PE, so that there is something to place on every machine.
((cpus >= 4)) && fast=2 slow=0-1,3-$((cpus - 1)) within=2-3 || fast=0 slow=1 within=1
options="--policy pa --fast $fast --slow $slow"
start quiet -- burn 100000 sleep
service_runs "$options"
systemctl start corewise
start work -- burn 100000 fp
check "a thread of a unit is placed" soon bound
end work

start work CPUAffinity=$within -- burn 100000 fp
check "CPUAffinity=$within: it is placed within" soon bound_within "$within"
end work
if [[ $cpuset ]]; then
  start work AllowedCPUs=$within -- burn 100000 fp
  check "AllowedCPUs=$within: it is placed within" soon bound_within "$within"
  end work
  start box AllowedCPUs=$within Delegate=yes -- \
    unshare --mount --uts --ipc --cgroup --pid --fork --kill-child --mount-proc burn 100000 fp
  check "a container with a cpuset: it is placed within" soon bound_within "$within"
  end box
  echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
  mkdir /sys/fs/cgroup/gone
  echo $within >/sys/fs/cgroup/gone/cpuset.cpus
  start work Type=simple -- bash -c 'echo $$ >/sys/fs/cgroup/gone/cgroup.procs; exec burn 100000 fp'
  check "a control group that systemd does not know: it is placed within" soon bound_within "$within"
  for pid in $(cat /sys/fs/cgroup/gone/cgroup.procs); do echo "$pid" >/sys/fs/cgroup/cgroup.procs; done
  rmdir /sys/fs/cgroup/gone
  check "the group is removed while its program runs: the daemon goes on" soon answers
  pkill -x burn
  start more -- burn 100000 fp
  check "and places what starts then" soon bound
  end more
else
  skip "AllowedCPUs=: it is placed within" "$no_cpuset"
  skip "a container with a cpuset: it is placed within" "$no_cpuset"
  skip "the group is removed while its program runs: the daemon goes on" "$no_cpuset"
fi
systemctl stop corewise

## Faults. What the daemon finds now, it must leave so.
start work -- burn 100000 fp
service_runs "$options"
soon wide
state >/tmp/before
systemctl start corewise
soon bound
cp /usr/bin/corewise /usr/bin/corewise.new
mv /usr/bin/corewise.new /usr/bin/corewise
was=$(main_pid)
systemctl restart corewise
check "an upgrade and a restart: another process" has_new_pid "$was"
check "and threads are placed again" soon bound

was=$(main_pid)
systemctl kill --signal=KILL --kill-whom=main corewise
check "kill -9: systemd starts it again" soon has_new_pid "$was"
check "and threads are placed again" soon bound

systemctl kill --signal=STOP --kill-whom=main corewise
sleep 5
systemctl kill --signal=CONT --kill-whom=main corewise
check "stopped for some seconds, as by a suspend: it answers" soon answers
check "and threads are placed" soon bound

was=$(main_pid)
kill -KILL "$(helper guardian)"
check "kill -9 of the guardian: systemd starts the daemon again" soon has_new_pid "$was"
check "the daemon has said why" soon logged "the guardian, which restores everything after a crash, is gone"
check "and threads are placed again" soon bound

service_runs "$options" Restart=no
systemctl restart corewise
soon bound
systemctl kill --signal=KILL --kill-whom=main corewise
check "kill -9 without a restart: the guardian gives everything back" soon wide
check "and ends" soon nobody_left
check "masks, nice levels, weights are as before" as_before

systemctl reset-failed corewise
systemctl start corewise
# Others may have the fast PE after it. Stopped, it decides nothing any more.
stops_while_bound() { kill -STOP "$(main_pid)" && bound || { kill -CONT "$(main_pid)"; false; }; }
check "it is stopped while a thread is bound" soon stops_while_bound
kill -KILL "$(helper guardian)" "$(main_pid)"
soon not is_active
check "kill -9 of both: something is left" bound
systemctl reset-failed corewise
service_runs "--dry-run $options"
systemctl start corewise
check "the next start gives it back" soon wide
check "and says so" logged "killed along with its guardian"
systemctl stop corewise
check "masks, nice levels, weights are as before" as_before

service_runs "$options"
systemctl start corewise
soon bound
systemctl stop corewise
check "systemctl stop: masks, nice levels, weights are as before" as_before
check "and no process is left" soon nobody_left
end work

## Waits.
for name in one two; do start "$name" -- burn 100000 "$((2 * cpus))*spin"; done
state >/tmp/before
service_runs "" Restart=no
systemctl start corewise
check "programs that spin take turns" soon any_in_turns
systemctl kill --signal=KILL --kill-whom=main corewise
check "kill -9: none does any more" soon not any_in_turns
check "masks, nice levels, weights are as before" soon as_before
soon nobody_left
systemctl reset-failed corewise
systemctl start corewise
soon any_in_turns
systemctl stop corewise
check "systemctl stop: masks, nice levels, weights are as before" as_before
end one two

systemctl start corewise
for name in one two three; do start "$name" User=user -- regions 100000000; done
check "the spin count of a user's OpenMP program is changed" soon writes_memory
end one two three
systemctl stop corewise

## Metrics over HTTP, by the drop-in that the document has.
awk '/^```ini$/ { inside = 1; next } /^```$/ { inside = 0 } inside' \
  /usr/share/doc/corewise/docs/metrics.md >"$dropins/check.conf"
systemctl daemon-reload
systemctl start corewise
shows_metrics() (
  exec 3<>/dev/tcp/127.0.0.1/9775 || exit
  printf 'GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
  grep -q '^corewise_pes ' <&3
)
check "metrics over HTTP" soon shows_metrics
systemctl stop corewise

## The instance of a user.
as_user() { runuser -u user -- env XDG_RUNTIME_DIR=/run/user/1000 "$@"; }
systemctl start user@1000
as_user systemctl --user start corewise
check "a user's instance is active" as_user systemctl --user --quiet is-active corewise
check "it answers" as_user sh -c 'corewise status >/dev/null'
as_user systemctl --user stop corewise
check "and ends" soon nobody_left
systemctl start corewise
as_user systemctl --user start corewise
check "beside the daemon of the machine it does not start" \
  not as_user systemctl --user --quiet is-active corewise
systemctl stop corewise

echo "$failures failures"
