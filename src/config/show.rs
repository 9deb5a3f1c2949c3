//! The effective configuration as text, with what is secret hidden.

use std::fmt::Write as _;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::Config;
use crate::telemetry::without_secrets;

/// Bytes of a digest: enough to tell the configurations of one team apart.
const DIGEST_BYTES: usize = 8;

/// Returns the configuration as a JSON tree in which passwords within addresses are hidden.
#[must_use]
pub fn show(config: &Config) -> Value {
    let mut tree = serde_json::to_value(config).unwrap_or_default();
    hide(&mut tree);
    tree
}

/// Returns a short digest of the effective configuration, secrets hidden: the same digest, the same values.
#[must_use]
pub fn digest(config: &Config) -> String {
    let hash = Sha256::digest(show(config).to_string());
    hash.iter().take(DIGEST_BYTES).fold(String::new(), |mut text, byte| {
        // A failed write into a string cannot happen.
        let _infallible = write!(text, "{byte:02x}");
        text
    })
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
        assert_ne!(digest(&config), digest(&Config::default()));
        assert_eq!((digest(&config), digest(&config).len()), (digest(&config.clone()), 16));
    }
}
