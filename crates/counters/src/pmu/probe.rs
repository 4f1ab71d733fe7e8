//! Whether hardware counters can be used here, found out by using them.
//!
//! That a kernel shows a PMU says little: a virtual machine may accept events that never count, the NMI
//! watchdog and other tools hold counters, permissions differ. So every kind of core counts a thread of
//! corewise itself for a moment, on a PE of that kind, and how many counters a group may use is what worked.

use super::detect::{DetectError, Kind, detect};
use super::files::{Event, EventCode, EventFileError, Metric, events_table, override_dirs};
use super::group::{Encoded, Group, bind_self, pack};
use super::pfm::{PfmError, encode};
use super::tally::Layout;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Why hardware counters are not used, in words for the report.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// An event file is wrong.
    #[error(transparent)]
    Files(#[from] EventFileError),
    /// The machine has no PMU, or none that is known.
    #[error(transparent)]
    Detect(#[from] DetectError),
    /// An event has no encoding.
    #[error(transparent)]
    Pfm(#[from] PfmError),
    /// The kernel forbids it.
    #[error(
        "counting is not permitted ({error}; kernel.perf_event_paranoid is {paranoid}; 2 or less or \
         CAP_PERFMON would permit it, unless a container's seccomp filter forbids it)"
    )]
    Denied {
        /// The value of `/proc/sys/kernel/perf_event_paranoid`.
        paranoid: String,
        /// The system's answer.
        error: io::Error,
    },
    /// Cycles cannot be counted.
    #[error("the PMU {device} refuses the event `{event}`: {error}")]
    Refused {
        /// The PMU's device.
        device: String,
        /// The event's name in its file.
        event: String,
        /// The system's answer.
        error: io::Error,
    },
    /// Events are accepted and never count.
    #[error("the PMU {device} accepts events but does not count (usual in virtual machines)")]
    Silent {
        /// The PMU's device.
        device: String,
    },
    /// No thread for the trial.
    #[error("no trial on the PMU {device} was possible: {error}")]
    Trial {
        /// The PMU's device.
        device: String,
        /// The system's answer.
        error: io::Error,
    },
}

/// Counters that were tried and work.
#[derive(Debug, Clone, PartialEq)]
pub struct Ready {
    /// Per kind of core.
    pub(super) kinds: Vec<ReadyKind>,
    /// Whether what the kernel does for a thread is left out.
    pub user_only: bool,
    /// What works less well than it should, in words.
    pub notes: Vec<String>,
}

/// One kind of core that counts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReadyKind {
    pub layout: Layout,
    /// The events of each group of the layout, for the kernel.
    pub encoded: Vec<Vec<Encoded>>,
}

impl Ready {
    /// Tries what the event files in force say of the machine under `root`.
    pub fn available(root: &Path) -> Result<Self, Reason> {
        let files = events_table(&override_dirs(root))?;
        Self::probe(root, detect(root, &files)?)
    }

    /// Tries these kinds of core: with the kernel's work counted if that is permitted, else without.
    pub fn probe(root: &Path, kinds: Vec<Kind>) -> Result<Self, Reason> {
        match Self::probe_as(root, &kinds, false) {
            Err(Reason::Denied { .. }) => Self::probe_as(root, &kinds, true),
            other => other,
        }
    }

    fn probe_as(root: &Path, kinds: &[Kind], user_only: bool) -> Result<Self, Reason> {
        let mut ready = Self { kinds: Vec::new(), user_only, notes: Vec::new() };
        let mut no_trial = None;
        for kind in kinds {
            let trial = Trial { root, kind, user_only, single_group: kinds.len() > 1 };
            match trial.on_a_pe_of_the_kind() {
                Ok((done, notes)) => {
                    ready.kinds.push(done);
                    ready.notes.extend(notes);
                }
                // A cpuset may exclude all PEs of a kind; its threads are then not to be counted there.
                Err(reason @ Reason::Trial { .. }) => {
                    ready.notes.push(reason.to_string());
                    no_trial = Some(reason);
                }
                Err(reason) => return Err(reason),
            }
        }
        match no_trial {
            Some(reason) if ready.kinds.is_empty() => Err(reason),
            _ => Ok(ready),
        }
    }

    /// Whether every kind of core has a formula for this metric.
    pub fn gives(&self, metric: Metric) -> bool {
        self.kinds.iter().all(|kind| {
            let counted = |event: &usize| kind.layout.groups.iter().flatten().any(|known| known == event);
            let events = 0..kind.layout.file.events.len();
            let formula = kind.layout.file.formulas.get(&metric);
            formula.is_some_and(|f| events.clone().filter(|e| f.formula.needs(*e)).all(|e| counted(&e)))
        })
    }

    /// The event files in use: `amd_fam15h`, `intel_golden_cove+intel_gracemont`.
    pub fn files(&self) -> String {
        self.kinds.iter().map(|kind| &*kind.layout.file.name).collect::<Vec<_>>().join("+")
    }

    /// Descriptors per watched thread.
    pub fn descriptors_per_thread(&self) -> usize {
        self.kinds.iter().flat_map(|kind| &kind.encoded).map(Vec::len).sum()
    }
}

/// How long a trial group counts. The kernel schedules it at once or not at all.
const TRIAL: Duration = Duration::from_millis(1);

struct Trial<'a> {
    root: &'a Path,
    kind: &'a Kind,
    user_only: bool,
    /// With several kinds of core each has one group; [`super::tally`] says why.
    single_group: bool,
}

impl Trial<'_> {
    fn on_a_pe_of_the_kind(&self) -> Result<(ReadyKind, Vec<String>), Reason> {
        let failed = |error| Reason::Trial { device: self.kind.device.clone(), error };
        std::thread::scope(|scope| {
            let run = || {
                if !self.kind.pes.is_empty() {
                    bind_self(&self.kind.pes).map_err(failed)?;
                }
                self.run()
            };
            let thread = std::thread::Builder::new().spawn_scoped(scope, run).map_err(failed)?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn run(&self) -> Result<(ReadyKind, Vec<String>), Reason> {
        let mut notes = Vec::new();
        let (events, encoded) = self.accepted(&mut notes)?;
        let file = &self.kind.file;
        let takes: Vec<u32> = events.iter().map(|event| file.events[*event].takes).collect();
        for counters in (1..=file.counters).rev() {
            let mut groups = pack(&takes, counters);
            let dropped = groups.split_off(if self.single_group { 1 } else { groups.len() });
            let pick =
                |group: &Vec<usize>| group.iter().map(|position| encoded[*position]).collect::<Vec<_>>();
            let codes: Vec<_> = groups.iter().map(pick).collect();
            if codes.iter().enumerate().all(|(number, group)| self.counts(group, number == 0)) {
                let name = |position: &usize| file.events[events[*position]].name.as_str();
                let names: Vec<_> = dropped.iter().flatten().map(name).collect();
                if !names.is_empty() {
                    notes.push(format!(
                        "{}: {} not counted, the counters do not suffice",
                        file.name,
                        names.join(", ")
                    ));
                }
                let positions = groups.iter().map(|group| group.iter().map(|p| events[*p]).collect());
                let layout = Layout { file: file.clone(), groups: positions.collect() };
                return Ok((ReadyKind { layout, encoded: codes }, notes));
            }
        }
        Err(Reason::Silent { device: self.kind.device.clone() })
    }

    /// The positions of the file's events that the kernel takes one by one, and their codes.
    fn accepted(&self, notes: &mut Vec<String>) -> Result<(Vec<usize>, Vec<Encoded>), Reason> {
        let file = &self.kind.file;
        let (mut events, mut codes) = (Vec::new(), Vec::new());
        for (position, event) in file.events.iter().enumerate() {
            let code = self.encode(event)?;
            match Group::open(0, &[code], self.user_only) {
                Ok(_) => {
                    events.push(position);
                    codes.push(code);
                }
                Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => {
                    let path = self.root.join("proc/sys/kernel/perf_event_paranoid");
                    let paranoid = std::fs::read_to_string(path).unwrap_or_else(|_| "unknown".into());
                    return Err(Reason::Denied { paranoid: paranoid.trim().into(), error });
                }
                Err(error) if file.formulas[&Metric::Cycles].formula.needs(position) => {
                    let (device, event) = (self.kind.device.clone(), event.name.clone());
                    return Err(Reason::Refused { device, event, error });
                }
                Err(error) => notes.push(format!("{}: event {} refused: {error}", file.name, event.name)),
            }
        }
        Ok((events, codes))
    }

    fn encode(&self, event: &Event) -> Result<Encoded, Reason> {
        Ok(match &event.code {
            EventCode::Pfm(name) => encode(self.kind.file.pmu.as_deref().unwrap_or_default(), name)?,
            EventCode::Raw { config, .. } => {
                Encoded { perf_type: self.kind.perf_type, config: *config, config1: 0, config2: 0 }
            }
        })
    }

    /// Whether a group of these events counts on the calling thread. The file's first event, which stands in
    /// the first group, counts cycles: it must have happened.
    fn counts(&self, group: &[Encoded], holds_cycles: bool) -> bool {
        let Ok(opened) = Group::open(0, group, self.user_only) else { return false };
        let start = Instant::now();
        while start.elapsed() < TRIAL {
            std::hint::spin_loop();
        }
        let Ok(Some(read)) = opened.read() else { return false };
        read.running_ns > 0 && (read.counts[0] > 0 || !holds_cycles)
    }
}
