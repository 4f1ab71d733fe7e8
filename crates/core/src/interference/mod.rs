//! What programs cost each other: a fitted model of `slowdown(program, beside what, where, how intense)`.
//!
//! Problem: [`crate::machine_model`] predicts the cost of a neighbour from the curves of a machine profile,
//! with nothing measured of the programs. Where slowdowns of some pairs are known, from one's own runs or
//! from a published table, they say more, and must predict the pairs that nobody has measured.
//!
//! Approach: a table of slowdowns has a row for each program and a column for each *neighbour* (an injector
//! at a place). On some [`Scale`], the entry of program p and column c is
//!
//! ```text
//! base[c] + sensitivity[p] · pressure[c]        (a sum over up to three factors)
//! ```
//!
//! Sensitivities come from a standard normal distribution, pressures from one around their mean, and every
//! measurement has noise, which regularises the fit ([`fit`]). So one family holds all the forms that are
//! published:
//!
//! - *Which scale*: excess time adds up (PE shares), slowdowns multiply (the logarithm), lost progress adds
//!   up (`1 - 1/slowdown`, as in [`crate::machine_model`]), or units clash only from `Ua + Ub > 1` on
//!   (SMTcheck, HPCA 2026: a soft threshold).
//! - *How many factors*: none (each neighbour costs everybody the same), one that is the same for all
//!   columns (additive), one (sensitivity × intensity: SMTcheck, and the products by which caches are
//!   shared), two or three. One is too few where resources do not correlate: of the siblings of a core,
//!   SMiTe (MICRO'14) found units, each level of cache and bandwidth to be separate dimensions.
//! - *Where*: an injector at another place is another column, with a base and a pressure of its own that
//!   are drawn towards the mean of all. So the terms of the core and of the socket are separate, and the
//!   effect of a distance is calibrated, never taken from the topology.
//! - *How intense*: the excess over the greatest intensity saturates ([`Dose`]). Published: two, four, eight
//!   times the workers cost 9, 35, 59 %.
//!
//! Which form holds is chosen by cross-validation, never by belief ([`check`]): forms predict programs,
//! injectors, or cells that they have not seen, and the one that errs least is taken. When the model itself
//! is judged, the form is chosen anew without the part that is asked about.
//!
//! Sources: T. Moseley et al., "Methods for modeling resource contention on simultaneous multithreading
//! processors", ICCD'05, and the co-scheduling paper (CF'05, §4): a regression judged by R² and by what it
//! costs to drop a term. M. Tipping, C. Bishop, "Probabilistic principal component analysis", 1999, with
//! missing entries as in A. Ilin, T. Raiko, JMLR 11, 2010.
//!
//! Limits: it does not extrapolate to another machine. Several neighbours at once are not in it. R² flatters
//! a model of data that differ a lot: the errors are what counts.

mod check;
mod choice;
mod fit;
mod form;
mod question;
mod table;
mod terms;
#[cfg(test)]
mod tests;

pub use check::{Answer, Check, check};
pub use choice::{choose, choose_for_cells};
pub use fit::{FACTORS_MAX, Model, Pressure, Sensitivity};
pub use form::{Dose, Factors, Form, Scale};
pub use question::{Known, Question};
pub use table::{Cell, Column, Errors, Row, Table, TableError};
pub use terms::{Term, terms};
