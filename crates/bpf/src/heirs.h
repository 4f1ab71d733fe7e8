/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What inherits a mask or a weight, for discovery.bpf.c.
 *
 * User space lists the threads that it has placed in `bound`. When one of these creates a thread or a
 * process, or executes a program, the thread that runs with what it inherits is reported before it executes
 * its first instruction: through `heirs` to a thread of user space that is woken each time and only restores
 * masks, and through `starts` to the one that records all threads. A moved thread hands on no mask.
 */
#ifndef COREWISE_HEIRS_H
#define COREWISE_HEIRS_H

#include "bound.h"

/* A thread with the mask of a bound thread: one that it has created, or itself with another program. */
struct heir {
	__u32 tid;
	__u32 ours;
	__u32 original;
};

/* The same, for the record of all threads. */
struct start {
	__u64 generation;
	__u32 tid;
	__u32 tgid;
	__u32 by_tid;
	__u32 by_tgid;
};

/* For so long a thread with its own mask again may be creating another one with the old mask. */
#define HANDS_ON_NS (1000 * 1000 * 1000)

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} heirs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} starts SEC(".maps");

/* The masks that this thread hands on, if it is bound. */
static __always_inline struct bound *hands_on(__u32 tid, __u64 now)
{
	struct bound *masks = bpf_map_lookup_elem(&bound, &tid);

	return masks && (!masks->freed || now - masks->freed < HANDS_ON_NS) ? masks : 0;
}

/* If there is no room, the next observation shows the inherited mask. */
static __always_inline void tell_start(struct task_struct *task, __u64 generation, struct bound *masks,
				       __u32 by_tid, __u32 by_tgid)
{
	bool is_thread = task->tgid == by_tgid && task->pid != by_tid;
	struct heir heir = { .tid = task->pid, .ours = masks->ours, .original = masks->original };
	struct start start = {
		.generation = generation,
		.tid = task->pid,
		.tgid = task->tgid,
		.by_tid = by_tid,
		.by_tgid = by_tgid,
	};

	if (!has_own_mask(masks))
		bpf_ringbuf_output(&heirs, &heir, sizeof(heir), BPF_RB_FORCE_WAKEUP);
	bpf_ringbuf_output(&starts, &start, sizeof(start),
			   is_thread ? BPF_RB_NO_WAKEUP : BPF_RB_FORCE_WAKEUP);
}

/* A thread that another one has just created. */
static __always_inline void inherit(struct task_struct *child, struct task_struct *creator, __u64 now)
{
	struct bound *masks = hands_on(creator->pid, now), inherited = {};
	__u32 tid = child->pid;

	if (!masks)
		return;
	inherited.ours = masks->ours;
	inherited.original = masks->original;
	tell_start(child, now, masks, creator->pid, creator->tgid);
	bpf_map_update_elem(&bound, &tid, &inherited, BPF_ANY);
}

/* A thread that executes a program, and had this tid before. */
static __always_inline void execute(struct task_struct *task, __u32 tid, __u64 generation, __u64 now)
{
	struct bound *masks = hands_on(tid, now);

	if (masks)
		tell_start(task, generation, masks, task->pid, task->tgid);
}

/* A thread that ends. */
static __always_inline void forget(struct task_struct *task)
{
	__u32 tid = task->pid;

	bpf_map_delete_elem(&bound, &tid);
}

#endif
