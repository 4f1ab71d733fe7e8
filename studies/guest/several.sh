#!/usr/bin/env bash
# Several runs of single-threaded FP programs on a machine of 4 cores with 2 PEs each; their corewise is
# killed at random moments. See README.md.
corewise=$1 burn=$2 runs=$3 kills=$4
failures=0
export XDG_RUNTIME_DIR=/tmp/runtime
RANDOM=7

# The PEs that the FP thread of run N may use; nothing if it has ended.
mask() { awk '/^Cpus_allowed_list:/ { print $2 }' "/proc/${program[$1]}/status" 2>/dev/null; }
is_bound() { [[ $(mask "$1") =~ ^[0-9]+$ ]]; }
is_free() { [[ $(mask "$1") == 0-7 ]]; }
# How many runs are bound, and how many cores they have: PEs 0 and 1 are a core, 2 and 3 the next.
places() { local run; for ((run = 0; run < runs; run++)); do mask "$run"; done | grep -xE '[0-9]+'; }
cores() { places | awk '{ print int($1 / 2) }' | sort -u; }
on_cores() { (($(places | wc -l) == runs && $(cores | wc -l) == runs)); }

# until_true SECONDS COMMAND...
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do ((SECONDS < end)) || return 1; sleep 0.1; done
}

# The FP thread is the program's only other thread; it is found by its name.
fp_thread() {
  local task parent
  for task in /proc/[0-9]*/task/*; do
    [[ $(cat "$task/comm" 2>/dev/null) == fp ]] || continue
    # The program's parent is its corewise, whoever else runs.
    parent=$(awk '/^PPid:/ { print $2 }' "${task%/task/*}/status" 2>/dev/null)
    [[ $parent == "${own[$1]}" ]] && echo "${task##*/}"
  done
}
found() { program[$1]=$(fp_thread "$1"); [[ -n ${program[$1]} ]]; }

start() {
  "$corewise" run -q -- "$burn" 6000 1*fp >/dev/null 2>&1 &
  own[$1]=$!
  until_true 120 found "$1"
}
fail() { echo "FAILED  $1: $(places | tr '\n' ' ')"; failures=$((failures + 1)); }

all_have_cores() {
  until_true 300 on_cores || { fail "$runs runs"; return; }
  echo "ok      $runs runs have $runs cores: $(places | tr '\n' ' ')"
}

mount -t tmpfs none /tmp 2>/dev/null
mkdir -m 700 /tmp/runtime
for ((run = 0; run < runs; run++)); do start "$run" || fail "start of run $run"; done
all_have_cores
for ((kill = 1; kill <= kills; kill++)); do
  run=$((RANDOM % runs))
  sleep "$((RANDOM % 2)).$((RANDOM % 10))"
  kill -KILL "${own[$run]}"
  wait "${own[$run]}" 2>/dev/null
  until_true 300 is_free "$run" || fail "kill $kill: the thread of run $run is not given back"
  kill -KILL "$(awk '/^Tgid:/ { print $2 }' "/proc/${program[$run]}/status")"
  start "$run" || fail "kill $kill: start of run $run"
  # Every other round the next kill comes at any moment, else when all have their places again.
  ((kill % 2)) || until_true 300 on_cores || fail "kill $kill: $runs runs"
  ((kill % 20)) || echo "        $kill kills, $failures failures: $(places | tr '\n' ' ')"
done
all_have_cores
kill -KILL $(pgrep -x corewise) $(pgrep -x burn) 2>/dev/null
echo "$failures failures"
exit $((failures > 0))
