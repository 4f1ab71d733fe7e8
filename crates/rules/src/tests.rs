//! What files say, and what is wrong with them.

use crate::{
    Applications, Condition, Fact, Facts, PeChoice, Place, PowerSaver, Problem, RuleErrors, Rules, Settings,
    SourceFile, Watch, policy_word,
};
use corewise_core::waits::WaitChanges;
use proptest::prelude::*;
use std::io;

fn read(files: &[(&str, &str)]) -> Result<Rules, RuleErrors> {
    let file =
        |(path, text): &(&str, &str)| SourceFile { path: path.into(), content: Ok(text.as_bytes().to_vec()) };
    Rules::read(&files.iter().map(file).collect::<Vec<_>>())
}

fn sound(text: &str) -> Rules {
    read(&[("r.toml", text)]).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The errors of a file, without its name.
fn wrong(text: &str) -> Vec<String> {
    let errors = read(&[("r.toml", text)]).expect_err(text).0;
    let shown = errors.iter().map(ToString::to_string);
    shown.map(|error| error.strip_prefix("r.toml:").expect("the file").to_owned()).collect()
}

/// The only error of a file.
#[track_caller]
fn check(text: &str, expected: &str) {
    assert_eq!(wrong(text), [expected], "{text}");
}

fn facts() -> Facts {
    Facts {
        name: Some("train.py".to_owned()),
        comm: Some("python3.13".to_owned()),
        exe: Some("/usr/bin/python3.13".to_owned()),
        units: Some(vec!["batch.service".to_owned(), "low.slice".to_owned()]),
        user: Some("alice".to_owned()),
        uid: Some(1000),
        cgroup: Some("/low.slice/batch.service".to_owned()),
        build_id: None,
    }
}

fn name_of_match(rules: &Rules) -> Option<&str> {
    rules.matching(&facts()).rule.map(|rule| rule.name.as_str())
}

#[test]
fn every_key_is_understood() {
    let rules = sound(
        "[daemon]\npolicy = 'pa:stay=500ms'\ninterval = '250ms'\nguard = 'off'\nwaits = 'spin'\n\
         watch = 'matched'\napplications = 'program'\npower-saver = 'ignore'\n\
         [[rule]]\nname = 'a'\nmatch = { name = 'x', comm = 'x*', exe = ['y', '/z/*'], \
         build-id = 'ab*', unit = 'u.service', user = 'me', cgroup = '/c' }\nleave-alone = true\n\
         [[rule]]\nname = 'b'\nmatch.user = '*'\nkinds = ['slow', 'mid1']\nwaits = 'turns'\n\
         [[rule]]\nname = 'c'\n[rule.match]\nuser = '*'\n\
         [[rule]]\nname = 'd'\npes = '0-3'\nmatch.user = '*'\npolicy = 'pa:stay=2s'\nguard = 'on'\n\
         [[rule]]\nname = 'e'\nmatch.user = '*'\npolicy = 'none'\nadapt-team = true\n",
    );
    let daemon = &rules.daemon;
    assert_eq!(daemon.policy.as_ref().map(ToString::to_string).as_deref(), Some("pa:stay=500ms"));
    assert_eq!(daemon.interval.map(|interval| interval.as_millis()), Some(250));
    assert_eq!((daemon.guard, daemon.watch), (Some(false), Some(Watch::Matched)));
    assert_eq!(daemon.waits, WaitChanges::from_word("spin"));
    assert_eq!(daemon.applications, Some(Applications::Program));
    assert_eq!(daemon.power_saver, Some(PowerSaver::Ignore));
    let [a, b, c, d, e] = &rules.rules[..] else { panic!("{rules:?}") };
    assert_eq!(a.conditions.iter().map(|condition| condition.fact).collect::<Vec<_>>(), Fact::ALL);
    assert_eq!(a.conditions[2].patterns, ["y", "/z/*"]);
    assert_eq!(a.settings, Settings { leave_alone: true, ..Settings::default() });
    let kinds = PeChoice::Kinds(vec!["slow".to_owned(), "mid1".to_owned()]);
    assert_eq!((&b.settings.pes, b.settings.waits), (&Some(kinds), WaitChanges::from_word("turns")));
    assert_eq!((&c.settings, c.conditions.len()), (&Settings::default(), 1));
    assert_eq!(d.settings.pes, Some(PeChoice::List("0-3".parse().unwrap())));
    assert_eq!(d.place, Place { file: "r.toml".into(), position: Some((22, 1)) });
    let policies = [c, d, e].map(|rule| rule.settings.policy.as_ref().map(policy_word));
    assert_eq!(policies.each_ref().map(Option::as_deref), [None, Some("pa:stay=2s"), Some("none")]);
    assert_eq!((d.settings.guard, e.settings.guard), (Some(true), None));
    assert_eq!((d.settings.adapt_team, e.settings.adapt_team), (false, true));
    assert!(rules.ask_for(Fact::BuildId));
}

#[test]
fn no_file_and_an_empty_one_are_no_rules() {
    assert_eq!((Rules::read(&[]), sound("# nothing\n")), (Ok(Rules::default()), Rules::default()));
    assert!(!Rules::default().ask_for(Fact::Exe));
    assert!(Rules::default().matching(&Facts::default()).watched);
}

#[test]
fn the_first_rule_that_matches_wins() {
    let rule =
        |name: &str, condition: &str| format!("[[rule]]\nname = '{name}'\nmatch = {{ {condition} }}\n");
    let both = rule("alice", "user = 'alice'") + &rule("batch", "unit = 'batch.service'");
    assert_eq!(name_of_match(&sound(&both)), Some("alice"));
    let files = [("1", rule("batch", "unit = 'low.slice'")), ("2", rule("alice", "user = '1000'"))];
    let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
    assert_eq!(name_of_match(&read(&files).unwrap()), Some("batch"));
}

#[test]
fn a_rule_matches_if_all_conditions_hold() {
    for (condition, matches) in [
        ("user = 'alice', exe = '/usr/bin/python*'", true),
        ("user = 'alice', exe = '/opt/*'", false),
        ("user = ['bob', 'al?ce']", true),
        ("exe = 'python3.13'", true),
        ("exe = 'python3'", false),
        ("name = 'train.py'", true),
        ("comm = 'python3.13'", true),
        ("comm = 'train.py'", false),
        ("cgroup = '/low.slice'", true),
        ("cgroup = '/low'", false),
        ("build-id = '*'", false),
    ] {
        let rules = sound(&format!("[[rule]]\nname = 'a'\nmatch = {{ {condition} }}"));
        assert_eq!(name_of_match(&rules).is_some(), matches, "{condition}");
    }
}

#[test]
fn stars_and_question_marks_stand_for_other_text_and_everything_else_for_itself() {
    for (pattern, text, matches) in [
        ("*", "", true),
        ("*", "a/b\n", true),
        ("a*c", "abcbc", true),
        ("a*c", "abcb", false),
        ("/opt/*/bin/?", "/opt/a/b/bin/c", true),
        ("?", "é", true),
        ("?", "", false),
        ("**/", "a", false),
        ("*b?", "aab", false),
        ("a", "A", false),
        ("[a]{b,c}\\", "[a]{b,c}\\", true),
        ("[a]", "a", false),
    ] {
        let condition = Condition { fact: Fact::Comm, patterns: vec![pattern.to_owned()] };
        let facts = Facts { comm: Some(text.to_owned()), ..Facts::default() };
        assert_eq!(condition.mismatch(&facts).is_none(), matches, "{pattern} {text}");
    }
}

#[test]
fn a_unit_that_somebody_else_has_made_is_meant_only_by_a_pattern_that_says_so() {
    let units = ["user@7.service/backup.service", "user@7.service", "user-7.slice"].map(str::to_owned);
    let facts = Facts { units: Some(units.to_vec()), ..facts() };
    for (pattern, matches) in [
        ("backup.service", false),
        ("*backup.service", false),
        ("user@*.service/backup.service", true),
        ("*/backup.service", true),
        ("user@7.service", true),
        ("*.slice", true),
        ("*/user-7.slice", false),
    ] {
        let rules = sound(&format!("[[rule]]\nname = 'a'\nmatch.unit = '{pattern}'"));
        assert_eq!(rules.matching(&facts).rule.is_some(), matches, "{pattern}");
    }
}

#[test]
fn a_mismatch_names_the_first_condition_that_does_not_hold() {
    let rules =
        sound("[[rule]]\nname = 'a'\nmatch = { user = 'alice', exe = ['/opt/*', 'java'], build-id = 'a' }");
    let mismatch = |facts: &Facts| rules.rules[0].mismatch(facts).map(|mismatch| mismatch.to_string());
    let expected = "exe is /usr/bin/python3.13, not `/opt/*` or `java`";
    assert_eq!(mismatch(&facts()).as_deref(), Some(expected));
    let java = Facts { exe: Some("/usr/bin/java".to_owned()), ..facts() };
    assert_eq!(mismatch(&java).as_deref(), Some("build-id is unknown, so it is not `a`"));
    assert_eq!(mismatch(&Facts { build_id: Some("a".to_owned()), ..java }), None);
}

#[test]
fn what_matches_says_whether_and_how_a_process_is_watched() {
    let rule = "[[rule]]\nname = 'a'\nmatch.user = 'alice'\n";
    for (daemon, settings, watched, waits) in [
        ("", "", true, None),
        ("watch = 'matched'", "", true, None),
        ("watch = 'all'", "leave-alone = true", false, None),
        ("waits = 'spin'", "", true, Some("spin")),
        ("waits = 'spin'", "waits = 'off'", true, Some("off")),
    ] {
        let rules = sound(&format!("[daemon]\n{daemon}\n{rule}{settings}\n"));
        let matched = rules.matching(&facts());
        assert_eq!(
            (matched.watched, matched.settings.waits.map(WaitChanges::word)),
            (watched, waits),
            "{daemon}"
        );
    }
    let guard = |text: &str| sound(text).matching(&facts()).settings.guard;
    assert_eq!(guard("[daemon]\nguard = 'off'"), Some(false));
    assert_eq!(guard(&format!("[daemon]\nguard = 'off'\n{rule}guard = 'on'")), Some(true));
    let rules = sound("[daemon]\nwatch = 'matched'\nwaits = 'turns'");
    let matched = rules.matching(&facts());
    assert_eq!((matched.rule, matched.watched), (None, false));
    assert_eq!(matched.settings.waits, WaitChanges::from_word("turns"));
}

#[test]
fn the_first_file_that_sets_a_key_of_the_daemon_wins() {
    let files = [("1", "[daemon]\nguard = 'off'\n"), ("2", "[daemon]\nguard = 'on'\nwatch = 'matched'\n")];
    let daemon = read(&files).unwrap().daemon;
    assert_eq!((daemon.guard, daemon.watch, daemon.waits), (Some(false), Some(Watch::Matched), None));
}

#[test]
fn the_error_for_a_wrong_key_names_the_right_one_or_its_place() {
    check(
        "[deamon]",
        "1:2: a file of rules has no key `deamon`; the nearest is `daemon`; it has daemon, rule",
    );
    check(
        "[daemon]\n\n  intervall = '1s'",
        "3:3: [daemon] has no key `intervall`; the nearest is `interval`; it has policy, interval, guard, \
         waits, watch, applications, power-saver",
    );
    check(
        "[[rule]]\nname = 'a'\nmatch = { user = 'x', exec = 'y' }",
        "3:23: `match` has no key `exec`; the nearest is `exe`; it has name, comm, exe, build-id, unit, \
         user, cgroup",
    );
    let head = "[[rule]]\nname = 'a'\nmatch.user = 'x'\n";
    check(
        &format!("{head}leave_alone = true"),
        "4:1: a rule has no key `leave_alone`; the nearest is `leave-alone`; it has name, match, \
         leave-alone, kinds, pes, waits, policy, guard, adapt-team",
    );
    check(
        &format!("{head}interval = '1s'"),
        "4:1: `interval` does not belong to a rule: write it in [daemon], as one engine serves all programs",
    );
    check(
        &format!("{head}exe = 'y'"),
        "4:1: `exe` does not belong to a rule: it is a condition: write match.exe = \"…\", or what it is",
    );
    check("pes = '0'", "1:1: `pes` does not belong to a file of rules: write it in a [[rule]]");
    check(
        "daemon.team-size = 3",
        "1:8: `team-size` does not belong to [daemon]: write adapt-team = true in a [[rule]], for what \
         `corewise run` starts; running programs keep the size of their teams",
    );
}

#[test]
fn a_value_of_another_type_is_an_error() {
    check("daemon = 1", "1:10: `daemon` is a number: write [daemon] above its keys");
    check("[rule]\nname = 'a'", "1:1: `rule` is a table: write [[rule]] above the keys of each rule");
    check("rule = [1979-05-27]", "1:9: `rule` is a date: write [[rule]] above the keys of each rule");
    check("[daemon]\nguard = true", "2:9: `guard` is true or false: write on|off, in quotation marks");
    check("[daemon]\ninterval = 1.5", "2:12: `interval` is a number: write a text in quotation marks");
    let head = "[[rule]]\nname = 'a'\nmatch.user = 'x'\n";
    check(&format!("{head}leave-alone = 'yes'"), "4:15: `leave-alone` is a text: write true or false");
    check(&format!("{head}pes = [0, 1]"), "4:7: `pes` is a list: write a text in quotation marks");
    check(
        "[[rule]]\nname = 'a'\nmatch.exe = ['x', { a = 1 }]",
        "3:19: `exe` is a table: write a text in quotation marks, or a list of them",
    );
    check(
        "[[rule]]\nname = 'a'\nmatch = 'x'",
        "3:9: `match` is a text: write match = { exe = \"/usr/bin/*\" }, or another condition",
    );
    check("[[rule]]\nname = 7\nmatch.exe = 'x'", "2:8: `name` is a number: write a text in quotation marks");
}

#[test]
fn a_value_without_a_meaning_is_an_error() {
    let head = "[[rule]]\nname = 'a'\nmatch.user = 'x'\n";
    check(&format!("{head}waits = 'spinn'"), "4:9: `waits` cannot be `spinn`: write off|spin|turns|auto");
    check("[daemon]\nwatch = 'some'", "2:9: `watch` cannot be `some`: write all|matched");
    check(
        &format!("{head}kinds = ['fast', 'big']"),
        "4:18: `kinds` cannot be `big`: write fast, slow, or mid1, mid2 … on machines with more kinds \
         (`corewise topo`)",
    );
    check(
        &format!("{head}pes = '3-1'"),
        "4:7: `pes`: `3-1` is not a set of PEs: the range 3-1 ends before it starts; write for instance \
         0-3,8 or 0-15:2/4 or 0xff",
    );
    check(&format!("{head}pes = '0x0'"), "4:7: `pes`: `0x0` is no PE: write for instance 0-3");
    let [policy] = &wrong("[daemon]\npolicy = 'spred'")[..] else { panic!("one error") };
    assert!(policy.starts_with("2:10: `policy`: there is no policy `spred`"), "{policy}");
    assert!(policy.ends_with("the nearest is `spread`"), "{policy}");
    check(
        &format!("{head}policy = 'exec:command=x'"),
        "4:10: `policy`: `exec:command=x` is a command: a rule names a policy of corewise, or none",
    );
    let [policy] = &wrong(&format!("{head}policy = 'non'"))[..] else { panic!("one error") };
    assert!(policy.starts_with("4:10: `policy`: there is no policy `non`"), "{policy}");
    check(
        "[daemon]\ninterval = '5ms'",
        "2:12: `interval`: `5ms` is too short: the shortest interval is 10ms",
    );
    check(
        "[[rule]]\nname = 'a'\nmatch.build-id = 'AB'",
        "3:18: `build-id`: `AB` describes no build id: those are hexadecimal, in small letters",
    );
    check(
        "[[rule]]\nname = 'a'\nmatch.cgroup = ['/a', 'system.slice/x']",
        "3:23: `cgroup`: `system.slice/x` describes no control group: their paths begin with /",
    );
}

#[test]
fn a_rule_without_what_it_needs_is_an_error() {
    check(
        "[[rule]]\nmatch.exe = 'x'",
        "1:1: this rule has no `name`: write name = \"…\", by which messages call it",
    );
    check(
        "\n[[rule]]\nname = 'a'\n",
        "2:1: this rule has no `match`: write match = { exe = \"/usr/bin/*\" }, or another condition",
    );
    check(
        "[[rule]]\nname = 'a'\nmatch = {}",
        "3:9: `match` is empty: write match = { exe = \"/usr/bin/*\" }, or another condition",
    );
    check(
        "[[rule]]\nname = 'a'\nmatch.exe = []",
        "3:13: `exe` is empty: write a text in quotation marks, or a list of them",
    );
    check("[[rule]]\nname = ''\nmatch.exe = 'x'", "2:8: `name` is empty: write a text in quotation marks");
}

#[test]
fn settings_that_contradict_each_other_are_an_error() {
    let head = "[[rule]]\nname = 'a'\nmatch.user = 'x'\n";
    check(
        &format!("{head}pes = '0'\nkinds = 'slow'"),
        "4:7: `kinds` and `pes` contradict each other: both say which PEs; remove one",
    );
    check(
        &format!("{head}leave-alone = true\nwaits = 'off'"),
        "5:9: `leave-alone` and `waits` contradict each other: what is left alone has no other settings; \
         remove one",
    );
    check(
        &format!("{head}policy = 'none'\nleave-alone = true"),
        "4:10: `leave-alone` and `policy` contradict each other: what is left alone has no other settings; \
         remove one",
    );
    sound(&format!("{head}leave-alone = false\nwaits = 'off'"));
}

#[test]
fn two_rules_of_one_name_are_an_error_even_in_two_files() {
    let rule = "[[rule]]\nname = 'a'\nmatch.user = 'x'\n";
    let errors = read(&[("1", rule), ("2", &format!("\n{rule}")), ("3", rule)]).unwrap_err().to_string();
    let expected = "the rules have 2 errors:\n2:2:1: another rule is called `a`, too (1:1:1): rename one \
                    of them\n3:1:1: another rule is called `a`, too (1:1:1): rename one of them";
    assert_eq!(errors, expected);
}

#[test]
fn the_error_for_a_file_that_is_no_text_or_no_toml_names_the_place() {
    let file = |content: io::Result<Vec<u8>>| SourceFile { path: "/etc/r".into(), content };
    let error = |content| Rules::read(&[file(content)]).unwrap_err().to_string();
    assert_eq!(
        error(Ok(b"# \xc3\xa9\n# \xff\n".to_vec())),
        "/etc/r:2:3: the byte 0xff is not UTF-8: save the file as UTF-8"
    );
    assert_eq!(error(Err(io::Error::other("it is gone"))), "/etc/r: cannot read it: it is gone");
    let syntax = wrong("[daemon]\nwatch = all\n");
    assert!(syntax[0].starts_with("2:9: this is not TOML: "), "{syntax:?}");
    assert_eq!(syntax.len(), 1, "{syntax:?}");
    let structure = wrong("[[rule]\nname = 'a'\nkinds = 'big'\nmatch.exe = ['x'\n");
    let places: Vec<_> = structure.iter().map(|error| error.split(' ').next().unwrap_or_default()).collect();
    assert_eq!(places, ["1:8:", "4:17:"], "{structure:?}");
    let twice = wrong("[daemon]\nwatch = 'all'\nwatch = 'all'\n");
    assert!(twice[0].starts_with("3:1: this is not TOML: duplicate key"), "{twice:?}");
}

#[test]
fn all_errors_of_all_files_are_reported_in_their_order() {
    let bad = "[[rule]]\nname = 'a'\nkinds = 'big'\nmatch = { usr = 'x', exe = 1 }\n[daemon]\nguard = 'of'\n";
    let unreadable = SourceFile { path: "2".into(), content: Err(io::ErrorKind::PermissionDenied.into()) };
    let file = |path: &str| SourceFile { path: path.into(), content: Ok(bad.as_bytes().to_vec()) };
    let errors = Rules::read(&[file("1"), unreadable, file("3")]).unwrap_err().0;
    let lines = |name: &str| -> Vec<_> {
        let of_file = errors.iter().filter(|error| *error.place.file == *name);
        of_file.filter_map(|error| error.place.position).collect()
    };
    assert_eq!(lines("1"), [(3, 9), (4, 11), (4, 28), (6, 9)]);
    assert!(lines("3").starts_with(&lines("1")), "{errors:?}");
    assert!(errors.iter().any(|error| matches!(error.problem, Problem::Unreadable { .. })));
}

#[test]
fn thousands_of_errors_in_one_line_take_no_time() {
    let text = format!("rule = [{}]", "{ name = 1 },".repeat(20_000));
    assert_eq!(wrong(&text).len(), 40_000);
}

const SOUND: &str = "[daemon]\npolicy = 'pa'\nwatch = 'matched'\n[[rule]]\nname = 'a'\nkinds = ['slow']\n\
                     match = { exe = '/opt/*', user = ['x', 'é'] }\nwaits = 'off'\n";

proptest! {
    #[test]
    fn no_text_breaks_the_reader(text in "(\\PC|\n){0,200}") {
        drop(read(&[("r.toml", &text)]));
    }

    #[test]
    fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        drop(Rules::read(&[SourceFile { path: "r".into(), content: Ok(bytes) }]));
    }

    /// Every error is at a place that exists.
    #[test]
    fn no_change_of_a_sound_file_breaks_the_reader(
        at in 0..SOUND.len(),
        length in 0usize..12,
        new in "[\\[\\]{}='.,a-z\n]{0,4}",
    ) {
        let (before, after) = (SOUND.chars().take(at), SOUND.chars().skip(at + length));
        let text: String = before.chain(new.chars()).chain(after).collect();
        for error in read(&[("r.toml", &text)]).err().map(|errors| errors.0).unwrap_or_default() {
            let (line, column) = error.place.position.unwrap();
            let of_line = text.split('\n').nth(line - 1).expect("the line exists");
            prop_assert!(column <= of_line.chars().count() + 1, "{error}");
        }
    }
}
