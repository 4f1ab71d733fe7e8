//! The claims of experiments over all plausible worlds, as text for a terminal.

use crate::table::Table;
use corewise_sim::experiment::worlds::influence::Influences;
use corewise_sim::experiment::worlds::split::Condition;
use corewise_sim::experiment::worlds::standing::{
    Beyond, ClaimResult, LikeliestWorld, PublishedResult, Spread, Standing, WorldsResult,
};
use std::fmt::{Result, Write};

/// Parameters with less influence than that are not shown.
const NOTABLE: f64 = 0.05;

/// Renders an experiment.
pub fn render(result: &WorldsResult) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_result(&mut text, result);
    text
}

/// Renders the claims of all experiments as one table, and the likeliest world of each paper.
pub fn render_all(results: &[WorldsResult], likeliest: &[LikeliestWorld]) -> String {
    let mut table = Table::new("<<<");
    for result in results {
        table.row([result.experiment.name.as_str(), &tally(&[result]), &result.experiment.title]);
    }
    table.row(["all", &tally(&results.iter().collect::<Vec<_>>()), ""]);
    format!(
        "simulated: the claims of {} experiments over all worlds\n{table}{}",
        results.len(),
        best(likeliest)
    )
}

/// Renders the world in which most claims of each paper hold.
pub fn best(likeliest: &[LikeliestWorld]) -> String {
    let mut text = String::new();
    for world in likeliest {
        text += &format!(
            "\nmost claims of {}, {} of {}, hold in world {}:\n",
            world.source, world.held, world.checked, world.world
        );
        let mut values = Table::new("<<");
        for (name, value) in &world.values {
            values.row([&few(name), value]);
        }
        text += &values.to_string();
        for (experiment, claim) in &world.missing {
            text += &format!("  not {experiment}: {claim}\n");
        }
    }
    text
}

/// Returns the name of a parameter, which may be a list of many paths, in a column's width.
fn few(name: &str) -> String {
    let paths: Vec<&str> = name.split(", ").collect();
    match paths.as_slice() {
        [first, rest @ ..] if rest.len() > 1 => format!("{first} and {} more", rest.len()),
        _ => name.to_owned(),
    }
}

/// Returns a standing in words.
pub fn words(standing: Standing) -> &'static str {
    match standing {
        Standing::Holds => "holds",
        Standing::Depends => "depends",
        Standing::DoesNotHold => "does not hold",
        Standing::NotChecked => "not checked",
    }
}

/// Returns the condition under which a claim holds as a sentence.
pub fn sentence(condition: &Condition) -> String {
    format!(
        "holds where {} {} (in {} of these {} worlds, in {} of the others)",
        few(&condition.parameter),
        condition.values,
        share(condition.share),
        condition.worlds,
        share(condition.share_of_others)
    )
}

/// Returns how many claims hold, depend and do not hold.
pub fn tally(results: &[&WorldsResult]) -> String {
    let count = |standing| results.iter().map(|result| result.count(standing)).sum::<usize>();
    let all: usize = results.iter().map(|result| result.claims.len()).sum();
    let (holds, depends) = (count(Standing::Holds), count(Standing::Depends));
    let unchecked = match count(Standing::NotChecked) {
        0 => String::new(),
        count => format!(", {count} not checked"),
    };
    format!(
        "{holds} of {all} hold, {depends} depend, {} do not hold{unchecked}",
        count(Standing::DoesNotHold)
    )
}

fn share(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn effect(effect: f64) -> String {
    format!("{:+.1} %", 100.0 * effect)
}

fn spread(spread: Spread) -> String {
    format!("{}, nine of ten worlds {} to {}", effect(spread.median), effect(spread.low), effect(spread.high))
}

fn write_result(out: &mut String, result: &WorldsResult) -> Result {
    let text = &result.experiment;
    writeln!(out, "{}: {} ({}, {})", text.evidence, text.title, text.source, text.figure)?;
    writeln!(
        out,
        "\n{}: {} worlds (seed {}; runs in each: {}); {}",
        text.name,
        result.worlds,
        result.seed,
        result.runs,
        tally(&[result])
    )?;
    writeln!(out, "\nwhat the paper leaves open")?;
    let mut table = Table::new("<<<");
    for parameter in &result.parameters {
        table.row([&parameter.name, &parameter.range, &parameter.source]);
    }
    writeln!(out, "{table}\nwhat the paper found, by the share of worlds in which it holds")?;
    let mut table = Table::new("<><");
    for claim in &result.claims {
        rows(&mut table, claim);
    }
    write!(out, "{table}")?;
    write_published(out, &result.published)?;
    write_policies(out, result)
}

fn rows(table: &mut Table, claim: &ClaimResult) {
    let interval = format!("{:.0} to {:.0} %", 100.0 * claim.low, 100.0 * claim.high);
    table.row([words(claim.standing), &format!("{} ({interval})", share(claim.share)), &claim.claim]);
    let mut more = Vec::new();
    if !claim.paper.is_empty() {
        more.push(format!("paper: {}", claim.paper));
    }
    if let Some(figure) = claim.figure {
        more.push(format!("ours:  {}{}", spread(figure), claim.beyond.map_or_else(String::new, beyond)));
    }
    more.extend(claim.condition.as_ref().map(sentence));
    more.extend(claim.influences.as_ref().map(influences));
    for line in more {
        table.row(["", "", &line]);
    }
}

fn beyond(beyond: Beyond) -> String {
    format!("; {} of worlds below the range, {} above", share(beyond.below), share(beyond.above))
}

fn influences(influences: &Influences) -> String {
    let notable = influences.parameters.iter().filter(|one| one.first_order.max(one.total) >= NOTABLE);
    let one = notable.map(|one| {
        format!("{} {} alone, {} with others", one.parameter, share(one.first_order), share(one.total))
    });
    let all: Vec<String> = one.collect();
    let all = if all.is_empty() { "no parameter by itself".to_owned() } else { all.join("; ") };
    format!("depends on: {all} ({} explained)", share(influences.explained))
}

fn write_published(out: &mut String, published: &[PublishedResult]) -> Result {
    if published.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nthe paper's numbers among ours")?;
    let mut table = Table::new("<<<<");
    for number in published {
        let paper = &number.published;
        let range = if paper.lowest == paper.highest {
            effect(paper.lowest)
        } else {
            format!("{} to {}", effect(paper.lowest), effect(paper.highest))
        };
        table.row([
            format!("{}, {}", paper.scenario, paper.variant),
            format!("paper {range}"),
            format!("ours {}", spread(number.ours)),
            format!("{} of worlds have less", share(number.quantile)),
        ]);
    }
    write!(out, "{table}")
}

fn write_policies(out: &mut String, result: &WorldsResult) -> Result {
    if result.policies.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nvariants over all worlds, by their effect over the default")?;
    let mut table = Table::new("<>>>>>><");
    table.row(["", "best in", "not worse in", "mean", "regret", "at most", "worst", ""]);
    for policy in &result.policies {
        table.row([
            policy.name.clone(),
            share(policy.best),
            share(policy.not_below_default),
            effect(policy.mean),
            effect(-policy.regret),
            effect(-policy.regret_most),
            effect(policy.worst),
            format!("in {}, world {}", policy.worst_in.0, policy.worst_in.1),
        ]);
    }
    write!(out, "{table}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_paths_of_one_parameter_are_counted() {
        assert_eq!(few("a.b"), "a.b");
        assert_eq!(few("a.b, a.c"), "a.b, a.c");
        assert_eq!(few("a.b, a.c, a.d, a.e"), "a.b and 3 more");
    }
}
