//! The command on real threads of this machine.

mod announced;
mod applications;
mod asks;
mod attach;
mod common;
mod contract;
mod daemon;
mod exec;
mod faults;
mod groups;
mod guard;
mod heirs;
mod hints;
mod judged;
mod metrics;
mod progress;
mod quota;
mod replay;
mod restored;
mod run;
mod slow;
mod still;
mod teams;
mod terminal;
mod top;
mod waits;
