//! The command on real threads of this machine.

mod common;
mod replay;
mod run;
mod terminal;
