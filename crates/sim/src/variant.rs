//! The variants of a scenario: ways to schedule its applications, which are compared.

use crate::program::Waiting;
use corewise_core::policy::PolicySpec;
use corewise_core::waits::WaitChanges;
use serde::Deserialize;
use std::collections::BTreeMap;

/// One way to schedule the applications.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Its name in the results.
    pub name: String,
    /// The policy.
    pub policy: PolicySpec,
    /// What chooses at each dispatch which waiting thread runs next, such as `cosched`; the system if left
    /// out.
    pub dispatch: Option<String>,
    /// For each application's name, the PEs to which each copy is pinned, copy by copy.
    #[serde(default)]
    pub pin: BTreeMap<String, Vec<String>>,
    /// How threads wait for each other, if it overrides their applications.
    pub wait: Option<Waiting>,
    /// What corewise may change about waits, as by `corewise run --waits`.
    #[serde(default)]
    pub waits: WaitsSpec,
    /// Whether teams start with their fair share of the PEs only, as by `corewise run --adapt-team`.
    #[serde(default)]
    pub adapt_team: bool,
    /// The threads of each application, if it overrides them, as by `OMP_NUM_THREADS`.
    pub threads: Option<usize>,
    /// Whether runtime libraries report which thread is the master.
    #[serde(default, alias = "tells_master")]
    pub reports_master: bool,
}

/// What may be changed about waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitsSpec {
    /// Spin counts and turns.
    Auto,
    /// Spin counts.
    Spin,
    /// Turns.
    Turns,
    /// Nothing.
    #[default]
    Off,
}

impl WaitsSpec {
    /// Returns it as the engine's parameter.
    pub fn changes(self) -> WaitChanges {
        WaitChanges {
            spin: matches!(self, WaitsSpec::Auto | WaitsSpec::Spin),
            turns: matches!(self, WaitsSpec::Auto | WaitsSpec::Turns),
        }
    }
}

impl Variant {
    /// Returns a variant that is named by its policy.
    pub fn policy(policy: PolicySpec) -> Self {
        Self {
            name: policy.to_string(),
            policy,
            dispatch: None,
            pin: BTreeMap::new(),
            wait: None,
            waits: WaitsSpec::Off,
            adapt_team: false,
            threads: None,
            reports_master: false,
        }
    }
}
