//! The colours of everything that is drawn.

use std::fmt::Write;

/// Colours that colour-blind readers can distinguish, on light and dark backgrounds; further ones are hues in
/// golden-angle steps.
const COLOURS: [&str; 8] =
    ["#3f7fd6", "#e08a1e", "#2aa179", "#c2569a", "#8a6fd1", "#c9543c", "#3fa7b8", "#8f8a2c"];

/// Dark to bright in equal steps to the eye, also to colour-blind ones (viridis of matplotlib, in five).
const SCALE: [[f64; 3]; 5] =
    [[68., 1., 84.], [59., 82., 139.], [33., 145., 140.], [94., 201., 98.], [253., 231., 37.]];

/// Returns the colour of the `index`th of several series.
pub fn colour(index: usize) -> String {
    match COLOURS.get(index) {
        Some(colour) => (*colour).to_owned(),
        None => format!("hsl({:.0} 50% 52%)", (index as f64 * 137.508) % 360.0),
    }
}

/// Returns the colours as variables of style sheets: `--colour-0` and so on.
pub fn variables() -> String {
    let mut rules = String::from(":root {");
    for (index, colour) in COLOURS.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(rules, " --colour-{index}: {colour};");
    }
    rules + " }\n"
}

/// Returns the colour of a value at this share of a scale.
pub fn on_scale(share: f64) -> String {
    let place = share.clamp(0.0, 1.0) * (SCALE.len() - 1) as f64;
    let below = (place as usize).min(SCALE.len() - 2);
    let part = place - below as f64;
    let [r, g, b] = [0, 1, 2].map(|i| {
        let (from, to) = (SCALE[below][i], SCALE[below + 1][i]);
        (from + (to - from) * part).round() as u8
    });
    format!("#{r:02x}{g:02x}{b:02x}")
}
