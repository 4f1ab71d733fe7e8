// SPDX-License-Identifier: GPL-2.0
/*
 * Follows the threads of applications (process trees) from the scheduler's own tracepoints.
 *
 * Problem: user space that polls /proc misses threads that live for a millisecond, and can only guess how
 * many threads were runnable between two looks. A program that runs at every switch must do next to nothing
 * there: programs that talk over a pipe switch a hundred thousand times a second.
 *
 * Approach: every followed thread carries an entry (task storage, which costs a third of looking up a
 * thread id). A thread is followed, as one of an application, when the thread that created it is; when it
 * is a new process of one in `parents` (corewise, of the command that it starts); or when its process is
 * in `adopted` while `adopt` runs (one that ran already; if corewise has started it, with all that it did
 * before). When it wakes up and when it goes to sleep, the number of runnable threads changes, which is
 * integrated over time (runnable.h); a thread that waits for a CPU is runnable, so being switched in, or out
 * by force, changes nothing and is not looked at. When it executes a program, it is counted elsewhere from
 * then on (programs.h). Times on a CPU are the scheduler's own. Ends are reported through a ring buffer, and
 * so are beginnings and programs; `list` lists the living threads.
 *
 * Wake-ups: user space is woken for the first news after a rest of WAKE_NS; it looks again by itself after
 * that time. So a program that creates a thousand threads a second costs no more wake-ups than one that
 * creates a hundred.
 *
 * Changes of the number of runnable threads are reported only on request: at once, but not within REPORT_NS
 * after the last one; user space, which maps `apps`, looks by itself at the end of that time. So an
 * application whose threads switch a hundred thousand times a second wakes user space no more often than
 * another.
 *
 * Unwatched: that programs are attached to switches and wake-ups costs each of them some 100 ns, whatever
 * they do; two processes that hand a byte to and fro lose an eighth of their time. So user space counts
 * by `changes` and detaches these two while there are very many. It sets `unwatched` then, and runs
 * `settle`; again when it has attached them. Meanwhile a thread's times are what the scheduler itself
 * adds up, its end is reported when it exits, and no thread is counted as runnable.
 *
 * What the kernel runs in the name of a process (pollers of io_uring, …) is not followed: it is no part of
 * what the program computes.
 *
 * The clock's samples (perf events of a whole PE) pass through `on_clock`, which drops the strangers'.
 *
 * Times without tearing: user space reads an entry while it changes. So the clock is a single word: while it
 * is stopped it holds its total (>= 0), while it runs it holds the total less the time of its start (< 0, as
 * no thread has run for longer than the machine is up). Adding the present to a negative word gives the
 * total, whenever it is read.
 *
 * Serialisation: the kernel holds the run queue lock of a thread at its switches and wake-ups, so the updates
 * of one entry are ordered, but for those of `adopt`, which looks at a thread from outside: the clock's word
 * is changed by compare-and-swap, and the one that changes it counts. `app` is shared by all and changed by
 * atomic operations.
 *
 * Limits: the scheduler adds the time on a CPU up when it looks at the thread, at the latest at the next
 * tick; that of one that runs just now lags behind by so much. It is complete at the thread's last switch,
 * which is when its end is reported.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "heirs.h"
#include "runnable.h"
#include "programs.h"

/* What a followed thread carries. */
struct thread {
	__s64 runnable_clock;
	__u64 generation; /* when it began to be followed, CLOCK_MONOTONIC ns */
	__u64 run_base; /* its time on a CPU by then */
	__u64 clock_base; /* what the scheduler had added up of it when it was no longer watched */
	__u32 tid;
	__u32 creator; /* 0: unknown */
	__u32 stage;
	__u32 app; /* its entry in `apps` */
	__u32 unwatched; /* whether its clock is the scheduler's, since `clock_base` */
	__u32 is_entered; /* whether that entry counts it among its threads */
};

enum stage {
	LIVES,
	ENDING, /* it will not return to user space */
	ENDED, /* its end was reported */
};

/* What is reported of a thread. Mirrored by `RawThread` in discovery/known.rs. */
struct news {
	__s64 runnable_clock;
	__u64 generation;
	__u64 run_ns;
	__u32 tid;
	__u32 tgid;
	__u32 creator;
	__u32 last_pe; /* ~0: has not run yet */
	__u32 stage;
	__u32 app;
	__u32 program; /* changes when it executes another one */
	__u32 reserved;
	char comm[16];
};

/* Mirrored by `WAKE` in discovery/bpf.rs. */
#define WAKE_NS (20 * 1000 * 1000)

/* Mirrored by `ROOTS_MAX`. */
#define ROOTS_MAX 64

/*
 * In a value of `adopted`: what the process has done since its start counts. Mirrored in discovery/bpf.rs.
 */
#define SINCE_START (1u << 31)

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

/* Processes by tgid, with the application that their new children are of, or that they are of themselves. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ROOTS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} parents SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, __u32);
	__type(value, __u32);
} adopted SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

static __always_inline struct thread *followed(struct task_struct *task)
{
	return bpf_task_storage_get(&threads, task, 0, 0);
}

static __always_inline bool set_clock(struct thread *thread, __s64 old, __s64 new)
{
	return __sync_val_compare_and_swap(&thread->runnable_clock, old, new) == old;
}

static __always_inline void becomes_runnable(struct thread *thread, __u64 now)
{
	__s64 clock = thread->runnable_clock;

	if (clock >= 0 && set_clock(thread, clock, clock - (__s64)now))
		count_runnable(thread->app, thread->tid, 1, now);
}

static __always_inline void rests(struct thread *thread, __u64 now)
{
	__s64 clock = thread->runnable_clock;

	if (clock < 0 && set_clock(thread, clock, clock + (__s64)now))
		count_runnable(thread->app, thread->tid, -1, now);
}

/*
 * Newer kernels also pass prev_state to a switch, as this field may be overwritten by a concurrent waker. It
 * is then TASK_WAKING: not 0 either, so that the answer to "does it sleep?" is the same on every kernel.
 */
static __always_inline unsigned int state_of(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return task->__state;
	return task->state;
}

/* Without the time for which it has been waiting for a CPU by now. */
static __always_inline __u64 runnable_so_far(struct task_struct *task)
{
	__u64 waited_ns = bpf_core_field_exists(task->sched_info) ? task->sched_info.run_delay : 0;

	return task->se.sum_exec_runtime + waited_ns;
}

/* The clock's word as it would be if it was watched. */
static __always_inline __s64 clock_of(struct task_struct *task, struct thread *thread)
{
	__s64 total;

	if (!thread->unwatched)
		return thread->runnable_clock;
	total = thread->runnable_clock + runnable_so_far(task) - thread->clock_base;
	return state_of(task) ? total : total - (__s64)bpf_ktime_get_ns();
}

static __always_inline __u32 pe_of(struct task_struct *task)
{
	if (bpf_core_field_exists(task->thread_info.cpu))
		return task->thread_info.cpu;
	return task->cpu;
}

static __always_inline void describe(struct news *news, struct task_struct *task, struct thread *thread)
{
	__u64 run_ns = task->se.sum_exec_runtime;

	news->runnable_clock = clock_of(task, thread);
	news->generation = thread->generation;
	news->run_ns = run_ns - thread->run_base;
	news->tid = thread->tid;
	news->tgid = task->tgid;
	news->creator = thread->creator;
	news->last_pe = run_ns ? pe_of(task) : ~0;
	news->stage = thread->stage;
	news->app = thread->app;
	news->program = task->self_exec_id;
	bpf_core_read(news->comm, sizeof(news->comm), &task->comm);
}

static __always_inline __u64 wake_flag(struct general *all, __u64 now)
{
	if (now - all->woken < WAKE_NS)
		return BPF_RB_NO_WAKEUP;
	all->woken = now;
	return BPF_RB_FORCE_WAKEUP;
}

static __always_inline bool tell(struct task_struct *task, struct thread *thread, __u64 now)
{
	struct general *all = the_general();
	struct news *news;

	if (!all)
		return 0;
	news = bpf_ringbuf_reserve(&events, sizeof(*news), 0);
	if (!news) {
		__sync_fetch_and_add(&all->events_lost, 1);
		return 0;
	}
	describe(news, task, thread);
	bpf_ringbuf_submit(news, wake_flag(all, now));
	return 1;
}

static __always_inline void enter(struct thread *thread, __u32 index)
{
	struct app *app = app_of(index);

	thread->app = index;
	thread->is_entered = 1;
	if (app)
		__sync_fetch_and_add(&app->threads, 1);
}

/* It must not be counted in its entry any more: the entry may belong to others soon. */
static __always_inline void leave(struct thread *thread)
{
	struct app *app = app_of(thread->app);

	if (app && thread->is_entered)
		__sync_fetch_and_add(&app->threads, -1);
	thread->is_entered = 0;
}

/* Where its end finds no room in the buffer, `list` tells it, if it comes in time. */
static __always_inline void end(struct task_struct *task, struct thread *thread, __u64 now)
{
	leave(thread);
	thread->stage = ENDED;
	if (!tell(task, thread, now))
		thread->stage = ENDING;
}

static __always_inline struct thread *follow(struct task_struct *task, __u32 index, __u32 creator, __u64 now)
{
	struct thread *thread = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct general *all = the_general();
	struct app *app = app_of(index);

	if (!thread || !app) {
		if (all)
			__sync_fetch_and_add(&all->threads_lost, 1);
		return 0;
	}
	thread->generation = now;
	thread->run_base = 0;
	thread->tid = task->pid;
	thread->creator = creator;
	thread->stage = LIVES;
	enter(thread, index);
	thread->unwatched = app->unwatched;
	thread->clock_base = thread->unwatched ? runnable_so_far(task) : 0;
	return thread;
}

/* It begins to be followed while it is runnable. */
static __always_inline void begin(struct thread *thread, __u64 now)
{
	if (!thread->unwatched)
		becomes_runnable(thread, now);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct thread *thread;
	__u64 now;

	/* The idle task has the tid 0. */
	if (!prev->pid || preempt || !state_of(prev))
		return 0;
	thread = followed(prev);
	if (!thread)
		return 0;
	now = bpf_ktime_get_ns();
	rests(thread, now);
	if (state_of(prev) & TASK_DEAD && thread->stage != ENDED)
		end(prev, thread, now);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
	struct thread *thread = followed(task);

	if (thread)
		becomes_runnable(thread, bpf_ktime_get_ns());
	return 0;
}

/* The new thread is woken up next. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *creator, struct task_struct *child)
{
	struct thread *thread = followed(creator);
	__u32 tgid = creator->tgid;
	__u32 index, *parent;
	__u64 now;

	if (child->flags & KERNELS)
		return 0;
	if (thread) {
		index = thread->app;
	} else {
		parent = bpf_map_lookup_elem(&parents, &tgid);
		if (!parent || child->tgid == tgid)
			return 0;
		index = *parent;
	}
	now = bpf_ktime_get_ns();
	thread = follow(child, index, creator->pid, now);
	if (!thread)
		return 0;
	begin(thread, now);
	inherit(child, creator, now);
	tell(child, thread, now);
	return 0;
}

/* When a thread that is not the leader calls exec, it takes over the leader's id (which has ended by then).
 * To the observer one thread ends and another begins. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, int old_tid, struct linux_binprm *binary)
{
	struct thread *thread = followed(task);
	__u64 now = bpf_ktime_get_ns();
	__u32 index, before;

	if (!thread)
		return 0;
	before = thread->app;
	index = entry_of_program(binary, task, before, now);
	if (old_tid == task->pid) {
		execute(task, old_tid, thread->generation, now);
		if (index != before) {
			rests(thread, now);
			leave(thread);
			enter(thread, index);
			leave_place(index);
			begin(thread, now);
		}
	} else {
		rests(thread, now);
		end(task, thread, now);
		thread = follow(task, index, old_tid, now);
		if (index != before)
			leave_place(index);
		if (!thread)
			return 0;
		thread->run_base = task->se.sum_exec_runtime;
		thread->runnable_clock = 0;
		begin(thread, now);
		execute(task, old_tid, now, now);
	}
	tell(task, thread, now);
	return 0;
}

/* Since Linux 6.10: a bound thread is about to execute a program, which takes some 100 us from here. */
SEC("?tp_btf/sched_prepare_exec")
int BPF_PROG(on_prepare_exec, struct task_struct *task)
{
	struct thread *thread = followed(task);

	if (thread)
		execute(task, task->pid, thread->generation, bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	struct thread *thread = followed(task);

	if (!thread)
		return 0;
	forget(task);
	thread->stage = ENDING;
	/* Nobody looks when it runs for the last time. */
	if (thread->unwatched)
		end(task, thread, bpf_ktime_get_ns());
	return 0;
}

/* Whether a sample of the clock is kept. */
SEC("perf_event")
int on_clock(void *context)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread = followed(task);

	return thread && thread->stage == LIVES;
}

/* Follows every thread of the processes in `adopted` that is not followed yet. */
SEC("iter/task")
int adopt(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct thread *thread;
	__u32 tgid, *index;
	__u64 now;

	if (!task)
		return 0;
	tgid = task->tgid;
	index = bpf_map_lookup_elem(&adopted, &tgid);
	if (!index || state_of(task) & TASK_DEAD || task->flags & KERNELS || followed(task))
		return 0;
	now = bpf_ktime_get_ns();
	thread = follow(task, *index & ~SINCE_START, 0, now);
	if (!thread)
		return 0;
	if (*index & SINCE_START) {
		thread->creator = BPF_CORE_READ(task, real_parent, tgid);
		thread->runnable_clock = runnable_so_far(task);
	} else {
		thread->run_base = task->se.sum_exec_runtime;
	}
	if (thread->unwatched)
		return 0;
	/* It may go to sleep between the look and the note; then it has not been counted when it did. */
	if (!state_of(task))
		becomes_runnable(thread, now);
	if (state_of(task))
		rests(thread, bpf_ktime_get_ns());
	return 0;
}

/* Makes the clock of every followed thread the scheduler's, or again its own, as its application says. */
SEC("iter/task")
int settle(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct thread *thread;
	struct app *app;
	__s64 meanwhile, clock;
	__u64 now;

	if (!task)
		return 0;
	thread = followed(task);
	app = thread && thread->stage != ENDED ? app_of(thread->app) : 0;
	if (!app || !thread->unwatched == !app->unwatched)
		return 0;
	now = bpf_ktime_get_ns();
	if (app->unwatched) {
		rests(thread, now);
		thread->clock_base = runnable_so_far(task);
		thread->unwatched = 1;
		return 0;
	}
	meanwhile = runnable_so_far(task) - thread->clock_base;
	thread->unwatched = 0;
	for (int i = 0; i < ATTEMPTS; i++) {
		clock = thread->runnable_clock;
		if (set_clock(thread, clock, clock + meanwhile))
			break;
	}
	if (!state_of(task))
		becomes_runnable(thread, now);
	if (state_of(task))
		rests(thread, bpf_ktime_get_ns());
	return 0;
}

/* Tells of every followed thread. */
SEC("iter/task")
int list(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct news news = {};
	struct thread *thread;

	if (!task)
		return 0;
	thread = followed(task);
	if (!thread || thread->stage == ENDED)
		return 0;
	if (thread->stage == ENDING && state_of(task) & TASK_DEAD)
		thread->stage = ENDED;
	describe(&news, task, thread);
	bpf_seq_write(context->meta->seq, &news, sizeof(news));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
