//! Permission to change what does not belong to corewise.

/// See the module. It can only be created in this crate, where every change is written down before it is
/// made: by the actuators, the guardian, and the recovery at startup.
#[derive(Debug)]
pub struct ActToken(());

impl ActToken {
    pub(crate) fn mint() -> Self {
        Self(())
    }
}
