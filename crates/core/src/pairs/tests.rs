use super::*;
use crate::comparison::{Completion, Executor, Made, Run};
use crate::cpuset::CpuSet;
use crate::ids::PeId;
use crate::random::Random;
use crate::time::Time;

/// A machine on which programs slow each other down by a product, with noise.
struct Machine {
    plan: Plan,
    random: Random,
    noise: f64,
    runs: usize,
    /// Interrupts after so many runs.
    patience: usize,
}

impl Executor for Machine {
    type Error = std::convert::Infallible;

    fn now(&self) -> Time {
        Time(0)
    }

    fn run(&mut self, variant: usize) -> Result<Made, Self::Error> {
        if self.runs == self.patience {
            return Ok(Made::Interrupted);
        }
        self.runs += 1;
        // Every seventh time the machine is suspended.
        if self.runs.is_multiple_of(7) {
            return Ok(Made::StoodStill(std::time::Duration::from_secs(2)));
        }
        let mut time = |program: usize, beside: Option<usize>| {
            let slowdown = beside.map_or(1.0, |beside| slowdown(program, beside));
            (1.0 + program as f64) * slowdown * (1.0 + self.noise * self.random.normal())
        };
        let seconds = match self.plan.subjects()[variant] {
            Subject::Alone(a) => vec![time(a, None)],
            Subject::Pair(a, b) => vec![time(a, Some(b)), time(b, Some(a))],
        };
        let completion = |seconds| Completion { application: String::new(), seconds, times: 2 };
        let completions = seconds.into_iter().map(completion).collect();
        Ok(Made::Run(Run { completions, ..Run::default() }))
    }
}

fn slowdown(program: usize, beside: usize) -> f64 {
    (0.1 * (1.0 + (program % 4) as f64) * (1.0 + (beside % 3) as f64) / 2.0).exp()
}

fn machine(programs: usize, noise: f64) -> Machine {
    let program = |index: usize| Program { name: format!("p{index}"), command: vec!["true".to_owned()] };
    let plan = Plan {
        programs: (0..programs).map(program).collect(),
        pes: [PeId(0), PeId(1)],
        runs: 3,
        seed: 1,
        every: false,
        timeout_seconds: None,
    };
    Machine { plan, random: Random::new(3, 0), noise, runs: 0, patience: usize::MAX }
}

fn conducted(machine: &mut Machine, records: &mut Vec<Record>) -> Ending {
    let plan = machine.plan.clone();
    conduct(machine, &plan, records, &mut |_| true).unwrap()
}

#[test]
fn few_programs_are_measured_in_all_pairs() {
    let mut machine = machine(3, 0.001);
    let mut records = Vec::new();
    assert_eq!(conducted(&mut machine, &mut records), Ending::Complete);
    assert_eq!(records.len(), 3 * (3 + 6));
    let found = findings(&machine.plan, &records);
    assert_eq!(found.pairs.len(), 6);
    for pair in &found.pairs {
        let expected = [slowdown(pair.a, pair.b), slowdown(pair.b, pair.a)];
        for (found, expected) in pair.slowdowns.iter().zip(expected) {
            assert!((found.value / expected - 1.0).abs() < 0.01, "{pair:?}");
        }
        let gain = 1.0 / expected[0] + 1.0 / expected[1] - 1.0;
        assert!((pair.gain.value - gain).abs() < 0.02 && pair.gain.low < pair.gain.high, "{pair:?}");
    }
}

#[test]
fn what_the_model_knows_is_predicted_and_not_measured() {
    let mut machine = machine(9, 0.02);
    let mut records = Vec::new();
    assert_eq!(conducted(&mut machine, &mut records), Ending::Complete);
    let found = findings(&machine.plan, &records);
    let measured = found.pairs.iter().filter(|pair| pair.measured).count();
    assert!(found.pairs.len() == 45 && (9..40).contains(&measured), "{measured} of 45");
    let errors = found
        .pairs
        .iter()
        .filter(|pair| !pair.measured)
        .map(|pair| (pair.slowdowns[0].value / slowdown(pair.a, pair.b) - 1.0).abs());
    let errors: Vec<f64> = errors.collect();
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    assert!(mean < 0.06, "{mean} with {measured} of 45");
    machine.plan.every = true;
    conducted(&mut machine, &mut records);
    assert!(findings(&machine.plan, &records).pairs.iter().all(|pair| pair.measured));
}

#[test]
fn what_was_interrupted_goes_on_where_it_was() {
    let mut whole = Vec::new();
    conducted(&mut machine(3, 0.0), &mut whole);
    let mut stopped = machine(3, 0.0);
    stopped.patience = 11;
    let mut records = Vec::new();
    assert_eq!(conducted(&mut stopped, &mut records), Ending::Interrupted);
    stopped.patience = usize::MAX;
    assert_eq!(conducted(&mut stopped, &mut records), Ending::Complete);
    assert_eq!(records, whole);
    assert!(records.iter().all(|record| stopped.plan.is_of_plan(record)));
    let foreign = Record { subject: Subject::Pair(0, 9), seconds: vec![1.0, 1.0] };
    assert!(!stopped.plan.is_of_plan(&foreign));
}

#[test]
fn programs_of_a_pair_are_bound_and_restarted() {
    let plan = machine(2, 0.0).plan.comparison().unwrap();
    let [alone, _, pair, ..] = plan.variants.as_slice() else { panic!("alone, then pairs") };
    assert_eq!((alone.workload.completions, pair.workload.completions), (COMPLETIONS, COMPLETIONS));
    let pes: Vec<_> = pair.workload.applications.iter().map(|one| one.pes.clone().unwrap()).collect();
    assert_eq!(pes, [CpuSet::single(PeId(0)), CpuSet::single(PeId(1))]);
    assert_eq!(plan.variants.len(), 2 + 3);
}
