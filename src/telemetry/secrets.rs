//! Hides what is secret in addresses before they are shown, logged or put into an error.

use std::fmt::Write as _;

/// What stands in place of a secret.
const HIDDEN: &str = "***";
/// Query keys whose values are secret, by how they end.
const SECRET_KEYS: [&str; 4] = ["password", "secret", "token", "key"];

/// Returns an address with its login's password, and the values of secret query keys, hidden.
///
/// A login without a user's name (`http://token@host`) is a secret itself; where the text is no
/// proper address, rather more than less is hidden.
#[must_use]
pub fn without_secrets(address: &str) -> String {
    let (head, query) = match address.split_once('?') {
        Some((head, query)) => (head, Some(query)),
        None => (address, None),
    };
    let mut shown = without_login(head);
    for (i, pair) in query.into_iter().flat_map(|query| query.split('&')).enumerate() {
        let separator = if i == 0 { '?' } else { '&' };
        // A failed write into a string cannot happen.
        let _infallible = match pair.split_once('=') {
            Some((key, _)) if is_secret(key) => write!(shown, "{separator}{key}={HIDDEN}"),
            _ => write!(shown, "{separator}{pair}"),
        };
    }
    shown
}

fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    SECRET_KEYS.iter().any(|secret| key.ends_with(secret))
}

fn without_login(head: &str) -> String {
    let (scheme, separator, rest) = match head.split_once("://") {
        Some((scheme, rest)) => (scheme, "://", rest),
        None => ("", "", head),
    };
    let slash = rest.find('/').unwrap_or(rest.len());
    let before_slash = &rest[..slash];
    // An `@` past the first slash ends a login only where what stands before is no host and port.
    let port = before_slash.split_once(':').map(|(_, port)| port);
    let password_with_slash = port.is_some_and(|port| port.parse::<u16>().is_err());
    let end = if before_slash.contains('@') {
        before_slash.rfind('@')
    } else if password_with_slash {
        rest.rfind('@')
    } else {
        None
    };
    let Some(end) = end else { return head.to_owned() };
    let host = &rest[end + 1..];
    match rest[..end].split_once(':') {
        Some((user, _)) => format!("{scheme}{separator}{user}:{HIDDEN}@{host}"),
        None => format!("{scheme}{separator}{HIDDEN}@{host}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_addresses_are_hidden_and_the_rest_is_kept() {
        for (address, shown) in [
            ("postgres://bear:pa:s@s@db:5432/bear?x=1", "postgres://bear:***@db:5432/bear?x=1"),
            ("postgres://bear:pa/ss@db/bear", "postgres://bear:***@db/bear"),
            ("postgres://db/bear?user=u&password=pw&x", "postgres://db/bear?user=u&password=***&x"),
            ("http://token@collector", "http://***@collector"),
            ("http://h:80/snapshot?dp_rank=0&api_key=k", "http://h:80/snapshot?dp_rank=0&api_key=***"),
            ("root:pw@db/bear", "root:***@db/bear"),
            ("sqlite://bear.db", "sqlite://bear.db"),
            ("http://h:80/a@b", "http://h:80/a@b"),
            ("not an address", "not an address"),
            ("", ""),
        ] {
            assert_eq!(without_secrets(address), shown, "{address}");
        }
    }
}
