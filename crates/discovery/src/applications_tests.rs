//! Applications by made-up programs and processes.

use super::*;
use std::path::Path;

/// Returns the application of a process after one of an application has executed a program of this name.
fn executed(apps: &mut Applications, proc: &Proc, by: AppId, name: &str, pid: u32, now: Instant) -> AppId {
    apps.executed(proc, (by, by), Image { name: name.to_owned(), exe: None }, pid, now)
}

fn below_one_command() -> Applications {
    let mut applications = Applications::new(Extent::Program, &Proc::own(), [(None, None)].into_iter());
    assert_eq!(
        executed(&mut applications, &Proc::own(), AppId(0), "job.sh", 1, Instant::now()),
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
        |by: u32, name: &str, pid| executed(&mut applications, &proc, AppId(by), name, pid, now).0;
    assert_eq!(executed(0, "single", 10), 1);
    assert_eq!(executed(0, "parallel", 11), 2);
    assert_eq!(executed(0, "single", 12), 1);
    assert_eq!(executed(1, "parallel", 13), 3, "another one executes it");
    assert_eq!(executed(2, "parallel", 14), 2, "it executes itself");
    let named: Vec<_> =
        applications.report().into_iter().map(|p| (p.name, p.executed_by.0, p.first)).collect();
    assert_eq!(named, [("single".into(), 0, 10), ("parallel".into(), 0, 11), ("parallel".into(), 1, 13)]);
}

fn image(name: &str, exe: &str) -> Image {
    Image { name: name.to_owned(), exe: Some(exe.to_owned()) }
}

/// The applications of processes `1..` of a made-up machine without processes, each with the applications
/// before and of the parent, and what is executed.
fn shown(extent: Extent, executed: &[(u32, u32, Image)]) -> Vec<String> {
    let (nobody, now) = (Proc::at("/nowhere"), Instant::now());
    let mut applications = Applications::new(extent, &nobody, [(None, None)].into_iter());
    let app = |(pid, (before, starter, image)): (u32, &(u32, u32, Image))| {
        let between = (AppId(*before), AppId(*starter));
        let app = applications.executed(&nobody, between, image.clone(), pid, now);
        applications.enter(app);
        if app.0 != *before {
            applications.leave(AppId(*before), now);
        }
        applications.name(app).unwrap().to_owned()
    };
    (1..).zip(executed).map(app).collect()
}

#[test]
fn what_a_shell_starts_is_an_application_each_and_the_parts_that_a_launcher_starts_are_one() {
    let (shell, sim) = (image("job.sh", "/bin/dash"), image("sim", "/opt/sim"));
    let twice = |starter: Image| {
        let first = (0, 0, starter);
        shown(Extent::Program, &[first, (0, 0, sim.clone()), (0, 0, sim.clone())])
    };
    assert_eq!(twice(shell.clone()), ["job.sh", "sim", "sim #2"]);
    assert_eq!(twice(image("parallel", "/usr/bin/perl")), ["parallel", "sim", "sim #2"]);
    assert_eq!(twice(image("prted", "/usr/bin/prted")), ["prted", "sim", "sim"]);
    assert_eq!(twice(image("sim", "/usr/bin/mpirun")), ["sim", "sim", "sim"]);
    let by_process =
        |starter: Image| shown(Extent::Process, &[(0, 0, starter), (0, 0, sim.clone()), (0, 0, sim.clone())]);
    assert_eq!(by_process(image("prted", "/usr/bin/prted")), ["prted", "sim", "sim #2"]);
}

#[test]
fn a_program_that_executes_another_one_in_its_own_place_is_no_launcher() {
    let (shell, sim) = (image("job.sh", "/bin/dash"), image("sim", "/opt/sim"));
    let wrapper = image("prepare", "/opt/prepare");
    let (first, second) = ((0, 0, wrapper.clone()), (0, 0, wrapper));
    let executed = [(0, 0, shell), first, (1, 0, sim.clone()), second, (1, 0, sim)];
    assert_eq!(shown(Extent::Program, &executed), ["job.sh", "prepare", "sim", "prepare", "sim #2"]);
}

#[test]
fn workers_without_a_name_belong_to_the_program_of_their_interpreter() {
    let python = "/usr/bin/python3.11";
    let executed =
        [(0, 0, image("pool.py", python)), (0, 0, image("python3", python)), (0, 0, image("x.py", python))];
    assert_eq!(shown(Extent::Program, &executed), ["pool.py", "pool.py", "x.py"]);
    assert_eq!(
        shown(Extent::Program, &[(0, 0, image("sh", "/bin/dash")), (0, 0, image("python3", python))]),
        ["sh", "python3"]
    );
}

#[test]
fn a_build_with_four_jobs_has_four_compilers_at_most() {
    let (nobody, now) = (Proc::at("/nowhere"), Instant::now());
    let mut applications = Applications::new(Extent::Program, &nobody, [(None, None)].into_iter());
    let of_make = (AppId(0), AppId(0));
    let make = applications.executed(&nobody, of_make, image("make", "/usr/bin/make"), 1, now);
    let mut running = std::collections::VecDeque::new();
    let mut seen = std::collections::BTreeSet::new();
    for pid in 2..10_000 {
        let compiler = applications.executed(&nobody, (make, make), image("cc", "/usr/bin/cc"), pid, now);
        applications.enter(compiler);
        running.push_back(compiler);
        seen.insert(compiler);
        if running.len() == 4 {
            let ended = running.pop_front().unwrap();
            applications.leave(ended, now);
        }
    }
    let names: Vec<_> = seen.iter().map(|app| applications.name(*app).unwrap()).collect();
    assert_eq!(names, ["cc", "cc #2", "cc #3", "cc #4"]);
}

#[test]
fn everything_below_a_command_is_one_application_if_wanted() {
    let mut applications =
        Applications::new(Extent::Command, &Proc::own(), [(None, None), (None, None)].into_iter());
    assert_eq!(executed(&mut applications, &Proc::own(), AppId(1), "c", 1, Instant::now()), AppId(1));
    assert_eq!(applications.ids().collect::<Vec<_>>(), [AppId(0), AppId(1)]);
}

#[test]
fn an_endless_row_of_programs_is_known_in_bounded_room() {
    let (mut applications, now) = (below_one_command(), Instant::now());
    applications.enter(AppId(0));
    let mut forgotten = Vec::new();
    for number in 0..10_000u32 {
        let app = executed(&mut applications, &Proc::own(), AppId(0), &format!("test {number}"), number, now);
        assert_eq!(app, AppId(number + 1));
        applications.enter(app);
        applications.leave(app, now);
        applications.report();
        forgotten.extend(applications.take_forgotten());
    }
    assert_eq!((applications.ids().count(), applications.note()), (APPLICATIONS_MAX, None));
    assert_eq!(forgotten.len(), 10_001 - APPLICATIONS_MAX);
    assert!(applications.ids().all(|app| !forgotten.contains(&app)) && applications.name(AppId(0)).is_some());
}

#[test]
fn what_lives_is_not_forgotten_for_others() {
    let (mut applications, now) = (below_one_command(), Instant::now());
    // The user of none of these processes is known: it is that of the command.
    let nobody = Proc::at("/nowhere");
    applications.trusted = [0, 7];
    applications.known.get_mut(&AppId(0)).unwrap().user = Some(7);
    for number in 1..APPLICATIONS_MAX as u32 {
        let app = executed(&mut applications, &nobody, AppId(0), &format!("test {number}"), number, now);
        applications.enter(app);
    }
    assert_eq!(executed(&mut applications, &nobody, AppId(0), "one more", 9, now), AppId(0));
    assert!(applications.note().is_some());
    applications.leave(AppId(7), now);
    assert_eq!(
        executed(&mut applications, &nobody, AppId(0), "one more", 9, now),
        AppId(0),
        "its end is not reported yet"
    );
    applications.report();
    assert_eq!(
        executed(&mut applications, &nobody, AppId(0), "one more", 9, now),
        AppId(APPLICATIONS_MAX as u32)
    );
    assert_eq!(applications.take_forgotten(), [AppId(7)]);
    assert_eq!(executed(&mut applications, &nobody, AppId(0), "test 8", 9, now), AppId(8));
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
            let app = executed(applications, &proc, AppId(0), &format!("{pid} {number}"), pid, now);
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
    let apps = [7, 8, 7].map(|pid| executed(&mut applications, &proc, AppId(0), "db", pid, now).0);
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
        |by: u32, name: &str, pid| executed(&mut applications, &proc, AppId(by), name, pid, now).0;
    assert_eq!(executed(0, "sh", 7), 2);
    assert_eq!((executed(2, "make", 7), executed(2, "cc", 8)), (2, 2), "whatever runs there");
    assert_eq!(executed(0, "sh", 8), 2, "whatever has executed it");
    assert_eq!((executed(0, "sh", 9), executed(1, "cc", 9)), (3, 1), "a root is its own unit");
    assert_eq!((executed(0, "sh", 10), executed(4, "make", 10)), (4, 5));
    assert_eq!((executed(2, "sh", 10), executed(0, "cc", 11)), (6, 7), "it has left the service");
    let names: Vec<_> = applications.report().into_iter().map(|p| p.name.to_string()).collect();
    assert_eq!(names, ["ci.service", "web.service", "sh", "make", "sh", "cc"]);
}
