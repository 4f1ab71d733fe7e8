/* SPDX-License-Identifier: GPL-2.0 */
/* Which threads user space has placed, for discovery.bpf.c and asks.bpf.c, which share this map. */
#ifndef COREWISE_BOUND_H
#define COREWISE_BOUND_H

/* A placed thread: what user space calls its masks. Mirrored by `RawBound` in discovery/heirs.rs. */
struct bound {
	__u64 freed; /* when it got its own mask back; 0: not yet */
	__u32 ours;
	__u32 original; /* the same as ours: it was moved, and has its own mask */
};

/* Threads that user space has placed, and those that have inherited their masks, by tid. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, __u32);
	__type(value, struct bound);
} bound SEC(".maps");

static __always_inline bool has_own_mask(struct bound *masks)
{
	return masks->ours == masks->original;
}

#endif
