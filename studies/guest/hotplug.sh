#!/usr/bin/env bash
# A PE that goes offline and comes back while a daemon has bound a sleeping program to it. See README.md.
#
#     studies/guest/boot bzImage --smp 3,sockets=1,cores=3,threads=1 -- bash studies/guest/hotplug.sh COREWISE
corewise=$1 folder=$(mktemp -d) failures=0
export XDG_RUNTIME_DIR=$folder COREWISE_SOCKET=$folder/socket
printf '[[rule]]\nname = "sleepers"\nmatch = { exe = "*/sleep" }\npes = "2"\n' >"$folder/rules.toml"

check() {
  local what=$1
  shift
  if "$@"; then echo "ok      $what"; else echo "FAILED  $what: $(mask)"; failures=$((failures + 1)); fi
}
mask() { awk '/^Cpus_allowed_list:/ { print $2 }' "/proc/$sleeper/status"; }
is() { [[ $(mask) == "$1" ]]; }
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do ((SECONDS < end)) || return 1; sleep 0.3; done
}
has_ended() { ! kill -0 "$daemon" 2>/dev/null; }
nobody_restores() { ! grep -qx guardian /proc/[0-9]*/comm 2>/dev/null; }
switch() { echo "$1" >/sys/devices/system/cpu/cpu2/online; }
logged() { grep -q "$1" "$folder/log"; }

begin() {
  sleep 10000 &
  sleeper=$!
  "$corewise" daemon --discovery poll --counters none --own-cost 20 --socket "$folder/socket" \
    --config-dir "$folder" 2>"$folder/log" &
  daemon=$!
}
start() {
  begin
  check "a sleeping program is bound to PE 2" until_true 60 is 2
}
stop() {
  kill "-$1" "$daemon" 2>/dev/null
  until_true 60 has_ended && until_true 60 nobody_restores
}
over() { kill "$sleeper"; wait 2>/dev/null; }

for how in KILL TERM; do
  start
  switch 0
  check "PE 2 offline: one line of the log" until_true 30 logged "PEs 0-1 may be used, before: 0-2"
  stop $how
  switch 1
  check "$how while PE 2 was offline: the mask is as before" until_true 10 is 0-2
  over
done
start
switch 0
until_true 30 logged "PEs 0-1 may be used"
switch 1
check "PE 2 online again: one line of the log" until_true 30 logged "PEs 0-2 may be used, before: 0-1"
check "PE 2 online again: bound as the rule says" until_true 30 is 2
stop TERM
check "after the end the mask is as before" until_true 10 is 0-2
over
switch 0
begin
until_true 60 logged ready
switch 1
check "switched on after the start: used" until_true 60 is 2
stop TERM
check "after the end the mask is as before" until_true 10 is 0-2
over
echo "$failures failures"
exit $((failures > 0))
