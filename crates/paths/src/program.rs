//! What stitching needs to know of a program's code.

use crate::window::Location;
use corewise_core::code::Instruction;

/// A function of a module, from its symbols or, if it is stripped, from its unwind table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its linker name; `None` if the module has been stripped.
    pub name: Option<String>,
    /// Address as linked of its first instruction.
    pub start: u64,
    /// The first address after it.
    pub end: u64,
}

/// The code of a recording's modules.
pub trait Program {
    /// Returns the instruction at a location; `None` if there is none or the file cannot be read.
    fn instruction(&self, at: Location) -> Option<Instruction>;

    /// Returns the function at a location. Locations outside functions (the linkage table) have none.
    fn function(&self, at: Location) -> Option<&Function>;
}
