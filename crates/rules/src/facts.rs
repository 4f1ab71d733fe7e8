//! What is known of a process.

use serde::Serialize;
use std::iter::successors;

/// What is known of a process. `None` is unknown, and fulfils no condition. A process that executes another
/// program has other facts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Facts {
    /// What corewise calls it: its script, or its executable.
    pub name: Option<String>,
    /// The name of its first thread, as the kernel has it: 15 bytes at most.
    pub comm: Option<String>,
    /// The path of its executable.
    pub exe: Option<String>,
    /// The build id of its executable, in lower-case hexadecimal.
    pub build_id: Option<String>,
    /// The units of systemd that it is in, the innermost first. One that neither the system nor the user
    /// whose rules these are has made is called by its maker, too: `user@1000.service/x.service`.
    pub units: Option<Vec<String>>,
    /// The name of its user.
    pub user: Option<String>,
    /// The number of its user.
    pub uid: Option<u32>,
    /// The path of its control group.
    pub cgroup: Option<String>,
}

/// One of the facts, as a condition names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fact {
    /// What corewise calls it.
    Name,
    /// The name of its first thread.
    Comm,
    /// The executable.
    Exe,
    /// The executable's build id.
    BuildId,
    /// A unit of systemd.
    Unit,
    /// The user.
    User,
    /// The control group.
    Cgroup,
}

impl Fact {
    /// All, in the order in which they are shown.
    pub const ALL: [Fact; 7] =
        [Fact::Name, Fact::Comm, Fact::Exe, Fact::BuildId, Fact::Unit, Fact::User, Fact::Cgroup];

    /// Returns the key in the files.
    pub fn word(self) -> &'static str {
        match self {
            Fact::Name => "name",
            Fact::Comm => "comm",
            Fact::Exe => "exe",
            Fact::BuildId => "build-id",
            Fact::Unit => "unit",
            Fact::User => "user",
            Fact::Cgroup => "cgroup",
        }
    }
}

impl Facts {
    /// Returns the texts of which a condition must describe one; `None` if the fact is unknown. They are an
    /// executable's path and its file name, every unit, a user's name and number, a control group and every
    /// group that it is in.
    pub fn texts(&self, fact: Fact) -> Option<Vec<String>> {
        let one = |text: &Option<String>| text.clone().map(|text| vec![text]);
        match fact {
            Fact::Name => one(&self.name),
            Fact::Comm => one(&self.comm),
            Fact::Exe => {
                let path = self.exe.as_ref()?;
                let file = path.rsplit('/').next().filter(|file| file.len() < path.len());
                Some([path.as_str()].into_iter().chain(file).map(str::to_owned).collect())
            }
            Fact::BuildId => one(&self.build_id),
            Fact::Unit => self.units.clone(),
            Fact::User => {
                let uid = self.uid.map(|uid| uid.to_string());
                let texts: Vec<String> = self.user.iter().cloned().chain(uid).collect();
                (!texts.is_empty()).then_some(texts)
            }
            Fact::Cgroup => {
                let cgroup = self.cgroup.as_deref()?.trim_end_matches('/');
                let paths = successors(Some(cgroup), |path| path.rsplit_once('/').map(|(above, _)| above));
                Some(paths.map(|path| if path.is_empty() { "/" } else { path }.to_owned()).collect())
            }
        }
    }

    /// Returns the fact in words.
    pub fn shown(&self, fact: Fact) -> String {
        let Some(mut texts) = self.texts(fact) else { return "unknown".to_owned() };
        match fact {
            Fact::Exe | Fact::Cgroup => texts.truncate(1),
            Fact::User if texts.len() == 2 => return format!("{} ({})", texts[0], texts[1]),
            _ if texts.is_empty() => return "none".to_owned(),
            _ => {}
        }
        texts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_has_every_text_by_which_it_may_be_described() {
        let facts = Facts {
            exe: Some("/opt/render/bin/x".to_owned()),
            units: Some(vec!["a.service".to_owned(), "b.slice".to_owned()]),
            user: Some("alice".to_owned()),
            uid: Some(1000),
            cgroup: Some("/b.slice/a.service".to_owned()),
            ..Facts::default()
        };
        let texts = |fact| facts.texts(fact).unwrap();
        assert_eq!(texts(Fact::Exe), ["/opt/render/bin/x", "x"]);
        assert_eq!(texts(Fact::Unit), ["a.service", "b.slice"]);
        assert_eq!(texts(Fact::User), ["alice", "1000"]);
        assert_eq!(texts(Fact::Cgroup), ["/b.slice/a.service", "/b.slice", "/"]);
        assert_eq!((facts.texts(Fact::Name), facts.texts(Fact::BuildId)), (None, None));
        let shown = Fact::ALL.map(|fact| facts.shown(fact));
        let expected = [
            "unknown",
            "unknown",
            "/opt/render/bin/x",
            "unknown",
            "a.service, b.slice",
            "alice (1000)",
            "/b.slice/a.service",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn no_unit_is_another_fact_than_an_unknown_one() {
        let facts =
            Facts { units: Some(Vec::new()), cgroup: Some("/".to_owned()), uid: Some(7), ..Facts::default() };
        assert_eq!((facts.shown(Fact::Unit), facts.texts(Fact::Unit)), ("none".to_owned(), Some(Vec::new())));
        assert_eq!(facts.shown(Fact::Cgroup), "/");
        assert_eq!(facts.texts(Fact::User), Some(vec!["7".to_owned()]));
        assert_eq!(Facts::default().shown(Fact::Unit), "unknown");
    }
}
