//! Which applications there are, and which program belongs to which.
//!
//! Problem: a script that starts a single-threaded program and a parallel one is not one program with the
//! threads of both: policies ask how parallel each of them is. But the ranks of one `mpirun`, the workers of
//! one pool and the compilers of one `make` belong together, and most processes live too briefly to be an
//! application each.
//!
//! Approach: an application is *a program that another application executes*: the programs of equal names
//! ([`corewise_core::program`]) that one application executes are one, at the same time or one after the
//! other. A program with the name of the application that executes it belongs to that one: `env` and
//! `mpirun` are called by what they start, `make` executes `make`, and who reads `/proc` cannot see whether
//! a process with the name of its parent has executed anything. Processes that have executed nothing belong
//! to the application that created them. What a user names (a command, a process, a control group) is a root
//! application; a command's is called by the first program that is executed. So the number of applications
//! depends on which programs there are, not on how often they are started, and an application keeps its
//! [`AppId`] when its program is started again.
//!
//! With [`Extent::Unit`], a service, container or desktop application ([`service_of`]) is one application,
//! with everything that runs in it: it is what people start, stop and name. Where people start programs one
//! by one, in sessions and terminals, and where there are no units, each program is one as above. Which unit
//! a process is in is read when it executes a program, as service managers move it before. Two units may have
//! one name, as every user may give a unit any: they are two applications, distinguished by their paths.
//!
//! At most [`APPLICATIONS_MAX`] are known at once. When there are as many, the one that ended first is
//! forgotten. So that no user fills the table, a user's living applications are fewer than the places that
//! are left for others; only root and the user who runs corewise may have all. Where there is no place, a
//! program belongs to the application that executes it.
//!
//! Limits: a script's name says nothing of its arguments, and code in a command line has no name, so copies
//! with other inputs are one application. A program that ends before its command line is read is called by
//! its file: `env` is then an application beside those that are called by what it starts. (The unit of Saez
//! et al., CF'10, is the process; ours is wider for programs that consist of many.)

use corewise_core::ids::AppId;
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
    /// Each program that is executed is an application.
    #[default]
    Program,
    /// Each service, container or desktop application is one, and elsewhere each program that is executed.
    Unit,
    /// Everything below a root is one application.
    Command,
}

impl std::str::FromStr for Extent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "program" => Ok(Extent::Program),
            "unit" => Ok(Extent::Unit),
            "command" => Ok(Extent::Command),
            _ => Err(format!("`{text}` is none of program, unit, command")),
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
    /// By the application that executes it, and the name; units by their root, and the path.
    by_name: HashMap<(AppId, Arc<str>), AppId>,
    next: AppId,
    /// Forgotten since they were asked for.
    forgotten: Vec<AppId>,
    /// Programs that got no application of their own.
    refused: u64,
    /// These users may have all places.
    trusted: [u32; 2],
}

#[derive(Debug)]
struct Application {
    /// `None`: a root, of which no program is known.
    name: Option<Arc<str>>,
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
            let name = name.map(Into::into);
            let unit = pid.and_then(|pid| unit_of(extent, proc, pid)).map(|unit| unit.path.into());
            (AppId(app), Application { unit, ..Application::new(name, None, AppId(app)) })
        };
        let known: BTreeMap<AppId, Application> = (0..).zip(roots).map(root).collect();
        Applications {
            extent,
            next: AppId(known.len() as u32),
            known,
            by_name: HashMap::new(),
            forgotten: Vec::new(),
            refused: 0,
            trusted: [0, nix::unistd::geteuid().as_raw()],
        }
    }

    /// Returns whether programs are applications.
    pub fn are_programs(&self) -> bool {
        self.extent != Extent::Command
    }

    /// Returns the application of process `pid` after `executor` has executed a program of this name there.
    pub fn executed(&mut self, proc: &Proc, executor: AppId, name: &str, pid: u32, now: Instant) -> AppId {
        let unit = unit_of(self.extent, proc, pid);
        // A unit is the same one whatever has executed the program.
        let executor = unit.as_ref().map_or(executor, |_| self.root(executor));
        let Some(by) = self.known.get_mut(&executor).filter(|_| self.extent != Extent::Command) else {
            return executor;
        };
        if unit.is_none() && by.name.is_none() {
            by.name = Some(name.into());
        }
        let is_the_same = match &unit {
            Some(unit) => by.unit.as_deref() == Some(&unit.path),
            None => by.name.as_deref() == Some(name),
        };
        if is_the_same {
            return executor;
        }
        let (root, of_executor) = (by.root, by.user);
        let key = Arc::<str>::from(unit.as_ref().map_or(name, |unit| &unit.path));
        if let Some(&app) = self.by_name.get(&(executor, key.clone())) {
            return app;
        }
        let user = user_in(proc, pid).or(of_executor);
        if !self.has_place_for(user) {
            self.refused += 1;
            return executor;
        }
        if self.known.len() >= APPLICATIONS_MAX {
            self.forget_one();
        }
        let app = self.next;
        self.next = AppId(app.0 + 1);
        self.by_name.insert((executor, key.clone()), app);
        let (name, unit) = match unit {
            Some(unit) => (unit.name.into(), Some(key)),
            None => (key, None),
        };
        let program =
            ExecutedProgram { app, executed_by: executor, root, name: name.clone(), first: pid, since: now };
        let application = Application { unit, user, ..Application::new(Some(name), Some(program), root) };
        self.known.insert(app, application);
        app
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
            found.insert(pid, self.seen(proc, creator, (pid, parent), now));
        }
        Ok(found)
    }

    /// Returns the application of a process that belonged to `app`, or was created by one that does, and may
    /// have executed a program since.
    pub fn seen(&mut self, proc: &Proc, app: AppId, (pid, parent): (u32, u32), now: Instant) -> AppId {
        // What corewise is about to start has not executed anything yet.
        if self.extent == Extent::Command || self.name(app).is_none() && proc.is_fork(pid, parent) {
            return app;
        }
        proc.program_name(pid).map_or(app, |name| self.executed(proc, app, &name, pid, now))
    }

    /// Forgets the application that ended first, of those whose end was reported.
    fn forget_one(&mut self) {
        let over = self.known.iter().filter_map(|(app, known)| Some((known.over()?, *app)));
        let Some((_, app)) = over.min() else { return };
        self.known.remove(&app);
        self.by_name.retain(|(executor, _), of| *of != app && *executor != app);
        self.forgotten.push(app);
    }

    /// Returns those that were forgotten since the last call. Their IDs are not used again.
    pub fn take_forgotten(&mut self) -> Vec<AppId> {
        std::mem::take(&mut self.forgotten)
    }

    /// Returns the name of its program, if it is known.
    pub fn name(&self, app: AppId) -> Option<&str> {
        self.known.get(&app)?.name.as_deref()
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
                "{} times a program was counted with the one that executed it: there are at most \
                 {APPLICATIONS_MAX} applications at once, and a user has at most as many as are left for \
                 others",
                self.refused
            )
        })
    }
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
        let (unit, user, threads, ended, is_end_reported) = (None, None, 0, None, false);
        Application { name, unit, user, program, root, threads, ended, is_end_reported }
    }

    /// Returns when it ended, if it may be forgotten since: the end was reported, and it is no root.
    fn over(&self) -> Option<Instant> {
        self.ended.filter(|_| self.threads == 0 && self.is_end_reported && self.program.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn below_one_command() -> Applications {
        let mut applications = Applications::new(Extent::Program, &Proc::own(), [(None, None)].into_iter());
        assert_eq!(
            applications.executed(&Proc::own(), AppId(0), "job.sh", 1, Instant::now()),
            AppId(0),
            "the command"
        );
        applications
    }

    #[test]
    fn what_one_application_executes_under_one_name_is_one_application() {
        let mut applications = below_one_command();
        let (proc, now) = (Proc::own(), Instant::now());
        let mut executed =
            |by: u32, name: &str, pid| applications.executed(&proc, AppId(by), name, pid, now).0;
        assert_eq!(executed(0, "single", 10), 1);
        assert_eq!(executed(0, "parallel", 11), 2);
        assert_eq!(executed(0, "single", 12), 1);
        assert_eq!(executed(1, "parallel", 13), 3, "another one executes it");
        assert_eq!(executed(2, "parallel", 14), 2, "it executes itself");
        let named: Vec<_> =
            applications.report().into_iter().map(|p| (p.name, p.executed_by.0, p.first)).collect();
        assert_eq!(named, [("single".into(), 0, 10), ("parallel".into(), 0, 11), ("parallel".into(), 1, 13)]);
    }

    #[test]
    fn everything_below_a_command_is_one_application_if_wanted() {
        let mut applications =
            Applications::new(Extent::Command, &Proc::own(), [(None, None), (None, None)].into_iter());
        assert_eq!(applications.executed(&Proc::own(), AppId(1), "c", 1, Instant::now()), AppId(1));
        assert_eq!(applications.ids().collect::<Vec<_>>(), [AppId(0), AppId(1)]);
    }

    #[test]
    fn an_endless_row_of_programs_is_known_in_bounded_room() {
        let (mut applications, now) = (below_one_command(), Instant::now());
        applications.enter(AppId(0));
        let mut forgotten = Vec::new();
        for number in 0..10_000u32 {
            let app = applications.executed(&Proc::own(), AppId(0), &format!("test {number}"), number, now);
            assert_eq!(app, AppId(number + 1));
            applications.enter(app);
            applications.leave(app, now);
            applications.report();
            forgotten.extend(applications.take_forgotten());
        }
        assert_eq!((applications.ids().count(), applications.note()), (APPLICATIONS_MAX, None));
        assert_eq!(forgotten.len(), 10_001 - APPLICATIONS_MAX);
        assert!(
            applications.ids().all(|app| !forgotten.contains(&app)) && applications.name(AppId(0)).is_some()
        );
    }

    #[test]
    fn what_lives_is_not_forgotten_for_others() {
        let (mut applications, now) = (below_one_command(), Instant::now());
        // The user of none of these processes is known: it is that of the command.
        let nobody = Proc::at("/nowhere");
        applications.trusted = [0, 7];
        applications.known.get_mut(&AppId(0)).unwrap().user = Some(7);
        for number in 1..APPLICATIONS_MAX as u32 {
            let app = applications.executed(&nobody, AppId(0), &format!("test {number}"), number, now);
            applications.enter(app);
        }
        assert_eq!(applications.executed(&nobody, AppId(0), "one more", 9, now), AppId(0));
        assert!(applications.note().is_some());
        applications.leave(AppId(7), now);
        assert_eq!(
            applications.executed(&nobody, AppId(0), "one more", 9, now),
            AppId(0),
            "its end is not reported yet"
        );
        applications.report();
        assert_eq!(
            applications.executed(&nobody, AppId(0), "one more", 9, now),
            AppId(APPLICATIONS_MAX as u32)
        );
        assert_eq!(applications.take_forgotten(), [AppId(7)]);
        assert_eq!(applications.executed(&nobody, AppId(0), "test 8", 9, now), AppId(8));
    }

    /// A process of `/proc` in `root`.
    fn process(root: &Path, pid: u32, group: &str) {
        let folder = root.join(pid.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("cgroup"), format!("0::{group}\n")).unwrap();
        std::fs::write(folder.join("cmdline"), "systemd\0").unwrap();
    }

    #[test]
    fn no_user_takes_the_places_of_all_others() {
        let root = tempfile::tempdir().unwrap();
        for user in [7, 8] {
            process(root.path(), user, &format!("/user.slice/user-{user}.slice/session-1.scope"));
        }
        process(root.path(), 9, "/system.slice/x.service");
        let (mut applications, now) = (below_one_command(), Instant::now());
        let proc = Proc::at(root.path());
        let living = |applications: &mut Applications, pid: u32, most: u32| {
            let executed = (0..most).map(|number| {
                let app = applications.executed(&proc, AppId(0), &format!("{pid} {number}"), pid, now);
                applications.enter(app);
                app
            });
            let apps: Vec<AppId> = executed.filter(|app| *app != AppId(0)).collect();
            apps
        };
        let first = living(&mut applications, 7, 300);
        assert_eq!(first.len(), APPLICATIONS_MAX / 2);
        assert_eq!(living(&mut applications, 8, 300).len(), APPLICATIONS_MAX / 4);
        let left = APPLICATIONS_MAX / 4 - 1;
        assert_eq!(living(&mut applications, 9, 300).len(), left, "the daemon's own user, and root");
        assert!(applications.note().is_some());
        // What has ended is forgotten for others.
        first.iter().for_each(|app| applications.leave(*app, now));
        applications.report();
        assert_eq!(living(&mut applications, 10, 10).len(), 10);
    }

    #[test]
    fn two_units_of_one_name_are_two_applications() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 7, "/system.slice/db.service");
        process(root.path(), 8, "/user.slice/user-7.slice/user@7.service/app.slice/db.service");
        let proc = Proc::at(root.path());
        let mut applications = Applications::new(Extent::Unit, &proc, [(None, None)].into_iter());
        let now = Instant::now();
        let apps = [7, 8, 7].map(|pid| applications.executed(&proc, AppId(0), "db", pid, now).0);
        assert_eq!(apps, [1, 2, 1]);
        let names = [1, 2].map(|app| applications.name(AppId(app)).unwrap().to_owned());
        assert_eq!(names, ["db.service", "db.service"]);
    }

    #[test]
    fn a_service_is_one_application_and_in_a_session_each_program_is() {
        let root = tempfile::tempdir().unwrap();
        let process = |pid: u32, group: &str| process(root.path(), pid, group);
        process(1, "/init.scope");
        process(7, "/system.slice/ci.service");
        process(8, "/system.slice/ci.service/job");
        process(9, "/system.slice/web.service");
        process(10, "/user.slice/user-7.slice/session-2.scope");
        process(11, "/docker/none");
        let proc = Proc::at(root.path());
        let roots = [1, 9].map(|pid| (proc.program_name(pid), Some(pid)));
        let mut applications = Applications::new(Extent::Unit, &proc, roots.into_iter());
        let now = Instant::now();
        let mut executed =
            |by: u32, name: &str, pid| applications.executed(&proc, AppId(by), name, pid, now).0;
        assert_eq!(executed(0, "sh", 7), 2);
        assert_eq!((executed(2, "make", 7), executed(2, "cc", 8)), (2, 2), "whatever runs there");
        assert_eq!(executed(0, "sh", 8), 2, "whatever has executed it");
        assert_eq!((executed(0, "sh", 9), executed(1, "cc", 9)), (3, 1), "a root is its own unit");
        assert_eq!((executed(0, "sh", 10), executed(4, "make", 10)), (4, 5));
        assert_eq!((executed(2, "sh", 10), executed(0, "cc", 11)), (6, 7), "it has left the service");
        let names: Vec<_> = applications.report().into_iter().map(|p| p.name.to_string()).collect();
        assert_eq!(names, ["ci.service", "web.service", "sh", "make", "sh", "cc"]);
    }
}
