/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How many threads of each application are runnable, integrated over time, for discovery.bpf.c.
 *
 * Each application has an entry in `apps`, and so may have each program that was executed in it (programs.h):
 * its threads are counted in the entry that `into` names. User space changes `into` once it knows to which
 * application a program belongs, and carries over what was counted before; so the count of an entry may be
 * below 0 for a moment.
 */
#ifndef COREWISE_RUNNABLE_H
#define COREWISE_RUNNABLE_H

/* `COALESCED_WITHIN` of corewise_core::observe. */
#define REPORT_NS (2 * 1000 * 1000)

/* Mirrored by `APPS_MAX`. */
#define APPS_MAX 1024

/* The longest path of a program by which it is recognised. Mirrored by `PATH_BYTES`. */
#define PATH_BYTES 60

/*
 * The number of runnable threads and the time since when it has been so stand in one word, so that both
 * change at once without a lock. The time is that since `app.start` in units of 64 ns: after 52 days it
 * stands still. Mirrored in discovery/apps.rs.
 */
#define COUNT_BITS 18
#define COUNT_MASK ((1 << COUNT_BITS) - 1)
#define TIME_SHIFT 6

/*
 * One try fails when another CPU came first. The verifier walks through every try anew, at each place: with
 * 64 of them it took 80 ms to load the programs.
 */
#define ATTEMPTS 4

/* Mirrored by `RawApp`. */
struct app {
	__u64 present; /* the number of runnable threads, and up to when the integrals hold */
	__u64 start;
	__u64 runnable_xor; /* the tids of the runnable threads: of a single one it is the tid */
	__u64 runnable_thread_ns;
	__u64 active_ns;
	__u64 sequential_ns;
	__u64 reported; /* when the number of runnable threads was reported last, */
	__u32 reported_runnable; /* and what it was then */
	__u32 asked; /* whether user space wants reports of it */
	__u32 runnable_max;
	__u32 changes; /* of the number of runnable threads; some may be lost. Never reset */
	__u32 unwatched; /* whether nobody looks at switches and wake-ups */
	__u32 into; /* the entry in which its threads are counted: usually itself */
	__u32 threads; /* that carry this entry */
	__u32 lent; /* entries with threads that are counted here */
	__u32 executor; /* of a program: the entry in which the thread that executed it was counted, */
	__u32 tgid; /* its process; 0: the entry is free, */
	__u32 parent; /* that one's parent, */
	char path[PATH_BYTES]; /* and what was executed */
};

/* Mirrored by `RawGeneral`. */
struct general {
	__u64 woken; /* when user space was woken last */
	__u64 threads_lost;
	__u64 events_lost;
	__u64 programs_lost; /* programs for which there was no entry */
	__u32 by_program; /* whether programs have entries of their own */
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, APPS_MAX);
	__type(key, __u32);
	__type(value, struct app);
} apps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct general);
} general SEC(".maps");

/* Tells that some application has another number of runnable threads: its index. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 12);
} changes SEC(".maps");

static __always_inline struct app *app_of(__u32 index)
{
	return bpf_map_lookup_elem(&apps, &index);
}

static __always_inline struct general *the_general(void)
{
	__u32 only = 0;

	return bpf_map_lookup_elem(&general, &only);
}

/* It may be below 0. */
static __always_inline __s32 count_of(__u64 present)
{
	return (__s32)((__u32)present << (32 - COUNT_BITS)) >> (32 - COUNT_BITS);
}

/* The most runnable threads at once, if these are. */
static __always_inline void note_runnable(struct app *app, __s32 runnable)
{
	__u32 most = app->runnable_max, seen;

	for (int i = 0; i < ATTEMPTS && runnable > (__s32)most; i++) {
		seen = __sync_val_compare_and_swap(&app->runnable_max, most, runnable);
		if (seen == most)
			return;
		most = seen;
	}
}

static __always_inline void report_runnable(struct app *app, __u32 index, __u32 runnable, __u64 now)
{
	__u64 reported = app->reported;

	if (runnable == app->reported_runnable || now - reported < REPORT_NS)
		return;
	if (__sync_val_compare_and_swap(&app->reported, reported, now) != reported)
		return;
	app->reported_runnable = runnable;
	bpf_ringbuf_output(&changes, &index, sizeof(index), BPF_RB_FORCE_WAKEUP);
}

/*
 * One more or less thread of an entry is runnable. The CPU that changes the number accounts for the time
 * since the change before. Mirrored by `Apps::count`.
 */
static __always_inline void count_runnable(__u32 entry, __u32 tid, int change, __u64 now)
{
	struct app *app = app_of(entry);
	__u64 old, seen, since, until, elapsed_ns = 0;
	bool counted = 0;
	__s32 runnable = 0;
	__u32 index;

	if (!app)
		return;
	index = app->into;
	app = app_of(index);
	if (!app)
		return;
	old = app->present;
	for (int i = 0; i < ATTEMPTS && !counted; i++) {
		since = old >> COUNT_BITS;
		runnable = count_of(old);
		/* Another CPU may have come first with a later time; then this change takes effect at that time. */
		until = (now - app->start) >> TIME_SHIFT;
		if (until < since)
			until = since;
		seen = __sync_val_compare_and_swap(&app->present, old,
						   until << COUNT_BITS | ((runnable + change) & COUNT_MASK));
		counted = seen == old;
		old = seen;
		if (counted)
			elapsed_ns = (until - since) << TIME_SHIFT;
	}
	/* Else the number alone: the next change accounts for the time since the change before. */
	if (!counted)
		runnable = count_of(__sync_fetch_and_add(&app->present, change));
	if (runnable > 0) {
		__sync_fetch_and_add(&app->runnable_thread_ns, elapsed_ns * (__u32)runnable);
		__sync_fetch_and_add(&app->active_ns, elapsed_ns);
	}
	if (runnable == 1)
		__sync_fetch_and_add(&app->sequential_ns, elapsed_ns);
	__sync_fetch_and_xor(&app->runnable_xor, tid);
	app->changes++;
	note_runnable(app, runnable + change);
	if (app->asked)
		report_runnable(app, index, runnable + change, now);
}

#endif
