/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Programs that followed threads execute, for discovery.bpf.c.
 *
 * A thread that executes a program leaves the application that it was counted in before it runs its first
 * instruction. Which application the program belongs to, user space finds out by its command line. Until
 * then it is counted in an entry of its own, taken from `free_apps`; when user space knows, it sets `into` of
 * that entry, and gives it back when its last thread has ended. Most programs are executed again and again:
 * those whose application follows from their path stand in `programs`, and need no entry. Where each program
 * that runs at one time is an application, there are several places, and it takes one in which nobody is.
 */
#ifndef COREWISE_PROGRAMS_H
#define COREWISE_PROGRAMS_H

/* The indices of unused entries of `apps`. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, APPS_MAX);
	__type(value, __u32);
} free_apps SEC(".maps");

/* What is executed in an application. Mirrored by `RawProgram` in discovery/entries.rs. */
struct program {
	__u32 executor;
	char path[PATH_BYTES];
};

/* Mirrored by `PLACES_MAX`. */
#define PLACES_MAX 16

/* The entries of the applications that it may belong to. Mirrored by `RawPlaces`. */
struct places {
	__u32 shared; /* whether it belongs to the first one in any case */
	__u32 count;
	__u32 entries[PLACES_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, APPS_MAX);
	__type(key, struct program);
	__type(value, struct places);
} programs SEC(".maps");

/* No other takes it before the thread has entered it: until then it counts as one of its threads. */
static __always_inline bool take_place(__u32 index, bool shared)
{
	struct app *app = app_of(index);

	if (!app)
		return 0;
	if (!shared)
		return !app->lent && __sync_val_compare_and_swap(&app->threads, 0, 1) == 0;
	__sync_fetch_and_add(&app->threads, 1);
	return 1;
}

static __always_inline void leave_place(__u32 index)
{
	struct app *app = app_of(index);

	if (app)
		__sync_fetch_and_add(&app->threads, -1);
}

/*
 * The entry of a program that a process executes, whose thread has been counted in the entry `before`. If it
 * is another one, the caller leaves the place when the thread has entered it.
 */
static __always_inline __u32 entry_of_program(struct linux_binprm *binary, struct task_struct *task,
					      __u32 before, __u64 now)
{
	struct general *all = the_general();
	struct app *app = app_of(before);
	struct program program = {};
	struct places *known;
	__u32 index = before;

	if (!all || !all->by_program || !app)
		return before;
	program.executor = app->into;
	bpf_probe_read_kernel_str(program.path, sizeof(program.path), BPF_CORE_READ(binary, filename));
	known = bpf_map_lookup_elem(&programs, &program);
	for (int i = 0; known && i < PLACES_MAX && i < known->count; i++) {
		index = known->entries[i];
		if (index == before || take_place(index, known->shared))
			return index;
	}
	if (bpf_map_pop_elem(&free_apps, &index)) {
		__sync_fetch_and_add(&all->programs_lost, 1);
		return before;
	}
	app = app_of(index);
	if (!app)
		return before;
	app->present = 0;
	app->start = now;
	app->runnable_xor = 0;
	app->runnable_thread_ns = 0;
	app->active_ns = 0;
	app->sequential_ns = 0;
	app->reported = 0;
	app->reported_runnable = 0;
	app->runnable_max = 0;
	app->into = index;
	app->threads = 1;
	app->lent = 0;
	app->executor = program.executor;
	app->tgid = task->tgid;
	app->parent = BPF_CORE_READ(task, real_parent, tgid);
	__builtin_memcpy(app->path, program.path, sizeof(program.path));
	return index;
}

#endif
