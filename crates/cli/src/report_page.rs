//! x
/// x
pub fn render(report: &serde_json::Value) -> String {
    report.to_string()
}
