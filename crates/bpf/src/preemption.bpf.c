// SPDX-License-Identifier: GPL-2.0
/*
 * Hands the registers of a preempted thread to the thread that has preempted it.
 *
 * Problem: a sampler wants to see a thread as it is between two instructions. To stop it with ptrace costs
 * two wake-ups of idle CPUs for each sample.
 *
 * Approach: a thread of corewise that has just been switched to, instead of a followed one that wanted to run
 * on, needs nothing but to look: the other cannot run on this CPU meanwhile. `on_switch` keeps its general
 * registers, which the interrupt has saved on its kernel stack. What is saved at the end of the switch only
 * (segment bases, vector registers) is fetched by `take` and `take_xsave`, which corewise runs itself; `take`
 * also after it has looked: if the thread's run time is the same then, it has not run meanwhile on another
 * CPU either.
 *
 * Followed are processes by their ids, and what they fork; or all but corewise.
 *
 * Limits: x86-64. A thread in the kernel is left alone: its registers are not what they will be.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* Room for the vector registers of AVX-512, and what else the kernel saves below the tiles of AMX. */
#define XSAVE_MAX 3072
/* Words of `struct pt_regs`. */
#define REGISTERS 21
/* Among them, the number of the system call; negative when it is none. */
#define ORIG_AX 15

/* Mirrored by `Raw` in branches/preempt/kernel.rs. */
struct sample {
	__u64 task; /* its address; 0: no followed thread was preempted */
	__u64 since; /* when it was, CLOCK_MONOTONIC ns */
	__u64 run_ns;
	__u64 exec_id; /* another after each exec */
	__u64 fs_base;
	__u64 gs_base;
	__u64 registers[REGISTERS];
	__u32 tid;
	__u32 tgid;
	__u32 on_cpu;
	__u32 was_idle; /* nothing ran before */
	__u32 in_kernel; /* a followed thread was preempted on its way back from the kernel */
	__u32 reserved;
	__u64 xsave_bytes;
	__u8 xsave[XSAVE_MAX];
	__u64 faulted[REGISTERS]; /* the registers of the last page fault */
	__u64 faulted_tid;
};

/* By CPU; its size is set before it is loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct sample);
} samples SEC(".maps");

/* The followed processes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u8);
} processes SEC(".maps");

/* The process id of corewise. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} own_tgid SEC(".maps");

/* Whether all processes are followed: 1 or 0. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} whole_system SEC(".maps");


static __always_inline bool is_own(struct task_struct *task)
{
	__u32 zero = 0, *own = bpf_map_lookup_elem(&own_tgid, &zero);

	return own && *own == task->tgid;
}

static __always_inline bool is_followed(struct task_struct *task)
{
	__u32 zero = 0, tgid = task->tgid, *all;

	if (bpf_map_lookup_elem(&processes, &tgid))
		return 1;
	all = bpf_map_lookup_elem(&whole_system, &zero);
	/* Threads of the kernel have no memory of their own. */
	return all && *all && task->mm && !is_own(task);
}

/* The sample of the CPU that this runs on. */
static __always_inline struct sample *this_sample(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&samples, &cpu);
}

/*
 * A thread that the timer has interrupted in the kernel is preempted on its way back: to sample it would
 * count the kernel's time for the code that it goes back to. Its registers show whether that is a system
 * call; those of a page fault (all others are short and seldom) are kept here to recognise it.
 */
SEC("tp_btf/page_fault_user")
int BPF_PROG(on_page_fault, unsigned long address, struct pt_regs *registers)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct sample *sample;

	if (!is_followed(task))
		return 0;
	sample = this_sample();
	if (sample && !bpf_probe_read_kernel(sample->faulted, sizeof(sample->faulted), registers))
		sample->faulted_tid = task->pid;
	return 0;
}

static __always_inline bool comes_from_fault(struct sample *sample)
{
	for (int i = 0; i < REGISTERS; i++)
		if (sample->faulted[i] != sample->registers[i])
			return 0;
	return sample->faulted_tid == sample->tid;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct sample *sample;

	if (!is_own(next))
		return 0;
	sample = this_sample();
	if (!sample)
		return 0;
	sample->task = 0;
	sample->in_kernel = 0;
	sample->was_idle = prev->pid == 0;
	if (prev->__state || !is_followed(prev))
		return 0;
	if (bpf_probe_read_kernel(sample->registers, sizeof(sample->registers), (void *)bpf_task_pt_regs(prev)))
		return 0;
	sample->tid = prev->pid;
	sample->tgid = prev->tgid;
	/* `preempt` is set for threads that were preempted in the kernel. */
	sample->in_kernel = preempt || (__s64)sample->registers[ORIG_AX] >= 0 || comes_from_fault(sample);
	if (sample->in_kernel)
		return 0;
	sample->exec_id = prev->self_exec_id;
	sample->since = bpf_ktime_get_ns();
	sample->task = (__u64)prev;
	return 0;
}

static __always_inline struct fpu *fpu_of(struct task_struct *task)
{
	/* Since Linux 6.16 it lies behind the task. */
	if (bpf_core_field_exists(struct thread_struct, fpu))
		return &task->thread.fpu;
	return (void *)task + bpf_core_type_size(struct task_struct);
}

static __always_inline struct sample *taken_sample(void)
{
	struct sample *sample = this_sample();

	return sample && sample->task ? sample : 0;
}

/* These two corewise runs itself, on the CPU that it is on. */
SEC("raw_tp")
int take(void *context)
{
	struct sample *sample = taken_sample();
	struct task_struct *task;

	if (!sample)
		return 0;
	task = (void *)sample->task;
	sample->run_ns = BPF_CORE_READ(task, se.sum_exec_runtime);
	sample->on_cpu = BPF_CORE_READ(task, on_cpu);
	sample->fs_base = BPF_CORE_READ(task, thread.fsbase);
	sample->gs_base = BPF_CORE_READ(task, thread.gsbase);
	return 0;
}

SEC("raw_tp")
int take_xsave(void *context)
{
	struct sample *sample = taken_sample();
	struct fpstate *state;
	struct fpu *fpu;
	__u32 bytes;

	if (!sample)
		return 0;
	fpu = fpu_of((void *)sample->task);
	state = BPF_CORE_READ(fpu, fpstate);
	bytes = BPF_CORE_READ(state, size);
	if (bytes > XSAVE_MAX)
		bytes = XSAVE_MAX;
	sample->xsave_bytes = bpf_core_read(sample->xsave, bytes, &state->regs) ? 0 : bytes;
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *creator, struct task_struct *child)
{
	__u32 tgid = child->tgid;
	__u8 is = 1;

	if (tgid != creator->tgid && is_followed(creator))
		bpf_map_update_elem(&processes, &tgid, &is, BPF_ANY);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	__u32 tgid = task->tgid;

	/* The last of its threads. */
	if (task->signal->live.counter == 0)
		bpf_map_delete_elem(&processes, &tgid);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
