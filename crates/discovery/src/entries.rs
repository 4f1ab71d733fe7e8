//! Which application each entry of the BPF programs counts for, and what it has counted.
//!
//! The kernel gives a program that is executed an entry of its own (`programs.h` of the crate `bpf`). Here
//! its command line is read and its application found ([`Applications`]). The first entry of an application
//! stays its main one; the threads of all others are counted there from then on, and these others go back to
//! the kernel when their threads have ended. A program whose application follows from its path needs no entry
//! the next time: that holds unless its name depends on its arguments. Of those that a shell starts, the
//! kernel takes an application in which nobody is; if there is none, the program gets an entry, and may be
//! one more.

use super::applications::{Applications, ExecutedProgram, image_of};
use super::apps::{APPS_MAX, Apps, General, PATH_BYTES, RawApp, RawGeneral};
use super::error::{DiscoveryError, bpf_error, refused};
use super::facts::Parallelism;
use super::known::RawThread;
use super::options::{Options, Root};
use super::unwatched::Estimated;
use corewise_bpf as bpf;
use corewise_bpf::monotonic_ns;
use corewise_core::ids::{AppId, ThreadId};
use corewise_core::observe::{COALESCED_WITHIN, RunnableThreads};
use corewise_core::program::{self, Image};
use corewise_sys::proc::Proc;
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

/// How long an entry rests after its application was forgotten: a thread may be about to enter it.
const RESTS: Duration = Duration::from_millis(10);

/// `ROOTS_MAX` of `discovery.bpf.c`.
const ROOTS_MAX: usize = 64;

/// `struct program` of `programs.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RawProgram {
    executor: u32,
    path: [u8; PATH_BYTES],
}

/// `PLACES_MAX` of `programs.h`.
const PLACES_MAX: usize = 16;

/// `struct places` of `programs.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RawPlaces {
    shared: u32,
    count: u32,
    entries: [u32; PLACES_MAX],
}

/// The entries in use; see the module documentation.
#[derive(Debug)]
pub(super) struct Entries {
    proc: Proc,
    apps: Apps,
    general: General,
    free: MapHandle,
    programs: MapHandle,
    applications: Applications,
    entries: HashMap<u32, Entry>,
    counted: BTreeMap<AppId, Counted>,
    /// Programs in the kernel's list, each with the application that executes it, and its own ones.
    listed: Vec<(RawProgram, AppId, Vec<AppId>)>,
    /// Entries that are to be given back, and from when on that is possible.
    leaving: Vec<(u32, Instant)>,
    is_unwatched: bool,
    /// How often a program that ran already found no entry.
    programs_lost: u64,
}

/// An entry that is in use.
#[derive(Debug)]
struct Entry {
    app: AppId,
    /// The known threads that carry it.
    threads: usize,
}

/// What is counted of an application.
#[derive(Debug)]
struct Counted {
    /// Its main entry.
    main: u32,
    /// What was counted in its other entries.
    carried: Parallelism,
    estimated: Estimated,
    /// The time for which threads were runnable that have left it.
    left_ns: u64,
    /// What was reported last, and when.
    reported: RunnableThreads,
    reported_at: Option<Instant>,
}

impl Entries {
    /// Maps the entries of a loaded object. The roots have the first ones.
    pub fn of(object: &Object, options: &Options) -> Result<Entries, DiscoveryError> {
        if options.roots.len() > ROOTS_MAX {
            return Err(refused(format!("{} applications, {ROOTS_MAX} at most", options.roots.len())));
        }
        let map = |name, size| bpf::map(object, name, size).map_err(refused);
        let mut entries = Entries {
            proc: options.proc.clone(),
            apps: Apps::map(&map("apps", size_of::<RawApp>())?).map_err(DiscoveryError::bpf)?,
            general: General::map(&map("general", size_of::<RawGeneral>())?).map_err(DiscoveryError::bpf)?,
            free: map("free_apps", size_of::<u32>())?,
            programs: map("programs", size_of::<RawPlaces>())?,
            applications: Applications::new(options.extent, &options.proc, options.named_roots()),
            entries: HashMap::new(),
            counted: BTreeMap::new(),
            listed: Vec::new(),
            leaving: Vec::new(),
            is_unwatched: false,
            programs_lost: 0,
        };
        let parents = map("parents", size_of::<u32>())?;
        for (index, root) in (0u32..).zip(&options.roots) {
            entries.apps.begin(index, monotonic_ns());
            entries.begin(index, AppId(index));
            if let Root::ChildrenOf(parent) = root {
                let (parent, index) = (parent.to_ne_bytes(), index.to_ne_bytes());
                parents.update(&parent, &index, MapFlags::ANY).map_err(bpf_error)?;
            }
        }
        for index in options.roots.len() as u32..APPS_MAX as u32 {
            entries.free.update(&[], &index.to_ne_bytes(), MapFlags::ANY).map_err(bpf_error)?;
        }
        if entries.applications.are_programs() {
            entries.general.tell_programs_apart();
        }
        Ok(entries)
    }

    /// Makes an entry the main one of an application.
    fn begin(&mut self, index: u32, app: AppId) {
        let reported = RunnableThreads { app, count: 0, only: None };
        let mut estimated = Estimated::default();
        if self.is_unwatched {
            estimated.end_window(0, Parallelism::default());
        }
        let counted = Counted {
            main: index,
            carried: Parallelism { exact: true, ..Parallelism::default() },
            estimated,
            left_ns: 0,
            reported,
            reported_at: None,
        };
        self.counted.insert(app, counted);
        self.entries.insert(index, Entry { app, threads: 0 });
    }

    /// Returns the application of a thread. `/proc` has nothing of a process in `ended`. `known` returns the
    /// applications of processes.
    pub fn app_of(
        &mut self,
        thread: &RawThread,
        ended: &HashSet<u32>,
        known: impl Fn(u32) -> Option<AppId>,
    ) -> AppId {
        if let Some(entry) = self.entries.get(&thread.app) {
            return entry.app;
        }
        let raw = self.apps.read(thread.app);
        let executor = self.entries.get(&raw.executor).map_or(AppId(0), |entry| entry.app);
        let path = text_of(&raw.path);
        let file = path.rsplit('/').next().filter(|file| !file.is_empty()).map(str::to_owned);
        let has_ended = ended.contains(&raw.tgid);
        let (name, exe) = if has_ended { (None, None) } else { image_of(&self.proc, raw.tgid) };
        let name = name.or(file.clone()).unwrap_or_else(|| text_of(&thread.comm));
        let exe = exe.or(file.is_some().then(|| path.clone()));
        let (image, starter) = (Image { name: name.clone(), exe }, known(raw.parent).unwrap_or(executor));
        let since = instant_of(raw.start);
        let app = self.applications.executed(&self.proc, (executor, starter), image, raw.tgid, since);
        self.forget();
        match self.counted.get(&app) {
            None => self.begin(thread.app, app),
            Some(counted) => {
                let main = counted.main;
                self.apps.redirect(thread.app, main);
                self.entries.insert(thread.app, Entry { app, threads: 0 });
                self.carry(thread.app);
            }
        }
        let is_known_by_path = file.as_ref() == Some(&name) && path.len() < PATH_BYTES - 1;
        let is_shared = self.applications.takes(executor, app, &name);
        if let Some(shared) = is_shared.filter(|_| is_known_by_path && !program::depends_on_arguments(&name))
        {
            self.list(RawProgram { executor: raw.executor, path: raw.path }, (executor, app), shared);
        }
        app
    }

    /// Drops what is counted of applications that are forgotten.
    fn forget(&mut self) {
        for forgotten in self.applications.take_forgotten() {
            let of_it = |by: AppId, of: &[AppId]| by == forgotten || of.contains(&forgotten);
            for (program, ..) in self.listed.iter().filter(|(_, by, of)| of_it(*by, of)) {
                // What is not there any more need not be deleted.
                let _ = self.programs.delete(bytes_of(program));
            }
            self.listed.retain(|(_, by, of)| !of_it(*by, of));
            let counted = self.counted.remove(&forgotten);
            self.leaving.extend(counted.map(|counted| (counted.main, Instant::now() + RESTS)));
        }
    }

    /// Lets the kernel count a program in the main entry of an application whenever it is executed and,
    /// unless that is `shared`, nobody is there.
    fn list(&mut self, program: RawProgram, (executor, app): (AppId, AppId), shared: bool) {
        let Some(by) = self.counted.get(&executor) else { return };
        let program = RawProgram { executor: by.main, ..program };
        let index = self.listed.iter().position(|(listed, ..)| *listed == program).unwrap_or_else(|| {
            self.listed.push((program, executor, Vec::new()));
            self.listed.len() - 1
        });
        let apps = &mut self.listed[index].2;
        if apps.len() < PLACES_MAX && !apps.contains(&app) {
            apps.push(app);
        }
        let mut places = RawPlaces { shared: shared.into(), count: 0, entries: [0; PLACES_MAX] };
        for counted in self.listed[index].2.iter().filter_map(|app| self.counted.get(app)) {
            places.entries[places.count as usize] = counted.main;
            places.count += 1;
        }
        // Without room it gets an entry each time.
        if self.programs.update(bytes_of(&program), bytes_of(&places), MapFlags::ANY).is_err() {
            self.listed.remove(index);
        }
    }

    /// Returns the entries for processes that run already, given the roots above them. `known` returns the
    /// applications of other processes.
    pub fn adopt(
        &mut self,
        below: &HashMap<u32, AppId>,
        known: impl Fn(u32) -> Option<AppId>,
    ) -> Result<HashMap<u32, u32>, DiscoveryError> {
        let found = self.applications.found(&self.proc, below, known)?;
        self.forget();
        let entry = |(pid, app)| {
            let main = self.main_of(app)?.or_else(|| self.counted.get(&below[&pid]).map(|root| root.main));
            Ok((pid, main.ok_or_else(|| refused("too many programs run at once".to_owned()))?))
        };
        found.into_iter().map(entry).collect()
    }

    /// Returns the main entry of an application, a new one if necessary; `None` if there is none left, as too
    /// many programs run at once: those are counted with the root above them.
    fn main_of(&mut self, app: AppId) -> Result<Option<u32>, DiscoveryError> {
        if let Some(counted) = self.counted.get(&app) {
            return Ok(Some(counted.main));
        }
        let unused = self.free.lookup_and_delete(&[]).map_err(bpf_error)?;
        let unused = unused.and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
        let Some(index) = unused else {
            self.programs_lost += 1;
            // Nothing will be counted there: its place is free again.
            self.applications.leave(app, Instant::now());
            return Ok(None);
        };
        self.apps.begin(index, monotonic_ns());
        self.begin(index, app);
        Ok(Some(index))
    }

    /// Takes note that a known thread carries an entry from now on.
    pub fn enter(&mut self, index: u32) {
        let Some(entry) = self.entries.get_mut(&index) else { return };
        entry.threads += 1;
        self.applications.enter(entry.app);
        let main = self.counted.get(&entry.app).map(|counted| counted.main);
        if let Some(main) = main.filter(|main| entry.threads == 1 && *main != index) {
            self.apps.lend(main, 1);
        }
    }

    /// Takes note that a known thread has left an entry, in which it was runnable for so long.
    pub fn leave(&mut self, index: u32, runnable_ns: u64) {
        let Some(entry) = self.entries.get_mut(&index) else { return };
        entry.threads = entry.threads.saturating_sub(1);
        self.applications.leave(entry.app, Instant::now());
        let counted = self.counted.get_mut(&entry.app);
        let is_main = counted.as_ref().is_some_and(|counted| counted.main == index);
        counted.into_iter().for_each(|counted| counted.left_ns += runnable_ns);
        if entry.threads == 0 && !is_main {
            self.leaving.push((index, Instant::now()));
            if let Some(main) = self.counted.get(&self.entries[&index].app).map(|counted| counted.main) {
                self.apps.lend(main, -1);
            }
        }
    }

    /// Carries over what the kernel has counted elsewhere, and gives entries back that are not used any more.
    pub fn tidy(&mut self) {
        let others: Vec<u32> = self.others().collect();
        others.into_iter().for_each(|index| self.carry(index));
        let now = Instant::now();
        for (index, from) in std::mem::take(&mut self.leaving) {
            let is_used = self.entries.get(&index).is_some_and(|entry| entry.threads > 0);
            if now < from || self.apps.read(index).threads > 0 {
                self.leaving.push((index, from));
            } else if !is_used && self.entries.remove(&index).is_some() {
                self.give_back(index);
            }
        }
    }

    fn give_back(&mut self, index: u32) {
        self.apps.end(index);
        // It always has room for all.
        let _ = self.free.update(&[], &index.to_ne_bytes(), MapFlags::ANY);
    }

    /// Gives back the entries of programs that were never reported, as notices were lost. All threads that
    /// live are known.
    pub fn find_lost(&mut self) {
        let before = monotonic_ns().saturating_sub(RESTS.as_nanos() as u64);
        for index in 0..APPS_MAX as u32 {
            let raw = self.apps.read(index);
            let is_lost = raw.tgid != 0 && raw.threads == 0 && raw.start < before;
            if is_lost && !self.entries.contains_key(&index) {
                self.give_back(index);
            }
        }
    }

    /// Returns the entries that are not the main one of their application.
    fn others(&self) -> impl Iterator<Item = u32> {
        let is_main = |index, app| self.counted.get(app).is_none_or(|counted| counted.main == index);
        self.entries
            .iter()
            .filter(move |(index, entry)| !is_main(**index, &entry.app))
            .map(|(index, _)| *index)
    }

    fn carry(&mut self, index: u32) {
        let app = self.entries.get(&index).map(|entry| entry.app);
        let Some(counted) = app.and_then(|app| self.counted.get_mut(&app)) else { return };
        let (all_ns, active_ns, sequential_ns) = self.apps.carry(index, counted.main, monotonic_ns());
        let carried = &mut counted.carried;
        carried.runnable_thread_ns += all_ns;
        carried.active_ns += active_ns;
        carried.sequential_ns += sequential_ns;
        carried.runnable_max = carried.runnable_max.max(self.apps.read(index).runnable_max);
    }

    /// Returns the parallelism of an application in the time that its switches were watched.
    fn counted(&self, counted: &Counted) -> Parallelism {
        let (app, carried) = (self.apps.read(counted.main), &counted.carried);
        let runnable = app.count().max(0) as u64;
        let open_ns = monotonic_ns().saturating_sub(app.until());
        let while_runnable = |condition: bool| if condition { open_ns } else { 0 };
        Parallelism {
            runnable_thread_ns: carried.runnable_thread_ns + app.runnable_thread_ns + open_ns * runnable,
            active_ns: carried.active_ns + app.active_ns + while_runnable(runnable > 0),
            sequential_ns: carried.sequential_ns + app.sequential_ns + while_runnable(runnable == 1),
            runnable_max: carried.runnable_max.max(app.runnable_max),
            exact: true,
        }
    }

    /// Returns the parallelism of an application. `living_ns` is the time for which its living threads were
    /// runnable there, by their own clocks.
    pub fn parallelism(&self, app: AppId, living_ns: impl FnOnce() -> u64) -> Parallelism {
        self.counted.get(&app).map_or_else(Parallelism::default, |counted| {
            counted.estimated.complete(|| counted.left_ns + living_ns(), self.counted(counted))
        })
    }

    /// Returns the parallelism of all by their counts, which end here, before they are estimated.
    pub fn all_counted(&self) -> BTreeMap<AppId, Parallelism> {
        self.counted.iter().map(|(app, counted)| (*app, self.counted(counted))).collect()
    }

    /// From now on, parallelism is estimated; `living_ns` as above.
    pub fn end_window(&mut self, before: &BTreeMap<AppId, Parallelism>, living_ns: &HashMap<AppId, u64>) {
        for (app, counted) in &mut self.counted {
            let threads_ns = counted.left_ns + living_ns.get(app).copied().unwrap_or(0);
            counted.estimated.end_window(threads_ns, before.get(app).copied().unwrap_or_default());
        }
    }

    /// From now on, parallelism is counted.
    pub fn begin_window(&mut self, living_ns: &HashMap<AppId, u64>) {
        let present = self.all_counted();
        for (app, counted) in &mut self.counted {
            let threads_ns = counted.left_ns + living_ns.get(app).copied().unwrap_or(0);
            counted.estimated.begin_window(threads_ns, present[app]);
        }
    }

    /// Sets whether switches and wake-ups are left unwatched.
    pub fn leave_unwatched(&mut self, unwatched: bool) {
        self.apps.leave_unwatched(unwatched);
        self.is_unwatched = unwatched;
    }

    /// Returns how often numbers of runnable threads have changed so far; wraps around.
    pub fn changes(&self) -> u32 {
        self.apps.changes()
    }

    /// Returns how many notices were lost.
    pub fn events_lost(&self) -> u64 {
        self.general.read().events_lost
    }

    /// Enables reports of changes of the number of runnable threads.
    pub fn ask(&mut self) {
        self.apps.ask();
    }

    /// Returns the time until an application may be reported that has to wait.
    pub fn reportable_within(&self) -> Option<Duration> {
        let last = self.counted.values().filter_map(|counted| counted.reported_at).min();
        last.map(|at| COALESCED_WITHIN.saturating_sub(at.elapsed()))
    }

    /// Reports the applications whose runnable threads differ from the last report. An application that was
    /// reported less than the coalescing time ago has to wait. `thread_of` returns a living thread by its ID,
    /// with its application.
    pub fn report_changes(
        &mut self,
        thread_of: impl Fn(u32) -> Option<(ThreadId, AppId)>,
    ) -> Vec<RunnableThreads> {
        // The kernel's pause must not last longer than ours: changes in between would be reported by nobody.
        let (now_ns, now) = (monotonic_ns(), Instant::now());
        let mut news = Vec::new();
        for (&app, counted) in &mut self.counted {
            if counted.reported_at.is_some_and(|at| now.duration_since(at) < COALESCED_WITHIN) {
                continue;
            }
            counted.reported_at = None;
            let raw = self.apps.read(counted.main);
            let count = raw.count().max(0) as u32;
            // The two words may be of different times: if they contradict each other, name no thread.
            let only = thread_of(raw.runnable_xor as u32).filter(|(_, of)| count == 1 && *of == app);
            let runnable = RunnableThreads { app, count, only: only.map(|(thread, _)| thread) };
            let is_new = runnable != counted.reported;
            // Even if the count equals the last report, the kernel must learn of it, as it has reported
            // another one.
            if is_new || raw.reported_runnable != count {
                (counted.reported, counted.reported_at) = (runnable, Some(now));
                self.apps.note_reported(counted.main, count, now_ns);
            }
            news.extend(is_new.then_some(runnable));
        }
        news
    }

    /// Returns the applications that are no roots.
    pub fn programs(&mut self) -> Vec<ExecutedProgram> {
        self.applications.report()
    }

    /// Returns what was lost, in words.
    pub fn notes(&self) -> Vec<String> {
        let general = self.general.read();
        let mut notes: Vec<String> = self.applications.note().into_iter().collect();
        if general.threads_lost > 0 {
            notes.push(format!(
                "{} threads were not followed: the kernel had no memory",
                general.threads_lost
            ));
        }
        if general.events_lost > 0 {
            notes.push(format!("{} notices of new or ended threads came late", general.events_lost));
        }
        let programs_lost = general.programs_lost + self.programs_lost;
        if programs_lost > 0 {
            notes.push(format!(
                "{programs_lost} times a program was counted with the one that executed it: too many ran at \
                 once"
            ));
        }
        notes
    }
}

/// Returns the text before the first zero byte.
pub(super) fn text_of(bytes: &[u8]) -> String {
    let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..length]).into()
}

pub(super) fn instant_of(monotonic: u64) -> Instant {
    let (now, age) = (Instant::now(), Duration::from_nanos(monotonic_ns().saturating_sub(monotonic)));
    now.checked_sub(age).unwrap_or(now)
}

/// A key or a value of the kernel.
trait Plain {}

impl Plain for RawProgram {}
impl Plain for RawPlaces {}

fn bytes_of<Value: Plain>(value: &Value) -> &[u8] {
    // SAFETY: the structures are `repr(C)` and have no padding; every byte is initialised.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<Value>()) }
}

#[cfg(test)]
mod tests {
    use super::super::{Choice, Extent};
    use super::*;
    use corewise_testing::skip;

    #[test]
    fn where_too_many_programs_run_they_are_counted_with_the_root_above_them() {
        let object = bpf::open(bpf::DISCOVERY).unwrap().load();
        let object = match object {
            Ok(object) => object,
            Err(error) => skip!(Bpf, "{error}"),
        };
        let options = Options {
            roots: vec![Root::Others { all: false }],
            excluded: Vec::new(),
            proc: Proc::own(),
            extent: Extent::Program,
            choice: Choice::Bpf,
        };
        let mut entries = Entries::of(&object, &options).unwrap();
        let below = HashMap::from([(std::process::id(), AppId(0))]);
        while entries.free.lookup_and_delete(&[]).unwrap().is_some() {}
        for _ in 0..3 {
            let adopted = entries.adopt(&below, |_| None).unwrap();
            assert_eq!(adopted, HashMap::from([(std::process::id(), 0)]));
        }
        assert!(entries.notes().iter().any(|note| note.contains("too many ran at once")));
    }
}
