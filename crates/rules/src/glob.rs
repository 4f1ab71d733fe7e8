//! Patterns: `*` stands for any text, also for none and across `/`; `?` for one character; everything else
//! for itself. These are the patterns of udev's rules, without its character classes.

/// Returns whether the pattern describes the whole text. Takes at most the product of both lengths.
pub fn fits(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    // What follows the last `*`, and the text where that was tried. An earlier `*` need not be tried again:
    // the last one can take whatever it would.
    let mut last_star = None;
    loop {
        let here = text.clone();
        let goes_on = match (pattern.next(), text.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                text = here.clone();
                last_star = Some((pattern.clone(), here));
                true
            }
            (Some('?'), Some(_)) => true,
            (Some(wanted), Some(found)) => wanted == found,
            _ => false,
        };
        if !goes_on {
            let Some((after_star, tried)) = &mut last_star else { return false };
            if tried.next().is_none() {
                return false;
            }
            (pattern, text) = (after_star.clone(), tried.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fits;
    use proptest::prelude::*;

    #[test]
    fn stars_and_question_marks_stand_for_other_text() {
        for (pattern, text) in [
            ("", ""),
            ("*", ""),
            ("*", "a/b"),
            ("a*c", "abcbc"),
            ("*.service", "x.service"),
            ("/opt/*/bin/?", "/opt/a/b/bin/c"),
            ("?", "é"),
            ("**a**", "a"),
        ] {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("", "a"), ("a", ""), ("?", ""), ("a*c", "abcb"), ("a", "A"), ("[a]", "a"), ("*b?", "aab")]
        {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
    }

    /// The definition, which takes exponential time.
    fn by_definition(pattern: &[char], text: &[char]) -> bool {
        match pattern {
            [] => text.is_empty(),
            ['*', rest @ ..] => (0..=text.len()).any(|taken| by_definition(rest, &text[taken..])),
            [first, rest @ ..] => {
                text.first().is_some_and(|found| *first == '?' || first == found)
                    && by_definition(rest, &text[1..])
            }
        }
    }

    proptest! {
        #[test]
        fn it_is_as_defined(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(fits(&pattern, &text), by_definition(&chars(&pattern), &chars(&text)));
        }
    }
}
