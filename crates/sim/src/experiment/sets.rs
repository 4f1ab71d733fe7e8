//! Randomly drawn scenarios: a number of programs at a time out of all that exist.
//!
//! The draw depends only on its seed and on the names of the programs, so it stays the same when their
//! parameters change.

use super::scenario::ScenarioSpec;
use crate::random::Random;
use serde::Deserialize;

/// What is drawn, from all programs in the `[program]` tables of the experiment's files.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetsSpec {
    /// The number of sets.
    pub count: usize,
    /// The number of different programs per set, with one application each.
    pub size: usize,
    /// The seed of the draw.
    #[serde(default = "first_seed")]
    pub seed: u64,
}

fn first_seed() -> u64 {
    1
}

impl SetsSpec {
    /// Returns the sets as scenarios `set 01`, `set 02` and so on; the programs are those of `common`. The
    /// error describes the problem.
    pub(super) fn scenarios(&self, common: &toml::Table) -> Result<Vec<ScenarioSpec>, String> {
        let programs = common.get("program").and_then(|programs| programs.as_table());
        let names: Vec<&String> = programs.into_iter().flat_map(|programs| programs.keys()).collect();
        if self.count == 0 || self.size == 0 || self.size > names.len() {
            return Err(format!(
                "there are no {} sets of {} of {} programs: have 1 or more of each, and enough [program]s",
                self.count,
                self.size,
                names.len()
            ));
        }
        let mut random = Random::new(self.seed, 0);
        let width = self.count.to_string().len();
        let set = |number: usize| {
            let mut left = names.clone();
            let mut drawn: Vec<&String> =
                (0..self.size).map(|_| left.remove(random.below(left.len()))).collect();
            drawn.sort();
            let application = |name: &String| {
                toml::Value::Table([("name".to_owned(), name.clone().into())].into_iter().collect())
            };
            let applications = toml::Value::Array(drawn.into_iter().map(application).collect());
            let with = [("application".to_owned(), applications)].into_iter().collect();
            ScenarioSpec { name: format!("set {number:0width$}"), files: Vec::new(), with }
        };
        Ok((1..=self.count).map(set).collect())
    }
}
