//! The live display (`corewise top`): which threads run where, what they use, and why they are there.
//!
//! Problem: a machine of any size and any number of threads has to fit into a terminal, and be understood
//! without reading anything first. Approach: everything shown is a function of the present state
//! ([`Top`]), of what the user has chosen ([`Screen`]), and of what does not change ([`About`]). The screen
//! has one order from top to bottom: what is watched, what the marks mean, the PEs as what they share
//! ([`machine`]), the programs and threads ([`tables`]), the keys. Text pages (help, an explanation) take the
//! place of the middle. Keys change nothing but the [`Screen`]. Limits: below 40 columns or 10 lines nothing
//! but a request for more is shown.

mod about;
mod explain;
mod look;
mod machine;
mod rows;
mod screen;
mod tables;

pub use about::About;
pub use rows::Sort;
pub use screen::{Effect, Focus, Page, Screen};

use crate::page::words::Share;
use crate::terminal::Name;
use crate::terminal::live::Look;
use corewise_core::policy::DEFAULT;
use corewise_core::top::Top;
use look::{Role, fit};
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};
use ratatui::{Frame, Terminal};

/// The least size.
const WIDTH_MIN: u16 = 40;
const HEIGHT_MIN: u16 = 10;

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, top: &Top, screen: &Screen, about: &About) {
    let area = frame.area();
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        let words = format!("corewise top needs at least {WIDTH_MIN} columns and {HEIGHT_MIN} lines");
        return frame.render_widget(Paragraph::new(words).wrap(Wrap { trim: true }), area);
    }
    let keys = u16::from(!screen.is_still);
    let remarks: Vec<String> = limits(about).into_iter().chain(headline(top, about)).collect();
    let head = 2 + remarks.len() as u16;
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(head), Constraint::Min(0), Constraint::Length(keys)])
            .areas(area);
    let mut lines = vec![title(top, screen, about, area.width), legend(about)];
    let width = area.width as usize;
    lines.extend(remarks.iter().map(|words| Line::styled(fit(words, width), about.look.style(Role::Quiet))));
    frame.render_widget(Paragraph::new(lines), head);
    match screen.page {
        Page::Machine => draw_machine(frame, body, top, screen, about),
        Page::Help => draw_text(frame, body, explain::help(top, about), screen, about),
        Page::Explanation => draw_text(frame, body, explain::of_selected(top, screen, about), screen, about),
    }
    frame.render_widget(Paragraph::new(keys_line(screen, about, area.width)), foot);
}

/// Returns a screen as text, without the keys and empty lines at its end.
pub fn text(top: &Top, screen: &Screen, about: &About, width: u16) -> String {
    let screen = Screen { is_still: true, ..screen.clone() };
    let look = Look { colors: false, ..about.look };
    let about = About { look, ..about.clone() };
    let rows = top.pes.len() + top.applications.len() + top.threads.len();
    let height = u16::try_from(rows + 20).unwrap_or(u16::MAX);
    // A screen has fewer cells than a 16-bit number can count.
    let height = height.min(u16::MAX / width.max(1));
    let shown = shown(top, &screen, &about, (width, height));
    shown.trim_end().to_owned() + "\n"
}

/// Returns a screen of this size as text.
fn shown(top: &Top, screen: &Screen, about: &About, (width, height): (u16, u16)) -> String {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(_) = terminal.draw(|frame| draw(frame, top, screen, about));
    let buffer = terminal.backend().buffer();
    let line = |y: u16| -> String {
        let mut line = String::new();
        let mut skip = 0;
        for x in 0..buffer.area.width {
            // A wide character takes the cells behind it, too.
            if skip > 0 {
                skip -= 1;
                continue;
            }
            let symbol = buffer[(x, y)].symbol();
            skip = Span::raw(symbol).width().saturating_sub(1);
            line.push_str(symbol);
        }
        line.trim_end().to_owned() + "\n"
    };
    (0..buffer.area.height).map(line).collect()
}

fn draw_machine(frame: &mut Frame<'_>, area: Rect, top: &Top, screen: &Screen, about: &About) {
    let (apps, height) = (top.applications.len(), area.height as usize);
    let most = if screen.is_still { top.pes.len() + 1 } else { (height / 2).saturating_sub(1).max(2) };
    let pes = machine::lines(top, &about.look, area.width as usize, most);
    let left = height.saturating_sub(pes.len() + 2);
    let most = match screen.focus {
        _ if screen.is_still => apps,
        Focus::Applications => left.saturating_sub(3),
        Focus::Threads => left / 4,
    };
    let of_apps = apps.clamp(1, most.max(1));
    let heights = [pes.len(), of_apps + 1].map(|lines| Constraint::Length(lines as u16));
    let [of_pes, of_apps, of_threads] =
        Layout::vertical([heights[0], heights[1], Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(pes), of_pes);
    let size = |area: Rect| (area.width as usize, area.height as usize);
    frame.render_widget(Paragraph::new(tables::applications(top, screen, about, size(of_apps))), of_apps);
    frame.render_widget(Paragraph::new(tables::threads(top, screen, about, size(of_threads))), of_threads);
}

/// A text of more lines than fit can be scrolled.
fn draw_text(frame: &mut Frame<'_>, area: Rect, text: Vec<String>, screen: &Screen, about: &About) {
    let style = |line: &str| match line.starts_with(' ') {
        true => about.look.style(Role::Plain),
        false => about.look.style(Role::Heading),
    };
    let width = area.width as usize;
    let wrapped = text.iter().flat_map(|line| {
        let style = style(line);
        look::wrap(line, width).into_iter().map(move |part| Line::styled(part, style))
    });
    let wrapped: Vec<Line<'_>> = wrapped.collect();
    let hidden = wrapped.len().saturating_sub(area.height as usize);
    let lines: Vec<Line<'_>> = wrapped.into_iter().skip(hidden.min(screen.scroll)).collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn title(top: &Top, screen: &Screen, about: &About, width: u16) -> Line<'static> {
    let pes = machine::words(top);
    let threads = explain::plural(top.threads.len(), "thread", "threads");
    let apps = explain::plural(top.applications.len(), "program", "programs");
    let own = top.own_share.filter(|_| about.replayed_seconds.is_none());
    // First, so that it is there in a narrow terminal, too.
    let own = own.map_or(String::new(), |share| format!(" (takes {})", Share(share)));
    let what = Name(&about.what);
    let words = format!("corewise top{own}: {pes}, {threads} of {apps} ({what})");
    let at = top.at.as_secs_f64();
    let state = match (screen.is_paused, about.replayed_seconds) {
        (true, _) => " PAUSED".to_owned(),
        (false, Some(all)) => format!(" {at:.0} of {all:.0} s ×{}", screen.speed()),
        (false, None) => format!(" {at:.0} s"),
    };
    let words = fit(&words, (width as usize).saturating_sub(state.chars().count()));
    Line::styled(words + &state, about.look.style(Role::Title))
}

fn legend(about: &About) -> Line<'static> {
    let unknown = about.look.unknown();
    let words = format!("% of one PE. FPU: floating point in use; SPIN: busy waiting; {unknown}: unknown.");
    Line::styled(words, about.look.style(Role::Quiet))
}

/// What no source of this machine measures.
fn limits(about: &About) -> Option<String> {
    let counters = &about.sources.counters;
    Some(if counters == "none" {
        "Nothing counts what threads use here: FPU, SPIN, IPC and L2 stay unknown.".to_owned()
    } else if counters.starts_with("sample") {
        "No hardware counters here: IPC and L2 stay unknown; FPU and SPIN are estimates.".to_owned()
    } else {
        return None;
    })
}

/// What a daemon does that runs here, else the policy, and what that has gained as it was measured; `None` if
/// all is left to Linux.
fn headline(top: &Top, about: &About) -> Option<String> {
    if let Some(daemon) = &top.daemon {
        let bound = top.threads.keys().filter(|thread| top.bound_by_daemon(**thread).is_some()).count();
        let threads = explain::plural(top.threads.len(), "thread", "threads");
        let found: String = daemon.findings.iter().map(|found| format!("; {}", Name(found))).collect();
        let own = daemon.own_share.map_or(String::new(), |own| format!(", takes {} of a PE", Share(own)));
        return Some(format!(
            "The daemon (policy {}) has bound {bound} of {threads}{own}{found}",
            Name(&daemon.policy)
        ));
    }
    let policy = &top.policy;
    if policy.name.is_empty() || policy.name == DEFAULT.name {
        return None;
    }
    let bound = top.threads.values().filter(|thread| thread.assignment.is_some()).count();
    let did = match (&policy.failure, &policy.nothing_to_gain) {
        (Some(why), _) => format!("has failed: {why}"),
        (None, Some(why)) => format!("has nothing to gain: {why}"),
        (None, None) => {
            let verb = if about.replayed_seconds.is_some() { "binds" } else { "would bind" };
            format!("{verb} {bound} of {}", explain::plural(top.threads.len(), "thread", "threads"))
        }
    };
    let found = policy.findings.iter().map(|found| format!("; {found}"));
    Some(format!("Policy {} {}{}", Name(&policy.name), Name(&did), found.collect::<String>()))
}

/// The keys that matter most.
fn keys_line(screen: &Screen, about: &About, width: u16) -> Line<'static> {
    let words = if screen.is_typing {
        format!("Show only names with: {}_   (Enter keeps it, Esc shows all)", Name(&screen.filter))
    } else if screen.page != Page::Machine {
        "Esc back  Up/Down scroll  q quit".to_owned()
    } else {
        let other = match (about.replayed_seconds, screen.focus) {
            (Some(_), _) => "+ - speed",
            (None, Focus::Threads) => "Tab programs",
            (None, Focus::Applications) => "Tab threads",
        };
        let sort = screen.sort.word();
        format!("q quit  ? help  Enter why  s sort:{sort}  / filter  {other}  Space pause")
    };
    Line::styled(fit(&words, width as usize), about.look.style(Role::Keys))
}

#[cfg(test)]
mod tests;
