//! The common parts of all HTML pages.
//!
//! A page is a single file that contains its style and drawings. It has no scripts, and its content security
//! policy forbids all requests, so it can be mailed, archived and opened anywhere, with light and dark
//! themes. Pages are written with maud, which escapes every text; [`document`] makes invisible characters
//! visible.

pub mod words;

#[cfg(test)]
pub mod browser;

use crate::chart::palette;
use crate::terminal::printable;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::fmt::Display;

/// The style of every page.
pub const STYLE: &str = include_str!("style.css");

/// Returns the page, from its title, additional style rules, and its content.
pub fn document(title: &str, style: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "corewise: " (title) }
                style { "\n" (PreEscaped(palette::variables())) (PreEscaped(STYLE)) (PreEscaped(style)) }
            }
            body { main { (body) } }
        }
    };
    printable(&page.into_string()).into_owned()
}

/// Returns a value as markup.
pub fn text(value: impl Display) -> Markup {
    html! { (value) }
}

/// Returns a value, or a dash if it is unknown.
pub fn known(value: Option<impl Display>) -> Markup {
    known_markup(value.map(text))
}

/// Like [`known`], for markup.
pub fn known_markup(value: Option<Markup>) -> Markup {
    value.unwrap_or_else(|| html! { span.unknown title="not known" { "–" } })
}

/// Returns a page's header: the command that made it, its subject, and facts side by side.
pub fn header(command: &str, heading: &Markup, facts: &[(&str, Markup)], more: &Markup) -> Markup {
    html! {
        header {
            p.brand { "corewise " (command) }
            h1 { (heading) }
            (self::facts(facts))
            (more)
        }
    }
}

/// Returns names and values side by side.
pub fn facts(facts: &[(&str, Markup)]) -> Markup {
    html! {
        dl { @for (name, value) in facts { div { dt { (name) } dd { (value) } } } }
    }
}

/// Returns a section.
pub fn section(heading: &str, content: &Markup) -> Markup {
    html! { section { h2 { (heading) } (content) } }
}

/// Returns a section with a list of sentences; empty if there are none.
pub fn list(heading: &str, sentences: &[String]) -> Markup {
    if sentences.is_empty() {
        return Markup::default();
    }
    section(heading, &html! { ul { @for sentence in sentences { li { (sentence) } } } })
}

/// Returns a remark below a table or a drawing.
pub fn remark(text: impl Display) -> Markup {
    html! { p.quiet { (text) } }
}

/// Returns a table of rows that are markup (`tr`).
pub fn table(columns: &[&str], rows: &Markup) -> Markup {
    let columns: Vec<(&str, &str)> = columns.iter().map(|&name| (name, "")).collect();
    table_explained(&columns, rows)
}

/// Returns a table whose columns have names and, in their tool tips, explanations.
pub fn table_explained(columns: &[(&str, &str)], rows: &Markup) -> Markup {
    html! {
        div.scroll {
            table {
                thead {
                    tr {
                        @for (name, explanation) in columns {
                            th scope="col" title=[(!explanation.is_empty()).then_some(explanation)] { (name) }
                        }
                    }
                }
                tbody { (rows) }
            }
        }
    }
}

/// Returns a drawing that scales with the page and scrolls on narrow screens.
pub fn drawing(class: &str, (width, height): (f64, f64), label: &str, content: &Markup) -> Markup {
    html! {
        div.scroll {
            svg class=(class) viewBox={ "0 0 " (width) " " (height) } role="img" aria-label=(label) {
                (content)
            }
        }
    }
}
