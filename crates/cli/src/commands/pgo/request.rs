//! What BOLT is asked to do, and what less if it fails.
//!
//! Problem: BOLT gives up a whole program because of one function that it cannot process, such as an
//! interpreter's with computed jumps, or because of one of its transformations. Approach: BOLT usually names
//! the function; that one is skipped, and BOLT is run again. If it names none, only the blocks within
//! functions are rearranged, which is most of the gain and the least risk. Limits: a skipped function may be
//! the hottest; the measurement shows whether the rest still gains.

use super::shell::quoted;
use std::path::Path;

/// Everything that usually gains.
const ALL: &str =
    "-reorder-blocks=ext-tsp -reorder-functions=cdsort -split-functions -split-all-cold -split-eh -icf=1";
/// Functions stay whole and where they are.
const BLOCKS_ONLY: &str = "-reorder-blocks=ext-tsp";

/// The maximum number of skipped functions: with more BOLT cannot process this program.
const SKIPPED_MAX: usize = 16;

/// The request to BOLT.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    blocks_only: bool,
    /// Functions that BOLT cannot process.
    skipped: Vec<String>,
}

impl Request {
    /// Returns the options of `llvm-bolt`, for the shell.
    pub fn options(&self) -> String {
        let options = if self.blocks_only { BLOCKS_ONLY } else { ALL };
        if self.skipped.is_empty() {
            return options.to_owned();
        }
        let skip = format!("--skip-funcs={}", self.skipped.join(","));
        format!("{options} {}", quoted(Path::new(&skip)))
    }

    /// Returns the next request after this one has failed with that output; `None` if there is no smaller
    /// one.
    pub fn after(&self, output: &str) -> Option<Request> {
        let is_new = |name: &String| !self.skipped.contains(name);
        let mut next = self.clone();
        match output.lines().filter_map(failing_function).find(is_new) {
            Some(name) if next.skipped.len() < SKIPPED_MAX => next.skipped.push(name),
            _ if next.blocks_only => return None,
            _ => next.blocks_only = true,
        }
        Some(next)
    }

    /// Describes what is left out, if anything is.
    pub fn left_out(&self) -> Option<String> {
        let functions = self.blocks_only.then(|| "the order of functions".to_owned());
        let all: Vec<String> = functions.into_iter().chain(self.skipped.iter().cloned()).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

/// Returns the function that an error of BOLT names, as `--skip-funcs` takes it.
fn failing_function(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("BOLT-ERROR")?.1.split_once("function ")?;
    let name = rest.split_whitespace().next()?.trim_end_matches(['.', ',', ':']);
    // `name/1(*2)` is the first of two names of a function.
    let name = name.split_once("(*").map_or(name, |(name, _)| name);
    (!name.is_empty() && !name.contains(',')).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: &str = "BOLT-INFO: enabling relocation mode
BOLT-INFO: forcing -jump-tables=move in function harmless/1(*2)
BOLT-ERROR: unable to get new address corresponding to input address 0x10a0b in function run/1(*2). Consider \
adding this function to --skip-funcs=...";

    #[test]
    fn a_function_that_bolt_names_is_skipped_and_then_less_is_asked_for() {
        let first = Request::default();
        assert_eq!((first.options().as_str(), first.left_out()), (ALL, None));
        let second = first.after(REFUSED).unwrap();
        assert_eq!(second.options(), format!("{ALL} --skip-funcs=run/1"));
        assert_eq!(second.left_out().unwrap(), "run/1");
        let third = second.after(REFUSED).unwrap();
        assert_eq!(third.options(), format!("{BLOCKS_ONLY} --skip-funcs=run/1"));
        assert_eq!(third.after(REFUSED), None);
        assert_eq!(first.after("Stack dump:").unwrap().options(), BLOCKS_ONLY);
    }

    #[test]
    fn functions_are_skipped_up_to_a_limit() {
        let failing = |round: usize| format!("BOLT-ERROR: cannot do function f{round}.");
        let requests = (0..).scan(Request::default(), |request, round| {
            *request = request.after(&failing(round))?;
            Some(request.clone())
        });
        let last = requests.last().unwrap();
        assert_eq!((last.skipped.len(), last.blocks_only), (SKIPPED_MAX, true));
    }
}
