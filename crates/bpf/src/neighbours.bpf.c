// SPDX-License-Identifier: GPL-2.0
/*
 * Which processes run at the same time on CPUs that share something, and for how long.
 *
 * Problem: what two programs cost each other shows in how fast they are while both run, so it must be known
 * when they did. A switch takes about a microsecond, and this may add a tenth of that at most.
 *
 * Approach: each CPU has a seat with the process that runs there and since when. When it leaves, the time
 * that it had in common with the process on a neighbouring CPU is added to that pair of processes. Two that
 * share a core or an L2 are few, and all are looked at; of the others (`rest`) one is chosen at random, and
 * its time counts for all of them. So the sums are exact for close neighbours and right in the mean for
 * others, at a cost that does not depend on the size of the machine.
 *
 * Exactly once: both CPUs of a pair may be left at the same moment. So each pair of CPUs has a word that
 * says up to when its common time is counted, and only the CPU that moves it on counts. User space moves it
 * on, too, when it reads, and counts those that run on (neighbours.rs).
 *
 * Only pairs with a watched process are counted. The idle task and what the kernel runs are nobody.
 *
 * Limits: a CPU's seat is written by that CPU and read by others without a lock: who reads it in the middle
 * of a change takes the old process with the new time, which has nothing in common with anybody yet. A switch
 * that the kernel does not report (some sandboxes hide those of their own agent) leaves a process on its seat
 * until the next one.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* Mirrored in neighbours.rs. */
#define CLOSE_MAX 4
#define NEAR_MAX 128

/* Mirrored by `PAIRS_MAX`. */
#define PAIRS_MAX 16384

/* Mirrored by `RawSeat`. */
struct seat {
	__u64 since;
	__u32 tgid; /* 0: nobody */
	__u32 is_watched;
};

struct neighbour {
	__u32 pe;
	__u32 distance; /* what both share, by its number in user space */
	__u32 cell; /* of the pair of CPUs in `counted` */
	__u32 reserved;
};

/* Mirrored by `RawNear`. */
struct near {
	__u32 close; /* neighbours that are all looked at: the first ones */
	__u32 rest; /* those after them */
	struct neighbour list[NEAR_MAX];
};

/* Mirrored by `RawPair`. */
struct pair {
	__u32 low; /* process */
	__u32 high;
	__u32 distance;
};

/* By CPU; the sizes of these three are set before they are loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct seat);
} seats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct near);
} near SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} counted SEC(".maps");

/* The processes of which it is to be known. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u8);
} watched SEC(".maps");

/* Nanoseconds; user space removes those of processes that have ended. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PAIRS_MAX);
	__type(key, struct pair);
	__type(value, __u64);
} together SEC(".maps");

static __always_inline void add(__u32 a, __u32 b, __u32 distance, __u64 ns)
{
	struct pair key = { .low = a < b ? a : b, .high = a < b ? b : a, .distance = distance };
	__u64 *sum = bpf_map_lookup_elem(&together, &key);

	if (sum)
		__sync_fetch_and_add(sum, ns);
	else
		bpf_map_update_elem(&together, &key, &ns, BPF_ANY);
}

/* Counts the common time of a process that leaves its seat and of the one on a neighbouring CPU. */
static __always_inline void meet(struct seat *own, struct neighbour *neighbour, __u64 now, __u32 weight)
{
	__u32 pe = neighbour->pe, cell = neighbour->cell;
	struct seat *other = bpf_map_lookup_elem(&seats, &pe);
	__u64 *until, from, before;
	__u32 tgid;

	if (!other)
		return;
	tgid = other->tgid;
	if (!tgid || !(own->is_watched || other->is_watched))
		return;
	until = bpf_map_lookup_elem(&counted, &cell);
	if (!until)
		return;
	before = *until;
	from = before > own->since ? before : own->since;
	if (other->since > from)
		from = other->since;
	if (from >= now)
		return;
	if (__sync_val_compare_and_swap(until, before, now) == before)
		add(own->tgid, tgid, neighbour->distance, (now - from) * weight);
}

static __always_inline void leave(struct seat *own, __u32 pe, __u64 now)
{
	struct near *around = bpf_map_lookup_elem(&near, &pe);
	__u32 chosen;

	if (!around)
		return;
	for (__u32 i = 0; i < CLOSE_MAX && i < around->close; i++)
		meet(own, &around->list[i], now, 1);
	if (!around->rest)
		return;
	chosen = around->close + bpf_get_prandom_u32() % around->rest;
	if (chosen < NEAR_MAX)
		meet(own, &around->list[chosen], now, around->rest);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(change_seats, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u32 pe = bpf_get_smp_processor_id();
	__u32 tgid = next->pid && !(next->flags & KERNELS) ? next->tgid : 0;
	struct seat *seat = bpf_map_lookup_elem(&seats, &pe);
	__u64 now;

	if (!seat || seat->tgid == tgid)
		return 0;
	now = bpf_ktime_get_ns();
	if (seat->tgid)
		leave(seat, pe, now);
	seat->since = now;
	seat->tgid = tgid;
	seat->is_watched = tgid && bpf_map_lookup_elem(&watched, &tgid);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
