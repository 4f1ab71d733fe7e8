//! The tables of applications and threads.

use super::about::About;
use super::look::{Role, fit, fit_right};
use super::rows::{position, value};
use super::screen::{Focus, Screen};
use crate::terminal::Name;
use crate::terminal::live::Look;
use corewise_core::classify::{FpuClass, IntensityClass, ParallelismClass};
use corewise_core::ids::{AppId, ThreadId};
use corewise_core::observe::Standing;
use corewise_core::top::{ThreadState, Top};
use ratatui::text::Line;

/// From this width on, threads have their history, too.
const WIDE: usize = 120;

/// The width of the history of a thread.
const HISTORY: usize = 16;

/// Returns the table of applications in this size.
pub fn applications(
    top: &Top,
    screen: &Screen,
    about: &About,
    (width, height): (usize, usize),
) -> Vec<Line<'static>> {
    let look = &about.look;
    let rows = screen.app_rows(top);
    let heading = fit(
        "PROGRAM               PARALLEL  RUNNABLE  CPU%  FPU%  LIMIT   THREADS  RUNNABLE OVER TIME",
        width,
    );
    let line = |app: &AppId| -> Option<String> {
        let state = top.applications.get(app)?;
        let runnable = look.number(Some(state.tlp), 1);
        let mut text = [
            fit(&Name(&state.name).to_string(), 22),
            fit(parallelism(state.class, look), 8),
            fit_right(&runnable, 10),
            fit_right(&percent(Some(state.cpu), look), 6),
            fit_right(&percent(state.fpu, look), 6),
            "  ".to_owned() + &fit(intensity(state.intensity, look), 7),
            fit_right(&state.threads.to_string(), 8),
            "  ".to_owned(),
        ]
        .concat();
        let room = width.saturating_sub(text.chars().count());
        text += &look.history(&state.history, state.history.max().max(1.0), room.min(HISTORY));
        Some(text)
    };
    let list = List { rows: &rows, chosen: screen.app, has_focus: screen.focus == Focus::Applications };
    list.lines(
        (heading, if_none(top, "no program has such a name")),
        look,
        (width, height),
        screen.is_still,
        line,
    )
}

/// Returns the table of threads in this size.
pub fn threads(
    top: &Top,
    screen: &Screen,
    about: &About,
    (width, height): (usize, usize),
) -> Vec<Line<'static>> {
    let look = &about.look;
    let rows = screen.thread_rows(top);
    let over_time = if width >= WIDE { fit("CPU OVER TIME", HISTORY + 2) } else { String::new() };
    let name = if width >= WIDE { 28 } else { 15 };
    let heading = fit("THREAD", name)
        + &format!("    TID  PE  CPU%  FPU% SPIN%   IPC   L2  FPU USE {over_time}PLACED, WHY");
    let line = |id: &ThreadId| -> Option<String> {
        let thread = top.threads.get(id)?;
        let usage = &thread.usage;
        let pe = thread.pe.map_or_else(|| look.unknown().to_owned(), |pe| pe.to_string());
        let mut text = [
            fit(&thread_name(top, thread), name),
            fit_right(&id.tid.to_string(), 7),
            fit_right(&pe, 4),
            fit_right(&percent(Some(thread.cpu), look), 6),
            fit_right(&percent(value(usage.fpu), look), 6),
            fit_right(&percent(value(usage.spin), look), 6),
            fit_right(&look.number(value(usage.ipc), 2), 6),
            fit_right(&look.number(value(usage.l2_misses_per_100_cycles), 1), 5),
            "  ".to_owned() + &fit(class(thread.class, look), 8),
        ]
        .concat();
        if width >= WIDE {
            text += &(look.history(&thread.history, 1.0, HISTORY) + "  ");
        }
        Some(text + &placed(top, *id, thread))
    };
    let list = List { rows: &rows, chosen: screen.thread, has_focus: screen.focus == Focus::Threads };
    list.lines(
        (heading, if_none(top, "no thread has such a name")),
        look,
        (width, height),
        screen.is_still,
        line,
    )
}

/// The rows of a table, one of which is chosen.
struct List<'a, T> {
    rows: &'a [T],
    chosen: Option<T>,
    has_focus: bool,
}

impl<T: Copy + PartialEq> List<'_, T> {
    /// Returns the heading and as many rows as fit, the chosen one among them.
    fn lines(
        &self,
        (heading, if_none): (String, &str),
        look: &Look,
        (width, height): (usize, usize),
        is_still: bool,
        line: impl Fn(&T) -> Option<String>,
    ) -> Vec<Line<'static>> {
        let room = height.saturating_sub(1);
        let chosen = position(self.rows, self.chosen);
        let skipped = (chosen + 1).saturating_sub(room);
        let mut lines = vec![Line::styled(fit(&heading, width), look.style(Role::Heading))];
        for (at, row) in self.rows.iter().enumerate().skip(skipped).take(room) {
            let role = if at == chosen && self.has_focus && !is_still { Role::Selected } else { Role::Plain };
            let text = line(row).unwrap_or_default();
            lines.push(Line::styled(fit(&text, width), look.style(role)));
        }
        if self.rows.is_empty() {
            lines.push(Line::styled(format!("({if_none})"), look.style(Role::Quiet)));
        }
        lines
    }
}

/// Why a table is empty.
fn if_none<'a>(top: &Top, words: &'a str) -> &'a str {
    if top.topology.is_none() { "the first look takes a moment" } else { words }
}

fn percent(share: Option<f64>, look: &Look) -> String {
    look.number(share.map(|share| 100.0 * share), 0)
}

/// A thread is called by its program, and by its own name if that is another one.
pub fn thread_name(top: &Top, thread: &ThreadState) -> String {
    let (program, name) = (top.program_of(thread), &*thread.name);
    // The kernel cuts names of threads.
    let is_same = program.starts_with(name) || name.starts_with(program);
    if is_same { Name(program).to_string() } else { format!("{}/{}", Name(program), Name(name)) }
}

/// How parallel an application is, in a word.
pub fn parallelism(class: Option<ParallelismClass>, look: &Look) -> &'static str {
    match class {
        Some(ParallelismClass::SingleThreaded) => "no (ST)",
        Some(ParallelismClass::PartiallySequential) => "partly",
        Some(ParallelismClass::HighlyParallel) => "yes (HP)",
        None => look.unknown(),
    }
}

/// What limits an application, in a word.
fn intensity(class: Option<IntensityClass>, look: &Look) -> &'static str {
    match class {
        Some(IntensityClass::Compute) => "compute",
        Some(IntensityClass::Memory) => "memory",
        None => look.unknown(),
    }
}

fn class(class: FpuClass, look: &Look) -> &'static str {
    match class {
        FpuClass::Intensive => "much",
        FpuClass::Light => "little",
        FpuClass::Unknown => look.unknown(),
    }
}

/// Where a thread is placed and why, in a few words.
fn placed(top: &Top, id: ThreadId, thread: &ThreadState) -> String {
    if let Some(assignment) = top.bound_by_daemon(id).or(thread.assignment.as_ref()) {
        return format!("{}: {}", assignment.pes, Name(&assignment.reason));
    }
    let setting = thread.settings.first().map(|(setting, _)| setting.clone());
    match thread.standing {
        Standing::SelfPinned => format!("{}: by itself", thread.permitted),
        Standing::UserPlaced => format!("{}: by its user", thread.permitted),
        Standing::StartsPrograms => "free: starts programs".to_owned(),
        Standing::LeftAlone => "left alone".to_owned(),
        Standing::NeedsAllPes => "left alone: it asked for SCHED_DEADLINE".to_owned(),
        Standing::Bound => "bound".to_owned(),
        Standing::Free | Standing::Inherited => setting.unwrap_or_else(|| "free".to_owned()),
    }
}
