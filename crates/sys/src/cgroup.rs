//! Control groups of version 2 (cgroups(7)) as sets of processes: finds the group that a user names, and its
//! processes.
//!
//! A unit of systemd (a service, a scope, a slice) is the group whose directory has its name, somewhere in
//! the hierarchy. Finding it needs neither systemd's library nor its bus, and works in containers, too.
//! A unit of the system is meant before one of the same name that somebody has made ([`units_of`]). Limits:
//! a unit that is not running has no group; several users may run units of one name, and the path is needed
//! then.

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Where the hierarchy may be mounted: alone, or beside those of version 1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// The file of every group that lists its processes.
const PROCESSES: &str = "cgroup.procs";

/// The suffixes of units that contain processes.
const UNIT_KINDS: [&str; 3] = [".service", ".scope", ".slice"];

/// A control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlGroup {
    folder: PathBuf,
    path: String,
}

/// All control groups, as a tree of directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    root: PathBuf,
}

/// Why a control group cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The machine has no control groups of version 2.
    #[error(
        "this machine has no control groups of version 2 (none are mounted at {}): name processes instead, \
         with `--pid`",
        MOUNTS.join(" or ")
    )]
    NotMounted,
    /// The group does not exist.
    #[error("there is no control group {path} below {root}: `systemd-cgls` shows all")]
    Absent {
        /// The path as given by the user.
        path: String,
        /// The root of the hierarchy.
        root: String,
    },
    /// No unit with this name is running.
    #[error(
        "no unit {name} runs: there is no control group of that name below {root}; `systemctl` lists units"
    )]
    NoUnit {
        /// The name.
        name: String,
        /// The root of the hierarchy.
        root: String,
    },
    /// The text is not the name of a suitable unit.
    #[error("{name} is not the name of a unit with processes: those end with {}", UNIT_KINDS.join(", "))]
    NoUnitName {
        /// The text as given by the user.
        name: String,
    },
    /// Several units have that name.
    #[error("several units are called {name}: say which one with `--cgroup`: {}", paths.join(", "))]
    Ambiguous {
        /// The name.
        name: String,
        /// Their groups.
        paths: Vec<String>,
    },
    /// It cannot be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// The file or directory.
        path: String,
        /// The system's error.
        source: io::Error,
    },
}

impl Hierarchy {
    /// Returns the hierarchy of this machine.
    pub fn mounted() -> Result<Hierarchy, GroupError> {
        let is_one =
            |path: &&&str| statfs(**path).is_ok_and(|of| of.filesystem_type() == CGROUP2_SUPER_MAGIC);
        MOUNTS.iter().find(is_one).map(Hierarchy::at).ok_or(GroupError::NotMounted)
    }

    /// Returns the hierarchy with this root directory.
    pub fn at(root: impl Into<PathBuf>) -> Hierarchy {
        Hierarchy { root: root.into() }
    }

    /// Returns the group that a user names by its directory or by its path from the root of the hierarchy.
    pub fn group(&self, path: &str) -> Result<ControlGroup, GroupError> {
        let absent = || GroupError::Absent { path: path.to_owned(), root: self.root.display().to_string() };
        let root = self.root.canonicalize().map_err(unreadable(&self.root))?;
        let below_root = root.join(path.trim_start_matches('/'));
        let named = [Path::new(path), &below_root].into_iter().filter_map(|path| path.canonicalize().ok());
        let mut groups = named.filter(|path| path.starts_with(&root) && path.join(PROCESSES).exists());
        let folder = groups.next().ok_or_else(absent)?;
        Ok(ControlGroup::of(&root, folder))
    }

    /// Returns the group of a running unit of systemd.
    pub fn unit(&self, name: &str) -> Result<ControlGroup, GroupError> {
        if name.contains('/') || !UNIT_KINDS.iter().any(|kind| name.ends_with(kind) && name != *kind) {
            return Err(GroupError::NoUnitName { name: name.to_owned() });
        }
        let mut found = Vec::new();
        walk(&self.root, &mut |folder| {
            if folder.file_name().is_some_and(|own| own == name) {
                found.push(ControlGroup::of(&self.root, folder.to_owned()));
            }
            Ok(())
        })?;
        found.sort_by(|a, b| a.path.cmp(&b.path));
        // Nobody makes the name of a unit of the system ambiguous by one of their own.
        let uid = nix::unistd::geteuid().as_raw();
        let has_the_name =
            |group: &ControlGroup| units_of(&group.path, uid).first().is_some_and(|own| own == name);
        if found.iter().any(has_the_name) {
            found.retain(has_the_name);
        }
        match found.len() {
            0 => Err(GroupError::NoUnit { name: name.to_owned(), root: self.root.display().to_string() }),
            1 => Ok(found.remove(0)),
            _ => Err(GroupError::Ambiguous {
                name: name.to_owned(),
                paths: found.into_iter().map(|group| group.path).collect(),
            }),
        }
    }
}

impl Hierarchy {
    /// Returns the names of the running units of systemd, as far as they can be seen.
    pub fn unit_names(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        // What cannot be read ends the walk: some names are better than none.
        let _ = walk(&self.root, &mut |folder| {
            let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
            names.extend(name.filter(|name| UNIT_KINDS.iter().any(|kind| name.ends_with(kind))));
            Ok(())
        });
        names
    }
}

impl ControlGroup {
    fn of(root: &Path, folder: PathBuf) -> ControlGroup {
        let below = folder.strip_prefix(root).unwrap_or(&folder);
        let path = format!("/{}", below.display());
        ControlGroup { folder, path }
    }

    /// Returns the path from the root of the hierarchy, as in `/proc/PID/cgroup`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the last part of the path: the name of a unit.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').find(|part| !part.is_empty()).unwrap_or("/")
    }

    /// Returns the processes in the group and in the groups below it; none once the group is gone.
    pub fn processes(&self) -> Result<Vec<u32>, GroupError> {
        let mut processes = Vec::new();
        walk(&self.folder, &mut |folder| {
            let path = folder.join(PROCESSES);
            let list = match std::fs::read_to_string(&path) {
                Ok(list) => list,
                // The group is gone; or it contains threads of processes that the group above lists.
                Err(error) if is_gone(&error) || error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                    return Ok(());
                }
                Err(error) => return Err(unreadable(&path)(error)),
            };
            // A process outside of this PID namespace is 0.
            let pids = list.lines().filter_map(|line| line.parse::<u32>().ok()).filter(|&pid| pid > 0);
            processes.extend(pids);
            Ok(())
        })?;
        processes.sort_unstable();
        processes.dedup();
        Ok(processes)
    }
}

impl fmt::Display for ControlGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "control group {}", self.path)
    }
}

/// Returns the units of systemd that a group is in, by its path, for the rules of user `uid`: its own first,
/// then those around it.
///
/// Anybody may give a unit of their own any name, so that of the machine's `backup.service`, too. The
/// system's manager makes slices, and services and scopes in them; what lies below one of these was made by
/// those who run in it: a user's manager (`user@1000.service`), a container. Such a unit is called by both
/// names: `user@1000.service/backup.service`. What the user's own manager has made is called as what the
/// system's has.
pub fn units_of(path: &str, uid: u32) -> Vec<String> {
    let own_manager = format!("user@{uid}.service");
    let (mut units, mut maker) = (Vec::new(), None);
    for part in path.split('/').filter(|part| !part.is_empty()) {
        if UNIT_KINDS.iter().any(|kind| part.ends_with(kind) && part != *kind) {
            let other = maker.filter(|maker| *maker != own_manager);
            units.push(other.map_or(part.to_owned(), |maker| format!("{maker}/{part}")));
        }
        if maker.is_none() && !part.ends_with(".slice") {
            maker = Some(part);
        }
    }
    units.reverse();
    units
}

/// Returns the user in whose slice a group is, by its path: all that this user starts is there, whatever
/// rights it gets. Only the system's manager makes such slices.
pub fn user_of(path: &str) -> Option<u32> {
    let slice = path.strip_prefix("/user.slice/user-")?.split('/').next()?;
    slice.strip_suffix(".slice")?.parse().ok()
}

/// A service, container or desktop application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// The path of its group: it has that alone.
    pub path: String,
    /// Its name, which others may have, too.
    pub name: String,
}

/// Returns the service, container or desktop application that a group is in, by its path: the innermost one.
/// `None` of the groups in which people start programs one by one: sessions, terminals, and everything
/// without a unit.
///
/// Known are the units of systemd, and the groups that docker, podman, containerd, CRI-O and LXC make with
/// and without systemd. The ID of a container is shortened to twelve digits, as `docker ps` does.
pub fn service_of(path: &str) -> Option<Service> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    for (depth, part) in parts.iter().enumerate().rev() {
        let above = depth.checked_sub(1).map(|above| parts[above]);
        let service = || Service { path: format!("/{}", parts[..=depth].join("/")), name: shortened(part) };
        let is_container = is_container_id(part) || part.starts_with("lxc.payload.") || above == Some("lxc");
        match part.rsplit_once('.') {
            // The manager of a user's units, which are below it.
            Some((name, "service")) if name.starts_with("user@") => {}
            Some((name, "scope")) if is_of_session(name) => return None,
            Some((name, "service" | "scope")) if !name.is_empty() => return Some(service()),
            _ if is_container => return Some(service()),
            _ => {}
        }
    }
    None
}

/// Returns whether people start programs one by one in a scope: at a login, in a terminal.
fn is_of_session(scope: &str) -> bool {
    scope == "init" || scope.starts_with("session-") || scope.contains("-spawn-")
}

fn is_container_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Shortens the ID of a container.
fn shortened(part: &str) -> String {
    let is_id = |word: &&str| is_container_id(word);
    let id = part.split(['-', '.', '_']).find(is_id);
    id.map_or(part.to_owned(), |id| part.replace(id, &id[..12]))
}

/// Calls `see` for a directory and all directories below it, except those that are gone meanwhile.
fn walk(folder: &Path, see: &mut dyn FnMut(&Path) -> Result<(), GroupError>) -> Result<(), GroupError> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        see(&folder)?;
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if is_gone(&error) => continue,
            Err(error) => return Err(unreadable(&folder)(error)),
        };
        let is_folder = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        folders.extend(entries.flatten().filter(is_folder).map(|entry| entry.path()));
    }
    Ok(())
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> GroupError + use<> {
    let path = path.display().to_string();
    move |source| GroupError::Unreadable { path: path.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_of_a_group_are_listed_from_the_inside() {
        let path = "/user.slice/user-7.slice/user@7.service/app.slice/app-x.scope/worker";
        let expected = ["app-x.scope", "app.slice", "user@7.service", "user-7.slice", "user.slice"];
        assert_eq!(units_of(path, 7), expected);
        assert!(units_of("/", 7).is_empty() && units_of("/.slice/a", 7).is_empty());
    }

    #[test]
    fn what_the_system_has_not_made_does_not_have_the_name_of_a_unit_of_the_system() {
        let units = |path: &str| units_of(path, 0);
        assert_eq!(units("/system.slice/system-db.slice/db.service/x")[0], "db.service");
        assert_eq!(units("/user.slice/user-7.slice/session-3.scope")[0], "session-3.scope");
        let of_user = "/user.slice/user-7.slice/user@7.service";
        assert_eq!(units(of_user)[0], "user@7.service");
        for (path, name) in [
            (format!("{of_user}/app.slice/db.service"), "user@7.service/db.service"),
            (format!("{of_user}/user@0.service/db.service"), "user@7.service/db.service"),
            ("/system.slice/ci.service/db.service".to_owned(), "ci.service/db.service"),
            ("/lxc.payload.web/system.slice/db.service".to_owned(), "lxc.payload.web/db.service"),
        ] {
            assert_eq!(units(&path)[0], name, "{path}");
        }
    }

    #[test]
    fn a_user_has_a_slice() {
        assert_eq!(user_of("/user.slice/user-7.slice/session-3.scope"), Some(7));
        for path in ["/", "/user.slice", "/x/user.slice/user-7.slice", "/user.slice/user-x.slice"] {
            assert_eq!(user_of(path), None, "{path}");
        }
    }

    #[test]
    fn a_service_or_container_is_distinguished_from_programs_of_a_session() {
        let id = "0123456789abcdef".repeat(4);
        let with_id = |path: &str| path.replace("ID", &id);
        for (path, expected) in [
            ("/", None),
            ("/system.slice/postgresql@15-main.service", Some("postgresql@15-main.service")),
            ("/system.slice/x.service/worker/1", Some("x.service")),
            ("/init.scope", None),
            ("/user.slice/user-7.slice/session-3.scope", None),
            ("/user.slice/user-7.slice/user@7.service/init.scope", None),
            ("/user.slice/user-7.slice/user@7.service/app.slice/emacs.service", Some("emacs.service")),
            (
                "/user.slice/user-7.slice/user@7.service/app.slice/app-gnome-firefox-9.scope",
                Some("app-gnome-firefox-9.scope"),
            ),
            ("/user.slice/user-7.slice/user@7.service/app.slice/app-term.slice/vte-spawn-1.scope", None),
            ("/system.slice/docker-ID.scope", Some("docker-0123456789ab.scope")),
            ("/docker/ID", Some("0123456789ab")),
            ("/machine.slice/libpod-ID.scope/container", Some("libpod-0123456789ab.scope")),
            (
                "/kubepods.slice/kubepods-besteffort-pod1_2.slice/cri-containerd-ID.scope",
                Some("cri-containerd-0123456789ab.scope"),
            ),
            ("/kubepods/burstable/pod1-2/ID", Some("0123456789ab")),
            ("/lxc/web/init", Some("web")),
            ("/lxc.payload.web", Some("lxc.payload.web")),
            ("/lxc.payload.web/system.slice/nginx.service", Some("nginx.service")),
            ("/machine.slice/systemd-nspawn@web.service/payload", Some("systemd-nspawn@web.service")),
            ("/build/7", None),
        ] {
            let service = service_of(&with_id(path));
            assert_eq!(service.map(|service| service.name).as_deref(), expected, "{path}");
        }
        let (name, path) = ("x.service".to_owned(), "/user.slice/user@7.service/x.service".to_owned());
        assert_eq!(service_of(&format!("{path}/worker/1")), Some(Service { path, name }));
    }

    #[test]
    fn running_units_are_listed_by_their_names() {
        let groups =
            [("a.slice", ""), ("a.slice/b.service", "7\n"), ("a.slice/b.service/worker", ""), ("c", "")];
        let (_root, groups) = hierarchy(&groups);
        assert_eq!(groups.unit_names().into_iter().collect::<Vec<_>>(), ["a.slice", "b.service"]);
    }

    fn hierarchy(groups: &[(&str, &str)]) -> (tempfile::TempDir, Hierarchy) {
        let root = tempfile::tempdir().unwrap();
        for (path, processes) in groups {
            let folder = root.path().join(path);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(PROCESSES), processes).unwrap();
        }
        let hierarchy = Hierarchy::at(root.path());
        (root, hierarchy)
    }

    #[test]
    fn a_group_is_named_by_its_folder_or_by_its_path_and_holds_what_is_below_it() {
        let (root, groups) = hierarchy(&[("", "1\n"), ("a", "7\n0\n"), ("a/b c", "9\n8\n"), ("d", "")]);
        let folder = root.path().join("a");
        for path in ["/a", "a", "a/", "/d/../a", folder.to_str().unwrap()] {
            let group = groups.group(path).unwrap();
            assert_eq!((group.path(), group.name()), ("/a", "a"), "{path}");
            assert_eq!(group.processes().unwrap(), [7, 8, 9]);
        }
        assert_eq!(groups.group("/").unwrap().processes().unwrap(), [1, 7, 8, 9]);
        let gone = groups.group("/d").unwrap();
        std::fs::remove_dir_all(root.path().join("d")).unwrap();
        assert_eq!(gone.processes().unwrap(), [0; 0]);
    }

    #[test]
    fn what_is_no_group_or_lies_elsewhere_is_refused_by_its_name() {
        let (_root, groups) = hierarchy(&[("", ""), ("a", "")]);
        for path in ["/b", "a/b", "", "/..", "/etc", "a/cgroup.procs"].into_iter().filter(|p| !p.is_empty()) {
            let error = groups.group(path).unwrap_err().to_string();
            assert!(error.starts_with(&format!("there is no control group {path} below ")), "{error}");
        }
    }

    #[test]
    fn a_unit_is_the_group_of_its_name_wherever_that_is() {
        let (_root, groups) = hierarchy(&[
            ("system.slice/web.service", "5\n"),
            ("user.slice/1/own.service", ""),
            ("user.slice/2/own.service", ""),
            ("user.slice/user-77.slice/user@77.service/web.service", ""),
        ]);
        assert_eq!(groups.unit("web.service").unwrap().path(), "/system.slice/web.service");
        assert_eq!(groups.unit("system.slice").unwrap().processes().unwrap(), [5]);
        let error = |name: &str| groups.unit(name).unwrap_err().to_string();
        assert!(error("db.service").starts_with("no unit db.service runs: "), "{}", error("db.service"));
        let both = "/user.slice/1/own.service, /user.slice/2/own.service";
        assert!(error("own.service").ends_with(both), "{}", error("own.service"));
        for name in ["web", ".service", "a/web.service", "web.socket"] {
            assert!(error(name).contains("is not the name of a unit"), "{}", error(name));
        }
    }
}
