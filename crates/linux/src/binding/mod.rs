//! Binding threads to PEs, and what else is changed, so that nothing stays changed: the masks, the book of
//! changes, and the guardian that gives everything back should corewise die.

pub mod actuator;
pub mod affinity;
pub mod binder;
pub mod book;
pub mod frequency;
pub mod guardian;
pub mod kin;
pub mod ledger;
pub mod restore;
pub mod slots;
pub mod task;
pub mod turns;
