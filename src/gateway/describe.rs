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

use super::{Gateway, error::is_answer, offload, receive::Received};
use crate::{
    domain::{CountSource, Endpoint, Named, PromptCount, Query},
    predict::QueryFeatures,
    router::Described,
    wire::openai::{self, Input, Prompt},
};

/// Largest answer of an engine's `/tokenize` that is read, bytes: it lists every token id.
const MAX_TOKENIZE_BYTES: usize = 16 << 20;

/// What a description is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// The request is sent.
    Sending,
    /// It is only shown where it would go: nothing is counted or remembered.
    Show,
}

/// A request as the router sees it.
pub(super) struct Seen {
    pub(super) described: Described,
    /// The prompt's text, where the operator keeps prompts.
    pub(super) prompt: Option<String>,
    /// Answers asked for, over all prompts.
    pub(super) answers: u32,
}

/// Turns a received request into what the router decides on.
pub(super) async fn describe(gateway: &Gateway, received: &Received, purpose: For) -> Seen {
    let wanted = match received.named {
        Named::Model(index) => Some(index.0),
        Named::Virtual => None,
    };
    let Read { counts: mut prompts, features, prompt } = read(gateway, received, wanted).await;
    ask_engines(gateway, received, purpose, &mut prompts).await;
    if purpose == For::Sending {
        gateway.meters.counted(&prompts, wanted);
    }
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
        prefix: [].into(),
    };
    let prompts = match &request.input {
        Input::Prompts(prompts) => u32::try_from(prompts.len()).unwrap_or(u32::MAX),
        Input::Messages(_) | Input::Opaque => 1,
    };
    let answers = request.n.saturating_mul(prompts);
    Seen { described: Described { query, features, given: None }, prompt, answers }
}

/// What is read of a prompt.
struct Read {
    counts: Vec<PromptCount>,
    features: Option<Arc<QueryFeatures>>,
    prompt: Option<String>,
}

/// Counts by the router's own means and makes the features, on a blocking thread.
async fn read(gateway: &Gateway, received: &Received, wanted: Option<usize>) -> Read {
    let tokenizers = Arc::clone(&gateway.tokenizers);
    let predictor = gateway.predictor.load_full();
    let request = Arc::clone(&received.request);
    let body_bytes = received.body.len();
    let keeps_prompts = gateway.recorder.keeps_prompts();
    let permit = Arc::clone(&gateway.describing).acquire_owned().await;
    let work = tokio::task::spawn_blocking(move || {
        let _held = permit;
        let counts = tokenizers.count(&request, body_bytes, wanted);
        let prompt = (request.input != Input::Opaque).then(|| request.prompt_text());
        let features = prompt.as_ref().map(|prompt| Arc::new(predictor.describe(prompt)));
        Read { counts, features, prompt: prompt.filter(|_| keeps_prompts) }
    });
    work.await.unwrap_or_else(|_| {
        // The panic's text may quote the prompt.
        tracing::error!(request_id = received.id, "describing a request panicked; it is sized by its bytes");
        let counts = gateway.tokenizers.estimate(&received.request, body_bytes);
        Read { counts, features: None, prompt: None }
    })
}

/// Replaces estimates by the engines' own counts, for models that ask for it.
async fn ask_engines(gateway: &Gateway, received: &Received, purpose: For, prompts: &mut [PromptCount]) {
    let wanted = match received.named {
        Named::Model(index) => Some(index.0),
        Named::Virtual => None,
    };
    let now = gateway.clock.now();
    let asked: Vec<usize> = (0..prompts.len())
        .filter(|&i| wanted.is_none_or(|only| only == i))
        .filter(|&i| prompts[i].source == CountSource::Bytes && gateway.tokenizers.asks_engine(i, now))
        .collect();
    if asked.is_empty() || matches!(received.endpoint, Endpoint::Other(_)) {
        return;
    }
    let (tokenizers, body) = (Arc::clone(&gateway.tokenizers), received.body.clone());
    let identify = move || tokenizers.fingerprint(&body);
    let Ok(identity) = offload::over_body(received.body.len(), identify).await else { return };
    let counts = join_all(asked.iter().map(|&i| async move {
        if let Some(tokens) = gateway.tokenizers.engine_count(i, identity) {
            return Some(tokens);
        }
        let answer = timeout(gateway.limits.tokenize, ask_engine(gateway, i, received)).await;
        let asked = answer.unwrap_or(Asked::Failed);
        match asked {
            Asked::Counted(tokens) if purpose == For::Sending => {
                gateway.tokenizers.remember(i, identity, tokens);
            }
            Asked::Failed if purpose == For::Sending => gateway.tokenizers.rest_engine(i, now),
            _ => {}
        }
        if let Asked::Counted(tokens) = asked { Some(tokens) } else { None }
    }))
    .await;
    for (&i, tokens) in asked.iter().zip(counts) {
        if let Some(tokens) = tokens {
            prompts[i] = PromptCount::one(tokens, CountSource::Engine);
        }
    }
}

/// What came of asking an engine.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Counted(u32),
    /// The request has no form that `/tokenize` takes, or no instance is up.
    NoQuestion,
    Failed,
}

async fn ask_engine(gateway: &Gateway, model: usize, received: &Received) -> Asked {
    let pool = gateway.router.pool();
    let now = gateway.clock.now();
    let mut instances = (0..pool.len()).filter(|&i| pool.spec(i).model.0 == model);
    let Some(instance) = instances.find(|&i| pool.usable(i, now).is_ok()) else {
        return Asked::NoQuestion;
    };
    let (name, request) = (pool.models()[model].id.to_string(), Arc::clone(&received.request));
    let asking = offload::over_body(received.body.len(), move || question(&name, &request)).await;
    let Ok(Some(question)) = asking else { return Asked::NoQuestion };
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
    if !is_answer(response.status()) {
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
