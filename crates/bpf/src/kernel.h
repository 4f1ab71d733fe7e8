/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The few kernel types that our BPF programs touch, instead of a generated vmlinux.h of 100,000 lines.
 * Fields are found by name when the program is loaded (CO-RE), so neither their order nor their offsets
 * matter here.
 */
#ifndef COREWISE_KERNEL_H
#define COREWISE_KERNEL_H

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_QUEUE = 22,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum {
	BPF_ANY = 0,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1024,
};

enum {
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
};

/*
 * Flags of what the kernel runs, by itself or in the name of a process: its own threads, workers and pollers
 * of io_uring, those of vhost and KVM. Mirrored by `KERNELS` of corewise_sys::proc.
 */
#define KERNELS (0x00200000 | 0x00000010 | 0x00004000)

/* A bit of a task's state: it has run for the last time. */
#define TASK_DEAD 0x80

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sched_entity {
	__u64 sum_exec_runtime;
};

typedef struct {
	int counter;
} atomic_t;

struct sched_info {
	unsigned long long run_delay; /* ns for which it waited for a PE */
};

struct signal_struct {
	atomic_t live; /* threads that have not ended */
};

union fpregs_state {
	__u8 __padding[4096];
};

struct fpstate {
	unsigned int size;
	union fpregs_state regs;
};

struct fpu {
	struct fpstate *fpstate;
};

struct thread_struct {
	unsigned long fsbase;
	unsigned long gsbase;
	struct fpu fpu;
};

struct thread_info {
	__u32 cpu;
};

struct task_struct {
	struct thread_info thread_info; /* holds the CPU */
	unsigned int cpu; /* before Linux 5.16 */
	volatile long state; /* before Linux 5.14 */
	int pid;
	int tgid;
	unsigned int __state;
	unsigned int flags;
	int on_cpu;
	struct sched_entity se;
	struct sched_info sched_info;
	struct task_struct *real_parent;
	struct signal_struct *signal;
	struct mm_struct *mm; /* none of a thread of the kernel */
	struct thread_struct thread;
	__u64 self_exec_id;
	char comm[16];
};

/* What a thread asks of the scheduler. */
struct sched_attr {
	__u32 sched_policy;
};

/* What a process is about to execute. */
struct linux_binprm {
	const char *filename;
};

#pragma clang attribute pop

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#endif
