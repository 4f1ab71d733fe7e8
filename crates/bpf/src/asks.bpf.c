// SPDX-License-Identifier: GPL-2.0
/*
 * What bound threads ask for and cannot have: their own full mask, and SCHED_DEADLINE.
 *
 * A program that asks for its mask while a thread of it is bound sees too few PEs, and has too few threads
 * for good; one that asks for SCHED_DEADLINE is refused it. Both are reported to user space, which looks
 * when it looks anyway. The programs run at the end of these two system calls, and nowhere else. They are
 * an object of their own, loaded when the first thread is bound: some systems permit no programs at
 * functions of the kernel, and most runs bind nothing.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "bound.h"

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

	return masks && !masks->freed && !has_own_mask(masks);
}

/* If there is no room, many others have asked. */
static __always_inline void tell_ask(struct task_struct *task, enum asked asked)
{
	struct ask ask = { .tgid = task->tgid, .asked = asked };

	bpf_core_read(ask.comm, sizeof(ask.comm), &task->comm);
	bpf_ringbuf_output(&asks, &ask, sizeof(ask), BPF_RB_NO_WAKEUP);
}

/* A thread asks for its own mask, or for that of its process's first thread. (corewise is not bound.) */
SEC("fexit/sched_getaffinity")
int BPF_PROG(on_mask_asked, int pid)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 tid = pid ? pid : task->pid;

	if ((tid == task->pid || tid == task->tgid) && is_bound(tid))
		tell_ask(task, ASKED_MASK);
	return 0;
}

SEC("fexit/__sched_setscheduler")
int BPF_PROG(on_policy_set, struct task_struct *task, struct sched_attr *attr, bool user, bool pi, int result)
{
	if (result == -EPERM && attr->sched_policy == SCHED_DEADLINE && is_bound(task->pid))
		tell_ask(task, ASKED_DEADLINE);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
