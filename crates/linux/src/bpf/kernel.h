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
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_ANY = 0,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1024,
};

struct bpf_spin_lock {
	__u32 val;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sched_entity {
	__u64 sum_exec_runtime;
};

typedef struct {
	int counter;
} atomic_t;

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

struct task_struct {
	int pid;
	int tgid;
	unsigned int __state;
	int on_cpu;
	struct sched_entity se;
	struct signal_struct *signal;
	struct thread_struct thread;
	__u64 self_exec_id;
	char comm[16];
};

/* The name and type of the state before Linux 5.14. */
struct task_struct___before_5_14 {
	volatile long state;
};

#pragma clang attribute pop

#endif
