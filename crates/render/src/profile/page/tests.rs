//! The page in a real browser, and the drawings by their elements.

use super::{drawings, render};
use crate::page::browser;
use crate::profile::fixture;
use corewise_core::profile::{Evidence, MachineProfile};
use corewise_core::topology::Topology;
use corewise_testing::needs;

fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

#[test]
fn a_browser_shows_every_figure_of_the_paper() {
    needs!(Chromium);
    let page = render(&fixture::smt());
    let dom = browser::dom(&page);
    for shown in [
        "Figure 2: synchronisation",
        "Figure 3: memory",
        "Figure 4: computation",
        "Figure 5: NAS",
        "Latency between PEs",
        "Contention curves",
        "Speed of each PE",
        "int-div-chain + fp-div-chain",
        "same core against same L3",
        "L2 256 KiB",
        "other threads used 2 % of the PEs",
        "give the directory of your NPB binaries",
        "title=\"not known\">–",
    ] {
        assert!(dom.contains(shown), "{shown} is not in {dom}");
    }
    assert_eq!(count(&dom, "<svg class=\"chart\""), 9);
    assert_eq!(count(&dom, "Simulated.</p>"), 9);
    browser::check_self_contained(&page);
    let png = browser::screenshot(&page);
    assert!(png.starts_with(b"\x89PNG") && png.len() > 60_000, "{} bytes", png.len());
}

#[test]
fn where_no_pair_is_closer_the_figures_are_against_running_alone() {
    let page = render(&fixture::two_pes());
    for shown in
        ["same L3 against alone", "Δ against running alone", "time of one thread / time of two threads"]
    {
        assert!(page.contains(shown), "{shown}");
    }
    assert!(!page.contains("Figure 2") && !page.contains("distant is better"));
}

#[test]
fn a_profile_of_nothing_has_a_page() {
    let reported = Topology::synthetic("pu:1").unwrap();
    let page = render(&MachineProfile::empty(reported, Evidence::Measured));
    assert!(page.contains("Not everything that was planned was measured") && !page.contains("NaN"), "{page}");
    assert_eq!(count(&page, "<svg"), 0);
}

#[test]
fn texts_of_a_profile_stay_texts() {
    let mut profile = fixture::smt();
    let hostile = "</text></svg><script>\"x\"</script>\u{202e}";
    profile.classes[0].name = hostile.to_owned();
    profile.circumstances.processor = Some(hostile.to_owned());
    profile.circumstances.notes = vec![hostile.to_owned()];
    profile.missing[0].why = hostile.to_owned();
    let page = render(&profile);
    assert!(!page.contains("<script") && !page.contains('\u{202e}'));
    assert!(drawings(&profile).iter().all(|(_, svg)| !svg.contains("<script")));
}

#[test]
fn figure_2_is_drawn() {
    let all = drawings(&fixture::smt());
    let (name, svg) = &all[0];
    let body = svg.split_once("</style>").map(|(_, body)| body).unwrap_or_default();
    assert_eq!(name, "figure-2-synchronisation.svg");
    insta::assert_snapshot!("figure_2", body.replace("><", ">\n<"));
}

#[test]
fn no_two_labels_of_a_drawing_meet() {
    for profile in [fixture::two_pes(), fixture::smt(), fixture::large()] {
        for (file, svg) in drawings(&profile) {
            let labels = labels(&svg);
            for (index, a) in labels.iter().enumerate() {
                let met = labels[..index].iter().find(|b| a.meets(b));
                let met = met.map(|label| &label.text);
                assert!(met.is_none(), "{file} of {}: {} meets {met:?}", profile.reported.origin, a.text);
                assert!(a.left >= -20.0 && a.right <= 1100.0, "{file}: {} leaves the drawing", a.text);
            }
        }
    }
}

/// A text of a drawing and the box that it fills.
struct Label {
    text: String,
    left: f64,
    right: f64,
    baseline: f64,
}

impl Label {
    fn meets(&self, other: &Label) -> bool {
        const HEIGHT: f64 = 9.0;
        self.left < other.right && other.left < self.right && (self.baseline - other.baseline).abs() < HEIGHT
    }
}

/// Every text element with its place; groups are moved by their `translate`.
fn labels(svg: &str) -> Vec<Label> {
    let attribute = |tag: &str, name: &str| -> f64 {
        let (_, rest) = tag.split_once(&format!(" {name}=\"")).expect("the attribute");
        rest.split('"').next().unwrap().parse().unwrap()
    };
    let mut labels = Vec::new();
    let (mut dx, mut dy) = (0.0, 0.0);
    for element in svg.split('<') {
        if let Some(place) = element.strip_prefix("g transform=\"translate(") {
            let (x, rest) = place.split_once(' ').unwrap();
            (dx, dy) = (x.parse().unwrap(), rest.split(')').next().unwrap().parse().unwrap());
        }
        let Some((tag, text)) = element.strip_prefix("text").and_then(|rest| rest.split_once('>')) else {
            continue;
        };
        let width = text.chars().count() as f64 * 6.2;
        let x = dx + attribute(tag, "x");
        let left = match tag {
            _ if tag.contains("middle") || tag.contains("cell") => x - width / 2.0,
            _ if tag.contains("end\"") => x - width,
            _ => x,
        };
        let baseline = dy + attribute(tag, "y");
        labels.push(Label { text: text.to_owned(), left, right: left + width, baseline });
    }
    labels
}
