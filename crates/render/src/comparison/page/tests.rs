use super::render;
use crate::comparison::fixture::comparison;
use crate::page::browser;
use corewise_testing::needs;

#[test]
fn the_page_shows_every_variant_and_needs_nothing_else() {
    let comparison = comparison();
    let page = render(&comparison, &comparison.findings());
    browser::check_self_contained(&page);
    for words in [
        "measured",
        "a &lt;b&gt; &amp; c",
        "(control)",
        "slower: 10.0 % more time",
        "class=\"floor\"",
        "CPU time",
    ] {
        assert!(page.contains(words), "no `{words}` in {page}");
    }
    assert!(!page.contains("<b>"), "names are no markup");
    // Each run appears once by its variant and once in its order.
    assert_eq!(page.matches("class=\"run\"").count(), 2 * comparison.trials.len());
}

#[test]
fn a_page_of_one_run_is_a_page() {
    let mut comparison = comparison();
    comparison.trials.truncate(1);
    let page = render(&comparison, &comparison.findings());
    assert!(page.contains("In the order of the runs") && !page.contains("NaN"), "{page}");
}

#[test]
fn a_browser_shows_the_page() {
    needs!(Chromium);
    let comparison = comparison();
    let page = render(&comparison, &comparison.findings());
    assert!(browser::dom(&page).contains("Ratio of the times"));
    // A picture without content is much smaller.
    assert!(browser::screenshot(&page).len() > 40_000);
}
