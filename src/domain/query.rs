//! A request as the router sees it: what it needs, wants and costs, without its text.

use std::{sync::Arc, time::Duration};

use super::{Modalities, ModelIndex, Timestamp};

/// Tokens in one block of [`Query::prefix`]: a KV block of vLLM's default.
pub const PREFIX_BLOCK_TOKENS: u32 = 16;

/// Which API a request came through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
    /// Another path under `/v1/`, proxied without prediction.
    Other(String),
}

/// What the request's `model` field named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// The virtual model: the router chooses among all models.
    Virtual,
    /// One concrete model: the router chooses among its replicas.
    Model(ModelIndex),
}

/// What a request demands of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Input kinds it carries besides text.
    pub modalities: Modalities,
    /// It names tools.
    pub tools: bool,
    /// It asks for a structured answer.
    pub structured_output: bool,
}

/// What the client accepts at worst; it rules models out by their predictions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    /// Least predicted accuracy in `[0,1]`.
    pub min_accuracy: Option<f64>,
    /// Most predicted cost, USD.
    pub max_cost_usd: Option<f64>,
}

/// The weights of the routing objective for one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tradeoff {
    /// λ of eq. 4: utility given up per USD.
    pub lambda_per_usd: f64,
    /// δ of eq. 7: utility given up per second of TTFT.
    pub delta_per_s: f64,
}

/// How a prompt's tokens were counted, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountSource {
    /// The model's own chat template and tokenizer, in the router.
    Tokenizer,
    /// The engine's `/tokenize`.
    Engine,
    /// Bytes divided by a mean token length: a labelled estimate.
    Bytes,
}

impl CountSource {
    /// Returns the label used in decisions and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Tokenizer => "tokenizer",
            Self::Engine => "engine",
            Self::Bytes => "bytes",
        }
    }
}

/// A request's size under one model's tokenizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptCount {
    /// Prompt tokens after the chat template, of all prompts together.
    pub tokens: u32,
    /// Those of the longest prompt: a completion request may carry several, each a sequence of its own.
    pub longest_tokens: u32,
    /// How they were counted.
    pub source: CountSource,
}

impl PromptCount {
    /// Sizes a request with one prompt.
    #[must_use]
    pub const fn one(tokens: u32, source: CountSource) -> Self {
        Self { tokens, longest_tokens: tokens, source }
    }
}

/// A described request: everything routing may look at.
#[derive(Clone, Debug)]
pub struct Query {
    /// The request id echoed to the client and kept in logs; never sent upstream.
    pub id: String,
    /// When its last byte had come in.
    pub arrived: Timestamp,
    /// Whose request it is, where known.
    pub tenant: Option<String>,
    /// Engine priority; smaller is sooner.
    pub priority: i32,
    /// The LoRA adapter it names, where any.
    pub adapter: Option<String>,
    /// The API it came through.
    pub endpoint: Endpoint,
    /// What its `model` field named.
    pub named: Named,
    /// The text of its `model` field.
    pub requested_model: String,
    /// What it demands of a model.
    pub needs: Needs,
    /// Whether the answer is streamed; only then TTFT can be observed.
    pub streamed: bool,
    /// The client's cap on output tokens.
    pub max_output_tokens: Option<u32>,
    /// The answers asked for (`n`).
    pub choices: u32,
    /// The TTFT target, from the complete request at the router.
    pub ttft_target: Option<Duration>,
    /// The TPOT target; logged only.
    pub tpot_target: Option<Duration>,
    /// The least accuracy and the most cost accepted.
    pub bounds: Bounds,
    /// λ and δ in force for this request.
    pub tradeoff: Tradeoff,
    /// Prompt sizes, one a model, in the pool's model order.
    pub prompts: Vec<PromptCount>,
    /// Hashes of the prompt's full blocks of [`PREFIX_BLOCK_TOKENS`] tokens, each chained to the one before;
    /// empty: not hashed.
    pub prefix: Arc<[u64]>,
}

/// A query's work on one instance, as an estimator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryLoad {
    /// Prompt tokens under the instance's model.
    pub prompt_tokens: u32,
    /// Of these, tokens the instance's prefix cache is expected to hold.
    pub cached_tokens: u32,
    /// Blocks of that hit which running requests hold.
    pub cached_blocks_in_use: u32,
    /// Predicted output tokens, at least 1.
    pub output_tokens: u32,
    /// Engine priority; smaller is sooner.
    pub priority: i32,
}
