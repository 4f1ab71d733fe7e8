/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What bound threads ask for and cannot have: their own full mask, and SCHED_DEADLINE.
 *
 * A program that asks for its mask while a thread of it is bound sees too few PEs, and has too few threads
 * for good; one that asks for SCHED_DEADLINE is refused it. Both are reported to user space, which looks
 * when it looks anyway. The programs run at the end of these two system calls, and nowhere else.
 */
#ifndef COREWISE_ASKS_H
#define COREWISE_ASKS_H

#define SCHED_DEADLINE 6
#define EPERM 1

enum asked {
	ASKED_MASK,
	ASKED_DEADLINE,
};

/* Mirrored by `RawAsk` in discovery/asks.rs. */
struct ask {
	__u32 tgid;
	__u32 asked;
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 14);
} asks SEC(".maps");

static __always_inline bool is_bound(__u32 tid)
{
	struct bound *masks = bpf_map_lookup_elem(&bound, &tid);

	return masks && !masks->freed;
}

/* If there is no room, many others have asked. */
static __always_inline void tell_ask(struct task_struct *task, enum asked asked)
{
	struct ask ask = { .tgid = task->tgid, .asked = asked };

	bpf_core_read(ask.comm, sizeof(ask.comm), &task->comm);
	bpf_ringbuf_output(&asks, &ask, sizeof(ask), BPF_RB_NO_WAKEUP);
}

#endif
