//! Takes a request in: bounds its body, reads its headers and what routing needs of its body.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, Request, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::{Instant, timeout_at};

use super::{Gateway, error::Refusal, fault::Limit, headers::REQUEST_ID, offload};
use crate::{
    domain::{Bounds, Endpoint, Named, Timestamp, Tradeoff},
    wire::openai::{self, Shape},
};

/// Names of the TTFT target's header; the first one present counts.
const TTFT_HEADERS: [&str; 3] = ["x-slo-ttft-ms", "x-llm-d-slo-ttft-ms", "x-bear-ttft-ms"];
/// Names of the TPOT target's header; the first one present counts.
const TPOT_HEADERS: [&str; 3] = ["x-slo-tpot-ms", "x-llm-d-slo-tpot-ms", "x-bear-tpot-ms"];
/// Longest request id that is echoed and logged, bytes.
const MAX_REQUEST_ID_BYTES: usize = 256;

/// A request as it came, with what routing reads of it.
pub(super) struct Received {
    /// The id echoed to the client.
    pub(super) id: String,
    /// When its body was complete.
    pub(super) arrived: Timestamp,
    pub(super) endpoint: Endpoint,
    pub(super) method: Method,
    pub(super) path_and_query: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) request: Arc<openai::Request>,
    pub(super) named: Named,
    pub(super) asks: Asks,
}

/// What a client asks of its routing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Asks {
    pub(super) ttft_target: Option<Duration>,
    pub(super) tpot_target: Option<Duration>,
    pub(super) bounds: Bounds,
    pub(super) tradeoff: Tradeoff,
}

/// Makes a request id.
pub(super) fn fresh_id() -> String {
    format!("req-{:032x}", rand::random::<u128>())
}

/// Returns the client's request id, or a fresh one.
pub(super) fn request_id(headers: &HeaderMap) -> Result<String, Refusal> {
    let Some(value) = headers.get(REQUEST_ID) else {
        return Ok(fresh_id());
    };
    match value.to_str() {
        Ok(id) if !id.is_empty() && id.len() <= MAX_REQUEST_ID_BYTES => Ok(id.to_owned()),
        _ => Err(Refusal::Header {
            header: "x-request-id",
            expected: "1 to 256 visible ASCII characters",
            got: String::from_utf8_lossy(&value.as_bytes()[..value.len().min(64)]).into_owned(),
        }),
    }
}

/// Reads the whole request, until its time is up.
pub(super) async fn receive(
    gateway: &Gateway,
    id: String,
    endpoint: Endpoint,
    request: Request<Body>,
    ends_at: Instant,
) -> Result<Received, Refusal> {
    let (head, body) = request.into_parts();
    let body = read_body(gateway, &head.headers, body, ends_at).await?;
    let arrived = gateway.clock.now();
    let shape = match endpoint {
        Endpoint::Chat => Shape::Chat,
        Endpoint::Completions => Shape::Completion,
        Endpoint::Other(_) => Shape::Opaque,
    };
    let whole = body.clone();
    let parse = move || openai::Request::parse(&whole, shape);
    let request = Arc::new(offload::over_body(body.len(), parse).await??);
    let asks = read_asks(gateway, &head.headers, &request)?;
    Ok(Received {
        id,
        arrived,
        named: named(gateway, &request.model, &endpoint)?,
        path_and_query: head.uri.path_and_query().map_or_else(|| "/".into(), ToString::to_string),
        endpoint,
        method: head.method,
        headers: head.headers,
        body,
        request,
        asks,
    })
}

/// Reads a body of at most the size taken, with no longer silence than an answer may have.
pub(super) async fn read_body(
    gateway: &Gateway,
    headers: &HeaderMap,
    body: Body,
    ends_at: Instant,
) -> Result<Bytes, Refusal> {
    let limit_mib = gateway.config.listen.max_body_mib;
    let limit = usize::try_from(limit_mib).unwrap_or(usize::MAX).saturating_mul(1 << 20);
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) {
        return Err(Refusal::TooLarge { limit_mib });
    }
    let mut body = Limited::new(body, limit);
    let mut pieces: Vec<Bytes> = Vec::new();
    loop {
        let silent_until = Instant::now() + gateway.limits.idle;
        let frame = match timeout_at(silent_until.min(ends_at), body.frame()).await {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(_) => {
                let limit = if silent_until < ends_at { Limit::Idle } else { Limit::Total };
                return Err(Refusal::SlowBody { limit });
            }
        };
        match frame {
            Ok(frame) => pieces.extend(frame.into_data()),
            Err(error) if error.is::<LengthLimitError>() => return Err(Refusal::TooLarge { limit_mib }),
            Err(why) => return Err(Refusal::Unreadable { why }),
        }
    }
    Ok(match pieces.as_slice() {
        [whole] => whole.clone(),
        pieces => pieces.concat().into(),
    })
}

/// Finds what the `model` member names, by way of the configured aliases.
fn named(gateway: &Gateway, model: &str, endpoint: &Endpoint) -> Result<Named, Refusal> {
    let config = gateway.router.config();
    let target = config.aliases.get(model).map_or(model, String::as_str);
    if target == config.virtual_model {
        return match endpoint {
            Endpoint::Chat | Endpoint::Completions => Ok(Named::Virtual),
            // Which models serve such a path is not known.
            Endpoint::Other(path) => Err(Refusal::NeedsModel { model: model.to_owned(), path: path.clone() }),
        };
    }
    let pool = gateway.router.pool();
    pool.model_index(target).map(Named::Model).ok_or_else(|| {
        let mut known = vec![config.virtual_model.clone()];
        known.extend(pool.models().iter().map(|model| model.id.to_string()));
        known.extend(config.aliases.keys().cloned());
        Refusal::UnknownModel { model: model.to_owned(), known }
    })
}

fn read_asks(gateway: &Gateway, headers: &HeaderMap, request: &openai::Request) -> Result<Asks, Refusal> {
    let config = gateway.router.config();
    let ttft_ms = first_number(headers, &TTFT_HEADERS, POSITIVE)?.or(request.ttft_target_ms);
    let tpot_ms = first_number(headers, &TPOT_HEADERS, POSITIVE)?;
    let mut tradeoff = config.tradeoff();
    for (header, weight) in
        [("x-bear-lambda", &mut tradeoff.lambda_per_usd), ("x-bear-delta", &mut tradeoff.delta_per_s)]
    {
        let Some(value) = number(headers, header, NOT_NEGATIVE)? else { continue };
        if !config.allow_request_tradeoff {
            let expected =
                "absent: this router does not let requests set it (routing.allow_request_tradeoff)";
            return Err(Refusal::Header { header, expected, got: value.to_string() });
        }
        *weight = value;
    }
    Ok(Asks {
        ttft_target: ttft_ms.and_then(milliseconds).or_else(|| config.default_ttft_target()),
        tpot_target: tpot_ms.and_then(milliseconds),
        bounds: Bounds {
            min_accuracy: number(headers, "x-bear-min-accuracy", SHARE)?,
            max_cost_usd: number(headers, "x-bear-max-cost-usd", NOT_NEGATIVE)?,
        },
        tradeoff,
    })
}

/// What a number may be, and how that reads.
type Kind = (fn(f64) -> bool, &'static str);
const POSITIVE: Kind = (|v| v > 0.0, "a positive number");
const NOT_NEGATIVE: Kind = (|v| v >= 0.0, "a number from 0");
const SHARE: Kind = (|v| (0.0..=1.0).contains(&v), "a number from 0 to 1");

fn milliseconds(ms: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(ms / 1e3).ok()
}

fn first_number(headers: &HeaderMap, names: &[&'static str], kind: Kind) -> Result<Option<f64>, Refusal> {
    for name in names {
        if let Some(value) = number(headers, name, kind)? {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

fn number(headers: &HeaderMap, header: &'static str, kind: Kind) -> Result<Option<f64>, Refusal> {
    let Some(value) = headers.get(HeaderName::from_static(header)) else { return Ok(None) };
    let parsed = value.to_str().ok().and_then(|text| text.trim().parse::<f64>().ok());
    match parsed.filter(|number| number.is_finite() && kind.0(*number)) {
        Some(number) => Ok(Some(number)),
        None => Err(Refusal::Header {
            header,
            expected: kind.1,
            got: String::from_utf8_lossy(&value.as_bytes()[..value.len().min(64)]).into_owned(),
        }),
    }
}
