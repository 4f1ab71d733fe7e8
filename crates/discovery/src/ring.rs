//! Rings of notices that BPF programs write.

use super::error::{DiscoveryError, bpf_error};
use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use std::sync::mpsc::{Receiver, channel};

/// Creates a ring whose entries are plain data of the kernel's layout, and where they arrive.
pub fn of<T: Copy + 'static>(
    entries: &MapHandle,
) -> Result<(RingBuffer<'static>, Receiver<T>), DiscoveryError> {
    let (sender, inbox) = channel();
    let mut builder = RingBufferBuilder::new();
    let take = move |bytes: &[u8]| {
        assert_eq!(bytes.len(), size_of::<T>(), "the BPF programs and their user disagree on notices");
        // SAFETY: T is plain data and `bytes` has its size.
        // It is in vain only while everything ends.
        let _ = sender.send(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() });
        0
    };
    builder.add(entries, take).map_err(bpf_error)?;
    Ok((builder.build().map_err(bpf_error)?, inbox))
}

/// Creates a ring that is only used to wake.
pub fn unread(changes: &MapHandle) -> Result<RingBuffer<'static>, DiscoveryError> {
    let mut builder = RingBufferBuilder::new();
    builder.add(changes, |_| 0).map_err(bpf_error)?;
    builder.build().map_err(bpf_error)
}
