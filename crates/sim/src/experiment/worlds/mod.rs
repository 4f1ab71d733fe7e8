//! Claims and policies judged in all plausible worlds instead of one.
//!
//! Problem: a paper does not state everything that its result depends on: where memory lies, what a conflict
//! over a unit costs, how its system moves threads. A simulation has to choose, and a claim that stands or
//! falls with the choice is neither supported nor refuted by it. Approach: an experiment states each such
//! parameter with its plausible range and the source of that range ([`parameter`]); what the paper states
//! stays fixed. A world is one value of each, drawn by Latin hypercube ([`hypercube`]): the same worlds for
//! all variants, each with its own seeds. In each world a claim holds or does not, by the means over its
//! seeds ([`outcome`]). The share of worlds in which it does is the result ([`standing`]): it *holds* (80 %
//! or more), *does not hold* (20 % or less), or *depends*; then on which parameters ([`influence`]), and
//! under which condition it holds ([`split`]). The same worlds judge policies ([`policies`]). Sources: M.
//! McKay, R. Beckman, W. Conover, "A comparison of three methods for selecting values of input variables",
//! Technometrics 21, 1979; A. Saltelli et al., "Global Sensitivity Analysis: The Primer", 2008. Limits: a
//! range is a judgement, and so is that all of it is equally likely; parameters are drawn independently of
//! each other; what the model has no parameter for is the same in all worlds. With few seeds a world is also
//! a matter of chance, which draws shares towards the middle.

pub mod finished;
pub mod hypercube;
pub mod influence;
pub mod outcome;
pub mod parameter;
pub mod policies;
pub mod split;
pub mod standing;

use corewise_core::policy::PolicySpec;
use parameter::{Draw, Parameter};
use toml::Table;

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct WorldsRequest {
    /// The number of worlds.
    pub count: u32,
    /// The seed of the draws.
    pub seed: u64,
    /// Seeds of each scenario in each world.
    pub runs: u32,
    /// Policies that are judged beside the experiment's variants.
    pub policies: Vec<PolicySpec>,
}

/// Worlds that are ready to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Worlds {
    /// What was asked for.
    pub request: WorldsRequest,
    /// What the paper leaves open.
    pub parameters: Vec<Parameter>,
    /// The draws: `[world][parameter]`.
    pub draws: Vec<Vec<Draw>>,
}

impl Worlds {
    /// Draws worlds.
    pub fn new(request: WorldsRequest, parameters: Vec<Parameter>) -> Self {
        let draws = hypercube::draw(&parameters, request.count as usize, request.seed);
        Self { request, parameters, draws }
    }

    /// Sets the values of a world in a scenario. The error names the parameter, and says what is wrong.
    pub fn apply(&self, world: usize, scenario: &mut Table) -> Result<(), (String, String)> {
        for (parameter, draw) in self.parameters.iter().zip(&self.draws[world]) {
            parameter.apply(scenario, draw).map_err(|problem| (parameter.name.clone(), problem))?;
        }
        Ok(())
    }

    /// Returns the first seed of a scenario in a world, if it is `first` elsewhere: each world has its own,
    /// so that all that chance does is spread over the worlds.
    pub fn first_seed(&self, world: usize, first: u64) -> u64 {
        first.wrapping_add(world as u64 * u64::from(self.request.runs))
    }
}

#[cfg(test)]
mod tests;
