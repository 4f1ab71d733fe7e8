// SPDX-License-Identifier: GPL-2.0
/*
 * Follows the threads of one process tree from the scheduler's own tracepoints.
 *
 * Problem: user space that polls /proc misses threads that live for a millisecond, and can only guess how
 * many threads were runnable between two looks.
 *
 * Approach: a hash map holds one entry per followed thread. A thread is followed when the thread that
 * created it is, or when it is a new process of `app.parent_tgid` (corewise). Every switch and wake-up of a
 * followed thread updates its times and the number of runnable threads, which is integrated over time in
 * `app`. New and ended threads are told through a ring buffer.
 *
 * Times without tearing: user space reads an entry while it changes. So each clock is a single word: while
 * it is stopped it holds its total (>= 0), while it runs it holds the total less the time of its start (< 0,
 * as no thread has run for longer than the machine is up). Adding the present to a negative word gives the
 * total, whenever it is read.
 *
 * Serialisation: the kernel holds the run queue lock of a thread at its switches and wake-ups, so the updates
 * of one entry are ordered. `app` is shared by all and has a lock of its own.
 *
 * Limits: a thread that was running already when it came to be followed counts as asleep until its next
 * switch. CPU time after sched_process_exit (the kernel's own clean-up) is not seen.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* Mirrored by `RawThread` in discovery/bpf.rs. */
struct thread {
	__s64 run_clock;
	__s64 runnable_clock;
	__u64 generation; /* when it began to be followed, CLOCK_MONOTONIC ns */
	__u32 tgid;
	__u32 creator; /* 0: unknown */
	__u32 last_pe; /* ~0: has not run yet */
	__u32 ended;
	char comm[16];
};

/* Mirrored by `RawEvent`. */
struct event {
	struct thread thread; /* `ended` says whether it is new or has ended */
	__u32 tid;
};

/* Mirrored by `RawApp`. */
struct app {
	struct bpf_spin_lock lock;
	__u32 parent_tgid;
	__u32 runnable;
	__u32 runnable_max;
	__u64 since; /* the integrals hold up to this time */
	__u64 runnable_thread_ns;
	__u64 active_ns;
	__u64 sequential_ns;
	__u64 threads_lost;
	__u64 events_lost;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct app);
} apps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

static __always_inline struct app *the_app(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&apps, &zero);
}

static __always_inline struct thread *followed(__u32 tid)
{
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);

	return thread && !thread->ended ? thread : 0;
}

static __always_inline void count_runnable(int change, __u64 now)
{
	struct app *app = the_app();

	if (!app)
		return;
	bpf_spin_lock(&app->lock);
	/* Another CPU may have come first with a later time; then this change takes effect at that time. */
	if (now > app->since) {
		__u64 elapsed_ns = now - app->since;

		app->runnable_thread_ns += elapsed_ns * app->runnable;
		if (app->runnable)
			app->active_ns += elapsed_ns;
		if (app->runnable == 1)
			app->sequential_ns += elapsed_ns;
		app->since = now;
	}
	app->runnable += change;
	if (app->runnable > app->runnable_max)
		app->runnable_max = app->runnable;
	bpf_spin_unlock(&app->lock);
}

static __always_inline void becomes_runnable(struct thread *thread, __u64 now)
{
	if (thread->runnable_clock < 0)
		return;
	thread->runnable_clock -= now;
	count_runnable(1, now);
}

static __always_inline void begins_to_run(struct thread *thread, __u64 now)
{
	becomes_runnable(thread, now);
	if (thread->run_clock >= 0)
		thread->run_clock -= now;
	thread->last_pe = bpf_get_smp_processor_id();
}

static __always_inline void stops_running(struct thread *thread, bool stays_runnable, __u64 now)
{
	if (thread->run_clock < 0)
		thread->run_clock += now;
	if (stays_runnable) {
		becomes_runnable(thread, now);
	} else if (thread->runnable_clock < 0) {
		thread->runnable_clock += now;
		count_runnable(-1, now);
	}
}

static __always_inline bool tell(__u32 tid, const struct thread *thread)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	struct app *app;

	if (!event) {
		app = the_app();
		if (app)
			__sync_fetch_and_add(&app->events_lost, 1);
		return 0;
	}
	event->thread = *thread;
	event->tid = tid;
	bpf_ringbuf_submit(event, 0);
	return 1;
}

static __always_inline void follow(struct task_struct *task, __u32 creator, __u64 now)
{
	struct thread thread = {};
	__u32 tid = task->pid;
	struct app *app;

	thread.generation = now;
	thread.tgid = task->tgid;
	thread.creator = creator;
	thread.last_pe = ~0;
	bpf_core_read(thread.comm, sizeof(thread.comm), &task->comm);
	if (bpf_map_update_elem(&threads, &tid, &thread, BPF_ANY)) {
		app = the_app();
		if (app)
			__sync_fetch_and_add(&app->threads_lost, 1);
		return;
	}
	tell(tid, &thread);
}

/* The last values travel in the event. Where it finds no room the entry stays until user space reads it. */
static __always_inline void end(__u32 tid, struct thread *thread, __u64 now)
{
	stops_running(thread, 0, now);
	thread->ended = 1;
	if (tell(tid, thread))
		bpf_map_delete_elem(&threads, &tid);
}

/*
 * Newer kernels also pass prev_state, as this field may be overwritten by a concurrent waker. It is then
 * TASK_WAKING: not 0 either, so that the answer to "does it sleep?" is the same on every kernel.
 */
static __always_inline bool wants_to_run(struct task_struct *task)
{
	struct task_struct___before_5_14 *old = (void *)task;

	if (bpf_core_field_exists(task->__state))
		return task->__state == 0;
	return old->state == 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct thread *thread;

	/* The idle task has the tid 0. */
	thread = prev->pid ? followed(prev->pid) : 0;
	if (thread)
		stops_running(thread, preempt || wants_to_run(prev), bpf_ktime_get_ns());
	thread = next->pid ? followed(next->pid) : 0;
	if (thread)
		begins_to_run(thread, bpf_ktime_get_ns());
	return 0;
}

static __always_inline int woken(struct task_struct *task)
{
	struct thread *thread = followed(task->pid);

	if (thread)
		becomes_runnable(thread, bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
	return woken(task);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct *task)
{
	return woken(task);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *creator, struct task_struct *child)
{
	struct app *app = the_app();
	bool process_of_parent;

	if (!app)
		return 0;
	process_of_parent = creator->tgid == app->parent_tgid && child->tgid != app->parent_tgid;
	if (process_of_parent || followed(creator->pid))
		follow(child, creator->pid, bpf_ktime_get_ns());
	return 0;
}

/*
 * When a thread that is not the leader calls exec, it takes over the leader's id (which has ended by then).
 * To the observer one thread ends and another begins.
 */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, int old_tid)
{
	struct thread *thread;
	__u64 now;

	if (old_tid == task->pid)
		return 0;
	thread = followed(old_tid);
	if (!thread)
		return 0;
	now = bpf_ktime_get_ns();
	end(old_tid, thread, now);
	follow(task, old_tid, now);
	thread = followed(task->pid);
	if (thread)
		begins_to_run(thread, now);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	struct thread *thread = followed(task->pid);

	if (thread)
		end(task->pid, thread, bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(on_rename, struct task_struct *task, const char *comm)
{
	struct thread *thread = followed(task->pid);

	if (thread)
		bpf_probe_read_kernel_str(thread->comm, sizeof(thread->comm), comm);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
