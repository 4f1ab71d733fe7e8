use super::render;
use crate::page::browser;
use corewise_sim::comparison::{Comparison, compare};
use corewise_sim::scenario::Scenario;
use corewise_testing::needs;

/// Its names are as nasty as names can be.
const SCENARIO: &str = r#"
name = "two <b>programs</b>"
runs = 2
machine = { name = "1FC-1SC", topology = "core:2 pu:1", speeds = [{ pes = "1", speed = 0.5 }] }
demand.int = {}
application = [
  { name = "a & b", variation = 0.1, steps = [{ each = { mcycles = 90, demand = "int" } }] },
  { name = "\"c\"", steps = [{ each = { mcycles = 60, demand = "int" } }] },
]
variant = [{ name = "PA", policy = "pa" }]
"#;

fn comparison() -> Comparison {
    compare(&Scenario::parse(SCENARIO).expect("a scenario"), None).expect("a comparison")
}

#[test]
fn the_page_shows_every_figure_and_needs_nothing_else() {
    let page = render(&comparison(), SCENARIO);
    browser::check_self_contained(&page);
    for words in [
        "<dt>Evidence</dt><dd>simulated</dd>",
        "two &lt;b&gt;programs&lt;/b&gt;",
        "a &amp; b",
        "Fairness",
        "Time on the fastest PEs",
        "class=\"whisker\"",
        "class=\"places\"",
        ">PE 1</text>",
        "speeds = [{ pes = &quot;1&quot;, speed = 0.5 }]",
    ] {
        assert!(page.contains(words), "no `{words}` in {page}");
    }
    assert!(!page.contains("<b>"), "names are no markup");
    // Two variants, two PEs each.
    assert_eq!(page.matches(">PE 0</text>").count(), 2);
}

#[test]
fn energy_is_shown_where_power_is_described() {
    let power = "power = { domain = [{ pes = '0-1', dynamic_uw_per_mhz_v2 = 1000, \
                 points = [{ ghz = 1.0, volt = 1.0 }] }] }, name";
    let scenario = SCENARIO.replacen("machine = { name", &format!("machine = {{ {power}"), 1);
    let comparison = compare(&Scenario::parse(&scenario).expect("a scenario"), None).expect("a comparison");
    let page = render(&comparison, &scenario);
    assert!(page.contains("Energy-delay product") && page.contains(" J s ("), "{page}");
    assert!(!render(&self::comparison(), SCENARIO).contains("Energy"));
}

#[test]
fn a_browser_shows_the_page() {
    needs!(Chromium);
    let dom = browser::dom(&render(&comparison(), SCENARIO));
    assert!(dom.contains("Speedup over the default"), "{dom}");
}
