//! Describes a request for routing: prompt sizes a model, and the features predictions rest on.
//!
//! Templates, tokenizers and features run on blocking threads, as many at once as there are
//! processors; engines are asked with a deadline.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full, Limited};
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::{Gateway, receive::Received};
use crate::{
    domain::{CountSource, Endpoint, Named, PromptCount, Query},
    predict::QueryFeatures,
    router::Described,
    wire::openai::{self, Input, Prompt},
};

/// Largest answer of an engine's `/tokenize` that is read, bytes: it lists every token id.
const MAX_TOKENIZE_BYTES: usize = 16 << 20;

/// Turns a received request into what the router decides on.
pub(super) async fn describe(gateway: &Gateway, received: &Received) -> Described {
    let wanted = match received.named {
        Named::Model(index) => Some(index.0),
        Named::Virtual => None,
    };
    let (mut prompts, features) = size_and_featurise(gateway, received, wanted).await;
    ask_engines(gateway, received, wanted, &mut prompts).await;
    gateway.meters.counted(&prompts, wanted);
    let (asks, request) = (received.asks, &received.request);
    let query = Query {
        id: received.id.clone(),
        arrived: received.arrived,
        tenant: None,
        priority: request.priority,
        adapter: None,
        endpoint: received.endpoint.clone(),
        named: received.named,
        requested_model: request.model.clone(),
        needs: request.needs.clone(),
        streamed: request.stream,
        max_output_tokens: request.max_tokens,
        choices: request.n,
        ttft_target: asks.ttft_target,
        tpot_target: asks.tpot_target,
        bounds: asks.bounds,
        tradeoff: asks.tradeoff,
        prompts,
    };
    Described { query, features }
}

/// Counts by the router's own means and makes the features, on a blocking thread.
async fn size_and_featurise(
    gateway: &Gateway,
    received: &Received,
    wanted: Option<usize>,
) -> (Vec<PromptCount>, Option<Arc<QueryFeatures>>) {
    let tokenizers = Arc::clone(&gateway.tokenizers);
    let predictor = gateway.predictor.load_full();
    let request = Arc::clone(&received.request);
    let body_bytes = received.body.len();
    let permit = Arc::clone(&gateway.describing).acquire_owned().await;
    let work = tokio::task::spawn_blocking(move || {
        let _held = permit;
        let counts = tokenizers.count(&request, body_bytes, wanted);
        let predicted = request.input != Input::Opaque;
        let features = predicted.then(|| Arc::new(predictor.describe(&request.prompt_text())));
        (counts, features)
    });
    work.await.unwrap_or_else(|error| {
        tracing::error!(%error, request_id = received.id, "describing a request failed; it is sized by its bytes");
        (gateway.tokenizers.estimate(&received.request, body_bytes), None)
    })
}

/// Replaces estimates by the engines' own counts, for models that ask for it.
async fn ask_engines(
    gateway: &Gateway,
    received: &Received,
    wanted: Option<usize>,
    prompts: &mut [PromptCount],
) {
    let now = gateway.clock.now();
    let asked: Vec<usize> = (0..prompts.len())
        .filter(|&i| wanted.is_none_or(|only| only == i))
        .filter(|&i| prompts[i].source == CountSource::Bytes && gateway.tokenizers.asks_engine(i, now))
        .collect();
    if asked.is_empty() || matches!(received.endpoint, Endpoint::Other(_)) {
        return;
    }
    let identity = gateway.tokenizers.fingerprint(&received.body);
    let counts = join_all(asked.iter().map(|&i| async move {
        if let Some(tokens) = gateway.tokenizers.engine_count(i, identity) {
            return Some(tokens);
        }
        let answer = timeout(gateway.limits.tokenize, ask_engine(gateway, i, &received.request)).await;
        match answer {
            Ok(Asked::Counted(tokens)) => {
                gateway.tokenizers.remember(i, identity, tokens);
                return Some(tokens);
            }
            Ok(Asked::NoQuestion) => {}
            Ok(Asked::Failed) | Err(_) => gateway.tokenizers.rest_engine(i, now),
        }
        None
    }))
    .await;
    for (&i, tokens) in asked.iter().zip(counts) {
        if let Some(tokens) = tokens {
            prompts[i] = PromptCount { tokens, source: CountSource::Engine };
        }
    }
}

/// What came of asking an engine.
enum Asked {
    Counted(u32),
    /// The request has no form that `/tokenize` takes, or no instance is up.
    NoQuestion,
    Failed,
}

async fn ask_engine(gateway: &Gateway, model: usize, request: &openai::Request) -> Asked {
    let pool = gateway.router.pool();
    let now = gateway.clock.now();
    let mut instances = (0..pool.len()).filter(|&i| pool.spec(i).model.0 == model);
    let Some(instance) = instances.find(|&i| pool.view(i, now).usable.is_ok()) else {
        return Asked::NoQuestion;
    };
    let Some(question) = question(pool.models()[model].id.as_str(), request) else {
        return Asked::NoQuestion;
    };
    count_of_engine(gateway, instance, question).await.map_or(Asked::Failed, Asked::Counted)
}

/// Asks one instance; absent on any failure.
async fn count_of_engine(gateway: &Gateway, instance: usize, question: Vec<u8>) -> Option<u32> {
    #[derive(serde::Deserialize)]
    struct Answer {
        count: u32,
    }
    let mut request = Request::new(Full::new(Bytes::from(question)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = gateway.upstreams[instance].uri("/tokenize")?;
    request.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    gateway.authorization.apply(request.headers_mut());
    let response = gateway.client.request(request).await.ok()?;
    if let Some(used) = response.extensions().get::<super::connector::Used>() {
        used.mark();
    }
    if !response.status().is_success() {
        return None;
    }
    let body = Limited::new(response.into_body(), MAX_TOKENIZE_BYTES).collect().await.ok()?.to_bytes();
    serde_json::from_slice::<Answer>(&body).ok().map(|answer| answer.count)
}

/// Writes the body that vLLM's `/tokenize` takes; absent for batches of prompts.
fn question(model: &str, request: &openai::Request) -> Option<Vec<u8>> {
    let mut body = Map::new();
    body.insert("model".into(), model.into());
    match &request.input {
        Input::Messages(messages) => {
            body.insert("messages".into(), Value::Array(messages.clone()));
            body.extend(request.template.clone());
        }
        Input::Prompts(prompts) => match prompts.as_slice() {
            [Prompt::Text(text)] => {
                body.insert("prompt".into(), text.as_str().into());
            }
            _ => return None,
        },
        Input::Opaque => return None,
    }
    serde_json::to_vec(&body).ok()
}
