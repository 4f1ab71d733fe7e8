//! Which parts of an ELF file are loaded, and where.

/// A part of the file that is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub address: u64,
    pub offset: u64,
    /// Bytes in the file; memory behind them is zero.
    pub length: u64,
    /// Bytes in memory.
    pub size: u64,
    pub is_code: bool,
    pub is_writable: bool,
}

/// Which byte of a file is loaded where.
#[derive(Debug)]
pub struct Segments(pub(super) Vec<Segment>);

impl Segments {
    /// The address as linked of a byte of the file; `None` if it is not loaded.
    pub fn address(&self, offset: u64) -> Option<u64> {
        self.0.iter().find_map(|segment| {
            let distance =
                offset.checked_sub(segment.offset).filter(|&distance| distance < segment.length)?;
            segment.address.checked_add(distance)
        })
    }

    /// Where in the file the byte at an address as linked lies; `None` if it is in none of the file.
    pub fn offset(&self, address: u64) -> Option<u64> {
        self.0.iter().find_map(|segment| {
            let distance =
                address.checked_sub(segment.address).filter(|&distance| distance < segment.length)?;
            segment.offset.checked_add(distance)
        })
    }
}
