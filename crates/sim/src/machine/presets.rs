//! Descriptions of power of real machines, by name: `power.preset`. What a scenario says itself wins.

use crate::scenario::merge;
use corewise_core::machine_model::power::Power;
use serde::{Deserialize, Deserializer, de::Error};

/// The presets. Each file says where its figures come from.
const PRESETS: [(&str, &str); 1] = [("exynos5422", include_str!("exynos5422.toml"))];

/// Reads a description of power, which may begin with a preset.
pub(super) fn power<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Power>, D::Error> {
    let Some(mut table) = Option::<toml::Table>::deserialize(from)? else { return Ok(None) };
    if let Some(name) = table.remove("preset") {
        let known = PRESETS.map(|(name, _)| name).join(", ");
        let preset = PRESETS.iter().find(|(preset, _)| name.as_str() == Some(preset));
        let (_, text) = preset.ok_or_else(|| {
            D::Error::custom(format!("there is no preset {name} of power; there are: {known}"))
        })?;
        let mut described: toml::Table = toml::from_str(text).map_err(D::Error::custom)?;
        merge(&mut described, table);
        table = described;
    }
    table.try_into().map(Some).map_err(D::Error::custom)
}
