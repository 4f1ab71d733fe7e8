//! Which applications there are, and which program belongs to which.
//!
//! Problem: a script that starts a single-threaded program and a parallel one is not one program with the
//! threads of both: policies ask how parallel each of them is. Two runs of one program that a shell starts at
//! once have no more to do with each other than any two programs. But the ranks of one `mpirun` and the
//! workers of one pool belong together, and most processes live too briefly to be an application each: a
//! build executes ten thousand compilers.
//!
//! Approach: an application is *a program that is executed*, with what it does by forks. Who has started it
//! says how many there are, as launchers start parts of one program, and shells and job runners whatever
//! people want ([`Image::starts_any`]):
//! - What a shell or a job runner starts is an application of its own, whatever it is called. Programs of one
//!   name that it runs *at the same time* are several (`sim`, `sim #2`), those that it runs *one after the
//!   other* are one: the next takes the place of one that has ended. So a build with 4 jobs has 4 compilers.
//! - Programs of one name and one executable that any other program starts are one.
//! - A program that continues the one that has started it belongs to that one: of the same name, as `env` and
//!   `mpirun` are called by what they start, or code without a name for the same interpreter, as workers of
//!   Python's pools are. Of a shell or a job runner only the same program is (`make` executes `make`): who
//!   reads `/proc` cannot see whether a process like its parent has executed anything.
//!
//! Who has started a program is its parent process, whatever the process itself ran before: a program that
//! sets something and then executes another one in its own place is no launcher. Processes that have executed
//! nothing belong to the application that created them. What a user names (a command, a process, a control
//! group) is a root application; a command's is called by the first program that is executed. An application
//! keeps its [`AppId`] when its program is started again.
//!
//! With [`Extent::Unit`], a service, container or desktop application ([`service_of`]) is one application,
//! with everything that runs in it: it is what people start, stop and name. Where people start programs one
//! by one, in sessions and terminals, and where there are no units, each program is one as above. Which unit
//! a process is in is read when it executes a program, as service managers move it before. Two units may have
//! one name, as every user may give a unit any: they are two applications, distinguished by their paths. With
//! [`Extent::Process`], every program is taken for a job runner.
//!
//! At most [`APPLICATIONS_MAX`] are known at once. When there are as many, the one that ended first is
//! forgotten. So that no user fills the table, a user's living applications are fewer than the places that
//! are left for others; only root and the user who runs corewise may have all. Where there is no place, a
//! program belongs to another one of its name, or else to the application that executes it.
//!
//! Limits: which programs run jobs is a list; others are taken for launchers. Those that a launcher starts
//! with other inputs are one application (a script's name says nothing of its arguments). A program that ends
//! before its command line is read is called by its file: `env` is then an application beside those that are
//! called by what it starts. (The unit of Saez et al., CF'10, is the process; ours is wider for programs that
//! consist of many.)

use corewise_core::ids::AppId;
use corewise_core::program::Image;
use corewise_sys::cgroup::{Service, service_of, user_of};
use corewise_sys::proc::{Proc, ProcError};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

/// The number of applications that are known at once: a build executes some tens of programs.
pub(super) const APPLICATIONS_MAX: usize = 256;

/// What an application consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extent {
    /// Each program that is executed is an application; the parts that a launcher starts are one.
    #[default]
    Program,
    /// Each process that executes a program is one.
    Process,
    /// Each service, container or desktop application is one, and elsewhere each program that is executed.
    Unit,
    /// Everything below a root is one application.
    Command,
}

impl Extent {
    /// The words that users give for them.
    pub const WORDS: &str = "program|process|unit|command";
}

impl std::str::FromStr for Extent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "program" => Ok(Extent::Program),
            "process" => Ok(Extent::Process),
            "unit" => Ok(Extent::Unit),
            "command" => Ok(Extent::Command),
            _ => Err(format!("`{text}` is none of {}", Extent::WORDS)),
        }
    }
}

/// An application that is no root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutedProgram {
    /// The application.
    pub app: AppId,
    /// The application that executed it first.
    pub executed_by: AppId,
    /// The root above it.
    pub root: AppId,
    /// The name of its program.
    pub name: Arc<str>,
    /// Its first process.
    pub first: u32,
    /// When it was first executed, as far as the source knows.
    pub since: Instant,
}

/// The known applications; see the module documentation.
#[derive(Debug)]
pub(super) struct Applications {
    extent: Extent,
    known: BTreeMap<AppId, Application>,
    /// Those of one kind.
    by_kind: HashMap<Kind, Vec<AppId>>,
    next: AppId,
    /// Forgotten since they were asked for.
    forgotten: Vec<AppId>,
    /// Programs that got no application of their own.
    refused: u64,
    /// These users may have all places.
    trusted: [u32; 2],
}

/// What programs have in common that are one application, or of which each is one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Kind {
    /// The application that executes them; of units the root.
    executor: AppId,
    /// Their name, or the path of the unit.
    name: Arc<str>,
    /// Their executable, where a launcher starts them.
    exe: Option<String>,
}

#[derive(Debug)]
struct Application {
    /// As it is shown. `None`: a root, of which no program is known.
    name: Option<Arc<str>>,
    /// What it runs, if that is known.
    image: Image,
    /// Whether each program that it starts is an application.
    starts_any: bool,
    /// Its number among those of its kind.
    number: usize,
    /// The process for which it was taken last.
    taken_for: u32,
    /// The path of the unit that it is, or of a root the one that it is in.
    unit: Option<Arc<str>>,
    /// The user whose place it takes, if known.
    user: Option<u32>,
    /// `None` of a root.
    program: Option<ExecutedProgram>,
    root: AppId,
    /// Its living threads.
    threads: usize,
    /// When it was found to have ended, and whether that was reported.
    ended: Option<Instant>,
    is_end_reported: bool,
}

impl Applications {
    /// Knows only roots, with the names and processes of those that run already.
    pub fn new(
        extent: Extent,
        proc: &Proc,
        roots: impl Iterator<Item = (Option<String>, Option<u32>)>,
    ) -> Applications {
        let root = |(app, (name, pid)): (u32, (Option<String>, Option<u32>))| {
            let exe = pid.and_then(|pid| image_of(proc, pid).1);
            let image = name.map(|name| Image { name, exe });
            let unit = pid.and_then(|pid| unit_of(extent, proc, pid)).map(|unit| unit.path.into());
            let mut root = Application { unit, ..Application::new(None, None, AppId(app)) };
            // What no process has started has nothing in common.
            let is_of_others = image.is_some() && pid.is_none();
            image.into_iter().for_each(|image| root.run(image, is_of_others || extent == Extent::Process));
            (AppId(app), root)
        };
        let known: BTreeMap<AppId, Application> = (0..).zip(roots).map(root).collect();
        Applications {
            extent,
            next: AppId(known.len() as u32),
            known,
            by_kind: HashMap::new(),
            forgotten: Vec::new(),
            refused: 0,
            trusted: [0, nix::unistd::geteuid().as_raw()],
        }
    }

    /// Returns whether programs are applications.
    pub fn are_programs(&self) -> bool {
        self.extent != Extent::Command
    }

    /// Returns the application of a process after it has executed a program. It was one of `before`;
    /// `starter` is the application of its parent.
    pub fn executed(
        &mut self,
        proc: &Proc,
        (before, starter): (AppId, AppId),
        image: Image,
        pid: u32,
        now: Instant,
    ) -> AppId {
        if self.extent == Extent::Command || !self.known.contains_key(&before) {
            return before;
        }
        let unit = unit_of(self.extent, proc, pid);
        let starter = if self.known.contains_key(&starter) { starter } else { before };
        if let Some(app) = self.continued(unit.as_ref(), [before, starter], &image) {
            return app;
        }
        // A unit is the same one whatever has executed the program.
        let executor = unit.as_ref().map_or(starter, |_| self.root(starter));
        let by = &self.known[&executor];
        let (root, of_executor, is_each_one) = (by.root, by.user, unit.is_none() && by.starts_any);
        let kind = match &unit {
            Some(unit) => Kind { executor, name: unit.path.as_str().into(), exe: None },
            None => {
                let exe = image.exe.clone().filter(|_| !is_each_one);
                Kind { executor, name: image.name.as_str().into(), exe }
            }
        };
        let of_kind = self.by_kind.get(&kind).cloned().unwrap_or_default();
        let is_place = |app: &AppId| !is_each_one || *app == before || self.is_free(proc, *app);
        if let Some(app) = of_kind.iter().copied().find(is_place) {
            let every = self.extent == Extent::Process;
            let known = self.known.get_mut(&app).expect("what is forgotten is of no kind");
            (known.taken_for, known.ended) = (pid, None);
            // A script may be called as the program that it executes in its own place.
            is_each_one.then(|| known.run(image, every));
            return app;
        }
        let user = user_in(proc, pid).or(of_executor);
        if !self.has_place_for(user) {
            self.refused += 1;
            return of_kind.first().copied().unwrap_or(executor);
        }
        if self.known.len() >= APPLICATIONS_MAX {
            self.forget_one();
        }
        let app = self.next;
        self.next = AppId(app.0 + 1);
        let number = self.unused_number(&of_kind);
        let name = unit.as_ref().map_or(&image.name, |unit| &unit.name);
        let name: Arc<str> =
            if number > 1 { format!("{name} #{number}").into() } else { name.as_str().into() };
        let program =
            ExecutedProgram { app, executed_by: executor, root, name: name.clone(), first: pid, since: now };
        let unit = unit.map(|unit| unit.path.into());
        let mut application = Application {
            unit,
            user,
            number,
            taken_for: pid,
            ..Application::new(Some(name), Some(program), root)
        };
        if application.unit.is_none() {
            application.run(image, self.extent == Extent::Process);
        }
        self.by_kind.entry(kind).or_default().push(app);
        self.known.insert(app, application);
        app
    }

    /// Returns which of these a program in this unit continues that the first one or the second one has
    /// started.
    fn continued(&mut self, unit: Option<&Service>, apps: [AppId; 2], image: &Image) -> Option<AppId> {
        for app in apps {
            let every = self.extent == Extent::Process;
            let known = self.known.get_mut(&app)?;
            if let Some(unit) = unit {
                if known.unit.as_deref() == Some(&unit.path) {
                    return Some(app);
                }
            } else if known.name.is_none() {
                known.run(image.clone(), every);
                return Some(app);
            } else if known.is_continued_by(image) {
                // `timeout` may execute a shell.
                let is_of_name = known.image.name == image.name;
                is_of_name.then(|| known.run(image.clone(), every || known.starts_any));
                return Some(app);
            }
        }
        None
    }

    /// Returns the least number that none of these has.
    fn unused_number(&self, apps: &[AppId]) -> usize {
        let used: Vec<usize> = apps.iter().filter_map(|app| Some(self.known.get(app)?.number)).collect();
        (1..).find(|number| !used.contains(number)).unwrap_or(1)
    }

    /// Returns whether a program may take the place of one that has ended.
    fn is_free(&self, proc: &Proc, app: AppId) -> bool {
        let is_over = |known: &Application| {
            // A process for which it was taken may have no thread that is known yet.
            known.threads == 0
                && (known.ended.is_some() || !matches!(proc.task(known.taken_for), Ok(Some(_))))
        };
        self.known.get(&app).is_some_and(is_over)
    }

    /// Returns whether one more application of a user may live.
    fn has_place_for(&self, user: Option<u32>) -> bool {
        let living = || self.known.values().filter(|known| known.over().is_none());
        let left = APPLICATIONS_MAX.saturating_sub(living().count());
        let may_have_all = user.is_some_and(|uid| self.trusted.contains(&uid));
        let has = if may_have_all { 0 } else { living().filter(|known| known.user == user).count() };
        has < left
    }

    /// Returns the applications of processes that run already, given the roots above them. `known` returns
    /// those of other processes.
    pub fn found(
        &mut self,
        proc: &Proc,
        below: &HashMap<u32, AppId>,
        known: impl Fn(u32) -> Option<AppId>,
    ) -> Result<HashMap<u32, AppId>, ProcError> {
        if self.extent == Extent::Command {
            return Ok(below.clone());
        }
        let mut processes = Vec::new();
        for (&pid, &root) in below {
            if let Some(stat) = proc.stat(pid, pid)? {
                processes.push((stat.start_ticks, pid, stat.parent, root));
            }
        }
        // Parents first.
        processes.sort_unstable();
        let (mut found, now) = (HashMap::new(), Instant::now());
        for (_, pid, parent, root) in processes {
            let creator = found.get(&parent).copied().or_else(|| known(parent)).unwrap_or(root);
            found.insert(pid, self.seen(proc, (creator, creator), (pid, parent), now));
        }
        Ok(found)
    }

    /// Returns the application of a process that was one of `before`, may have executed a program since, and
    /// whose `parent` is one of `starter`.
    pub fn seen(
        &mut self,
        proc: &Proc,
        (before, starter): (AppId, AppId),
        (pid, parent): (u32, u32),
        now: Instant,
    ) -> AppId {
        // What corewise is about to start has not executed anything yet.
        if self.extent == Extent::Command || self.name(before).is_none() && proc.is_fork(pid, parent) {
            return before;
        }
        match image_of(proc, pid) {
            (Some(name), exe) => self.executed(proc, (before, starter), Image { name, exe }, pid, now),
            (None, _) => before,
        }
    }

    /// Forgets the application that ended first, of those whose end was reported.
    fn forget_one(&mut self) {
        let over = self.known.iter().filter_map(|(app, known)| Some((known.over()?, *app)));
        let Some((_, app)) = over.min() else { return };
        self.known.remove(&app);
        self.by_kind.retain(|kind, of| {
            of.retain(|of| *of != app);
            kind.executor != app && !of.is_empty()
        });
        self.forgotten.push(app);
    }

    /// Returns those that were forgotten since the last call. Their IDs are not used again.
    pub fn take_forgotten(&mut self) -> Vec<AppId> {
        std::mem::take(&mut self.forgotten)
    }

    /// Returns what it is called, if that is known.
    pub fn name(&self, app: AppId) -> Option<&str> {
        self.known.get(&app)?.name.as_deref()
    }

    /// Returns whether what is executed in `executor` under this name is always one of `app`, and if so,
    /// whether several may be at once. `None`: each time has to be looked at.
    pub fn takes(&self, executor: AppId, app: AppId, name: &str) -> Option<bool> {
        let (by, of) = (self.known.get(&executor)?, self.known.get(&app)?);
        let is_started = of.program.as_ref().is_some_and(|program| program.executed_by == executor);
        let is_itself = executor == app;
        (of.image.name == name && of.unit.is_none() && (is_itself || is_started))
            .then_some(is_itself || !by.starts_any)
    }

    /// Returns the root above an application.
    pub fn root(&self, app: AppId) -> AppId {
        self.known.get(&app).map_or(app, |known| known.root)
    }

    /// Takes note of one more living thread.
    pub fn enter(&mut self, app: AppId) {
        if let Some(known) = self.known.get_mut(&app) {
            (known.threads, known.ended, known.is_end_reported) = (known.threads + 1, None, false);
        }
    }

    /// Takes note that one living thread less belongs to it.
    pub fn leave(&mut self, app: AppId, now: Instant) {
        if let Some(known) = self.known.get_mut(&app) {
            known.threads = known.threads.saturating_sub(1);
            known.ended = (known.threads == 0).then_some(now);
        }
    }

    /// Returns all, the roots first.
    pub fn ids(&self) -> impl Iterator<Item = AppId> {
        self.known.keys().copied()
    }

    /// Returns those that are no roots, for a report of all of them.
    pub fn report(&mut self) -> Vec<ExecutedProgram> {
        self.known.values_mut().for_each(|known| known.is_end_reported = known.threads == 0);
        self.known.values().filter_map(|known| known.program.clone()).collect()
    }

    /// Returns which programs could not be distinguished, in words.
    pub fn note(&self) -> Option<String> {
        (self.refused > 0).then(|| {
            format!(
                "{} times a program was counted with another of its name, or with the one that executed it: \
                 there are at most {APPLICATIONS_MAX} applications at once, and a user has at most as many \
                 as are left for others",
                self.refused
            )
        })
    }
}

/// Returns the name of a process's program and its executable, as far as they may be read.
pub(super) fn image_of(proc: &Proc, pid: u32) -> (Option<String>, Option<String>) {
    let exe = || proc.program(pid).ok().map(|exe| exe.to_string_lossy().into_owned());
    let (before, name, after) = (exe(), proc.program_name(pid), exe());
    // It may have executed another program in between.
    if before == after { (name, after) } else { (proc.program_name(pid), after) }
}

/// Returns the service, container or desktop application that a process is in, if such are applications.
fn unit_of(extent: Extent, proc: &Proc, pid: u32) -> Option<Service> {
    let groups = (extent == Extent::Unit).then(|| proc.control_groups(pid).ok()).flatten()?;
    service_of(groups.of_systemd()?)
}

/// Returns the user of a process: the one in whose slice it is, as a user may have many user IDs
/// (subuid(5)) but one slice. Elsewhere it is the process's owner.
fn user_in(proc: &Proc, pid: u32) -> Option<u32> {
    let groups = proc.control_groups(pid).ok();
    let slice = groups.and_then(|groups| user_of(groups.of_systemd()?));
    slice.or_else(|| proc.owner(pid).ok())
}

impl Application {
    fn new(name: Option<Arc<str>>, program: Option<ExecutedProgram>, root: AppId) -> Application {
        let (image, starts_any, number, taken_for) = (Image::default(), false, 1, 0);
        let (unit, user, threads, ended, is_end_reported) = (None, None, 0, None, false);
        Application {
            name,
            image,
            starts_any,
            number,
            taken_for,
            unit,
            user,
            program,
            root,
            threads,
            ended,
            is_end_reported,
        }
    }

    /// It runs this from now on.
    fn run(&mut self, image: Image, starts_any: bool) {
        self.name.get_or_insert_with(|| image.name.as_str().into());
        self.starts_any = starts_any || image.starts_any();
        self.image = image;
    }

    /// Returns whether it has started a program of its own, and not another one.
    fn is_continued_by(&self, image: &Image) -> bool {
        let of_name = self.image.name == image.name;
        let (known, exe) = (self.image.exe.as_ref(), image.exe.as_ref());
        let has_other_exe = known.zip(exe).is_some_and(|(known, exe)| known != exe);
        let is_of_exe = known.is_some() && known == exe;
        match self.starts_any {
            true => of_name && !has_other_exe,
            false => of_name || (is_of_exe && image.is_nameless()),
        }
    }

    /// Returns when it ended, if it may be forgotten since: the end was reported, and it is no root.
    fn over(&self) -> Option<Instant> {
        self.ended.filter(|_| self.threads == 0 && self.is_end_reported && self.program.is_some())
    }
}

#[cfg(test)]
#[path = "applications_tests.rs"]
mod tests;
