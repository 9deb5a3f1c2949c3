//! The effective configuration as text, with what is secret hidden.

use serde_json::Value;

use super::Config;
use crate::telemetry::without_secrets;

/// Returns the configuration as a JSON tree in which passwords within addresses are hidden.
#[must_use]
pub fn show(config: &Config) -> Value {
    let mut tree = serde_json::to_value(config).unwrap_or_default();
    hide(&mut tree);
    tree
}

fn hide(node: &mut Value) {
    match node {
        Value::String(text) if text.contains("://") => *text = without_secrets(text),
        Value::Array(items) => items.iter_mut().for_each(hide),
        Value::Object(map) => map.values_mut().for_each(hide),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_addresses_are_hidden_wherever_they_stand() {
        let mut config = Config::default();
        config.store.url = Some("postgres://bear:pa:s@s@db:5432/bear?x=1".into());
        config.telemetry.otlp_endpoint = Some("http://token@collector".into());
        let shown = show(&config);
        assert_eq!(shown["store"]["url"], "postgres://bear:***@db:5432/bear?x=1");
        assert_eq!(shown["telemetry"]["otlp_endpoint"], "http://***@collector");
        assert_eq!(show(&Config::default())["store"]["url"], "sqlite://bear.db");
    }
}
