//! Which headers pass in either direction, and the ones that tell of the decision.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::config::UpstreamAuthorization;
use crate::domain::Decision;

/// The id echoed to the client; upstream it carries the attempt's own.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Headers that belong to one connection (RFC 9110 §7.6.1), and those that are set anew for the next.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Removes the headers of one connection, those that `connection` lists included.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in HOP_BY_HOP.iter().chain(&listed) {
        headers.remove(name);
    }
}

/// Turns a client's headers into those of one attempt.
pub(super) fn upstream(
    client: &HeaderMap,
    authorization: &UpstreamAuthorization,
    attempt_id: &str,
) -> HeaderMap {
    let mut headers = client.clone();
    strip_hop_by_hop(&mut headers);
    // Set anew: the next hop's host, the edited body's length. Answers are asked for uncompressed, so
    // that they can be observed.
    for name in [header::HOST, header::CONTENT_LENGTH, header::EXPECT, header::ACCEPT_ENCODING] {
        headers.remove(name);
    }
    authorization.apply(&mut headers);
    if let Ok(id) = HeaderValue::from_str(attempt_id) {
        headers.insert(REQUEST_ID, id);
    }
    headers
}

/// Adds what the decision predicted of the chosen instance.
pub(super) fn tell_decision(headers: &mut HeaderMap, decision: &Decision, decision_us: u64) {
    let mut tell = |name: &'static str, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    };
    tell("x-bear-reason", decision.reason.label().to_owned());
    tell("x-bear-decision-us", decision_us.to_string());
    let Some(chosen) = decision.chosen() else { return };
    tell("x-bear-model", chosen.model.clone());
    tell("x-bear-instance", chosen.instance.to_string());
    if let Some(ttft_s) = chosen.ttft_s {
        tell("x-bear-predicted-ttft-ms", format!("{:.1}", ttft_s * 1e3));
    }
    if let Some(tokens) = chosen.output_tokens {
        tell("x-bear-predicted-output-tokens", format!("{tokens:.0}"));
    }
    if let Some(accuracy) = chosen.accuracy {
        tell("x-bear-predicted-accuracy", format!("{accuracy:.4}"));
    }
    if let Some(cost_usd) = chosen.cost_usd {
        tell("x-bear-predicted-cost-usd", format!("{cost_usd:.8}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, x-secret-hop"),
            ("x-secret-hop", "1"),
            ("te", "trailers"),
            ("host", "bear"),
            ("content-length", "7"),
            ("accept-encoding", "gzip"),
            ("x-request-id", "mine"),
            ("authorization", "Bearer client"),
            ("traceparent", "00-a-b-01"),
            ("x-custom", "a"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers.append("x-custom", HeaderValue::from_static("b"));
        headers
    }

    #[test]
    fn only_end_to_end_headers_go_upstream() {
        let headers = upstream(&client(), &UpstreamAuthorization::Forward, "attempt");
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "traceparent", "x-custom", "x-request-id"]);
        assert_eq!(headers["x-request-id"], "attempt");
        assert_eq!(headers.get_all("x-custom").iter().count(), 2);
    }

    #[test]
    fn authorization_is_what_the_operator_says() {
        let dropped = upstream(&client(), &UpstreamAuthorization::Drop, "a");
        assert!(!dropped.contains_key("authorization"));
        let fixed = UpstreamAuthorization::Fixed(HeaderValue::from_static("Bearer ours"));
        assert_eq!(upstream(&client(), &fixed, "a")["authorization"], "Bearer ours");
    }
}
