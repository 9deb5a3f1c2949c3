//! The effective configuration as text, with what is secret hidden.

use serde_json::Value;

use super::Config;

/// What stands in place of a secret.
const HIDDEN: &str = "***";

/// Returns the configuration as a JSON tree in which passwords within addresses are hidden.
#[must_use]
pub fn show(config: &Config) -> Value {
    let mut tree = serde_json::to_value(config).unwrap_or_default();
    hide(&mut tree);
    tree
}

fn hide(node: &mut Value) {
    match node {
        Value::String(text) => {
            if let Some(hidden) = without_password(text) {
                *text = hidden;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide),
        Value::Object(map) => map.values_mut().for_each(hide),
        _ => {}
    }
}

/// Returns an address with its password hidden; none where it holds no password.
fn without_password(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let (login, host) = authority.rsplit_once('@')?;
    let user = login.split(':').next()?;
    Some(format!("{scheme}://{user}:{HIDDEN}@{host}{}", &rest[authority.len()..]))
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
        assert_eq!(shown["telemetry"]["otlp_endpoint"], "http://token:***@collector");
        assert_eq!(show(&Config::default())["store"]["url"], "sqlite://bear.db");
    }
}
