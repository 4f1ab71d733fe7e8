//! The command line as users see it: the command tree of `clap`, with what it has no words for.
//!
//! Problem: `clap` lists subcommands without groups, and `-h` grows with every option. Approach: the tree is
//! made from the types of the commands and completed here: the list of commands by [`GROUPS`], the options of
//! long lists that `-h` shows by [`FIRST`] (all others only `--help` shows), and examples. Help,
//! manual pages and completions are made from this one tree.

use crate::examples;
use clap::Command;
use clap::Command as Tree;
use clap::builder::PossibleValue;
use corewise_render::table::Table;

/// The commands in groups. Each command is in one.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Run",
        &[
            "run",
            "compare",
            "pairs",
            "demo",
            "characterize",
            "explain",
            "progress",
            "top",
            "daemon",
            "attach",
            "detach",
            "status",
            "rules",
        ],
    ),
    ("Machine", &["topo", "calibrate", "profile", "model", "emulate-slow", "doctor"]),
    ("Other machines", &["replay", "what-if", "sim", "experiment", "policies"]),
    ("Compilers", &["paths", "pgo"]),
    ("Help", &["completions", "help"]),
];

/// What people need first, of commands with many options: what `-h` shows of them.
const FIRST: [(&str, &[&str]); 6] = [
    ("run", &["policy", "waits", "adapt-team", "guard", "report", "pid", "dry-run", "quiet"]),
    ("compare", &["policy", "variant", "copies", "runs", "budget", "duration", "json", "html", "resume"]),
    ("top", &["once", "replay", "policy"]),
    ("daemon", &["policy", "dry-run", "unit", "config-dir"]),
    ("calibrate", &["quick", "discover", "budget", "output", "html", "when-quiet", "machine"]),
    ("sim", &["policy", "runs", "set", "guard", "timeline", "json", "html", "fuzz"]),
];

/// The headings of the other options in the long help.
const HEADINGS: [(&str, &[&str]); 5] = [
    ("Policy", &["ipc-ratios", "interval", "fpu-threshold", "claims", "applications"]),
    ("Measuring", &["counters", "discovery", "pes", "kernels", "npb", "realtime", "under-load", "warmup"]),
    ("Machine", &["profile", "fast", "slow", "fpu-modules", "noise"]),
    ("Running programs", &["cgroup", "unit", "duration"]),
    ("Results", &["record", "json", "csv", "svg", "color"]),
];

/// The heading of what is under none of these.
const OTHER: &str = "More options";

/// Completes the whole command tree.
pub fn completed(mut command: Command) -> Command {
    for (name, first) in FIRST {
        command = command.mut_subcommand(name, |command| with_short_help(command, first));
    }
    command = with_words_once(with_examples(command, ""));
    let list = list(&command);
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}\nOptions:\n{{options}}"
    ))
}

/// Lets `-h` show only these options, beside arguments and help itself.
fn with_short_help(command: Command, first: &[&str]) -> Command {
    command.mut_args(|argument| match argument.get_long() {
        Some(long) if !first.contains(&long) => {
            let heading = HEADINGS.iter().find(|(_, longs)| longs.contains(&long));
            // Else manual pages would lack it.
            let help = argument.get_long_help().or(argument.get_help()).cloned().unwrap_or_default();
            let argument = argument.hide_short_help(true).long_help(help);
            argument.help_heading(heading.map_or(OTHER, |(heading, _)| heading))
        }
        _ => argument,
    })
}

/// Shows the words of a list once: where the value is called by them, not behind its help again.
fn with_words_once(command: Command) -> Command {
    let command = command.mut_args(|argument| {
        let words = argument.get_possible_values();
        let words: Vec<&str> = words.iter().map(PossibleValue::get_name).collect();
        let name = argument.get_value_names().and_then(|names| names.first());
        let is_called_so = name.is_some_and(|name| name.as_str() == words.join("|"));
        let is_hidden = is_called_so || argument.is_hide_possible_values_set();
        argument.hide_possible_values(is_hidden)
    });
    command.mut_subcommands(with_words_once)
}

/// Adds their examples to a command and those below it.
fn with_examples(command: Command, above: &str) -> Command {
    let name = format!("{above}{}", command.get_name());
    let shown: String = examples::of(&name).map(|(line, what)| format!("\n  # {what}\n  {line}")).collect();
    let above = format!("{name} ");
    let command = command.mut_subcommands(|command| with_examples(command, &above));
    if shown.is_empty() { command } else { command.after_long_help(format!("Examples:{shown}")) }
}

/// Returns the list of commands in their groups.
fn list(command: &Command) -> String {
    let heading = command.get_styles().get_header();
    let mut table = Table::new("<<");
    for (group, names) in GROUPS {
        table.words(&format!("{heading}{group}:{heading:#}"));
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map_or("Explain a command".to_owned(), ToString::to_string);
            table.row([name, about.as_str()]);
        }
    }
    table.to_string()
}

/// Returns the tree without hidden commands, in the order of the groups: for completions and manual pages.
pub fn shown(tree: &Command) -> Command {
    let names = GROUPS.iter().flat_map(|(_, names)| *names);
    let shown = names.filter_map(|name| tree.find_subcommand(name).cloned());
    Tree::new("corewise")
        .version(env!("CARGO_PKG_VERSION"))
        .about(tree.get_about().cloned().unwrap_or_default())
        .subcommand_required(true)
        .subcommands(shown)
}

/// Returns every command that users see, with its words: `corewise paths record`.
pub fn visible(tree: &Command) -> Vec<(String, Command)> {
    let mut tree = shown(tree).disable_help_subcommand(true);
    tree.build();
    let mut all = vec![("corewise".to_owned(), tree)];
    let mut next = 0;
    while let Some((words, command)) = all.get(next).cloned() {
        let below = command.get_subcommands();
        all.extend(below.map(|below| (format!("{words} {}", below.get_name()), below.clone())));
        next += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;
    use clap::ColorChoice;

    /// The longest line of help.
    const COLUMNS: usize = 100;

    fn lines(text: &impl ToString) -> Vec<String> {
        text.to_string().lines().map(str::to_owned).collect()
    }

    #[test]
    fn each_command_is_in_one_group() {
        let tree = tree();
        let named = tree.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name);
        let mut visible: Vec<&str> = named.chain(["help"]).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        visible.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(visible, grouped);
    }

    #[test]
    fn the_list_of_commands_fits_on_a_screen() {
        let text = tree().color(ColorChoice::Never).render_help().to_string();
        let long = tree().color(ColorChoice::Never).render_long_help().to_string();
        for text in [text, long] {
            assert!(text.lines().count() <= 44, "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
            assert!(text.contains("\nRun:\n  run           Run a command"), "{text}");
        }
    }

    #[test]
    fn what_short_help_shows_exists_and_fits_on_a_screen() {
        for (name, first) in FIRST {
            let mut command = visible(&tree())
                .into_iter()
                .find(|(words, _)| *words == format!("corewise {name}"))
                .unwrap()
                .1
                .color(ColorChoice::Never);
            for long in first {
                assert!(
                    command.get_arguments().any(|argument| argument.get_long() == Some(long)),
                    "{name} --{long}"
                );
            }
            let text = command.render_help().to_string();
            assert!(text.lines().count() <= 26, "{name}: {}\\n{text}", text.lines().count());
            assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        }
    }

    #[test]
    fn every_example_is_valid_and_each_command_has_three() {
        for (line, _) in examples::EXAMPLES {
            let words = shlex::split(line).unwrap();
            let words = words.into_iter().take_while(|word| word != ">");
            let parsed = tree().try_get_matches_from(words);
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
        for (words, command) in visible(&tree()) {
            let shown = command.get_after_long_help().map(lines).unwrap_or_default();
            assert!(shown.iter().all(|line| line.len() <= COLUMNS), "{shown:?}");
            if words.matches(' ').count() == 1 {
                assert_eq!(shown.iter().filter(|line| line.contains("  corewise ")).count(), 3, "{words}");
            }
        }
    }
}
