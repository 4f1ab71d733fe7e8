//! What every page that corewise writes has in common.
//!
//! A page is a single file: style and drawings are in it, there is no script, and its content security policy
//! forbids it every request, so it can be mailed, archived and opened anywhere, on light and dark ground.
//! Texts that come from outside are written through [`markup::Text`] only.

pub mod markup;

#[cfg(test)]
pub mod browser;

use markup::Text;
use std::fmt::{Display, Formatter, Result};

/// The page, from its title, the style rules that only it needs, and what stands in it.
pub fn document(title: &str, style: &str, body: impl Display) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>corewise: {title}</title>\n<style>\n{common}{style}</style>\n</head>\n<body>\n<main>\n\
         {body}</main>\n</body>\n</html>\n",
        title = Text(title),
        common = include_str!("style.css"),
    )
}

/// A heading's facts: names and values side by side.
pub fn facts(f: &mut Formatter<'_>, facts: &[(&str, &dyn Display)]) -> Result {
    writeln!(f, "<dl>")?;
    for (name, value) in facts {
        writeln!(f, "<div><dt>{name}</dt><dd>{value}</dd></div>")?;
    }
    writeln!(f, "</dl>")
}

/// A section with a list of sentences; nothing where there are none.
pub fn list(f: &mut Formatter<'_>, heading: &str, sentences: &[String]) -> Result {
    if sentences.is_empty() {
        return Ok(());
    }
    writeln!(f, "<section>\n<h2>{heading}</h2>\n<ul>")?;
    for sentence in sentences {
        writeln!(f, "<li>{}</li>", Text(sentence))?;
    }
    writeln!(f, "</ul>\n</section>")
}
