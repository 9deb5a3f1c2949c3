//! From an OpenAI request to the sequences the engine will run, its answers written in advance.

use std::sync::Arc;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;
use serde_json::Value;

use super::{
    answer::{Answer, AnswerLength},
    error::ApiError,
    tokens,
};
use crate::{
    engine::NewRequest,
    truth::Profile,
    wire::openai::{Input, Prompt, Request},
};

/// Most answers of one request, over all its prompts: OpenAI's bound on `n`, and a guard of the memory.
const MAX_ANSWERS: u64 = 128;

/// Members of a request that only an engine reads; others are accepted and ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EngineOnly {
    min_tokens: Option<u32>,
    stop: Option<Stop>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Stop {
    One(String),
    Many(Vec<String>),
}

/// One sequence: what the engine runs and what the client reads.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    /// Prompt token ids.
    pub(super) prompt: Arc<[u32]>,
    /// The answer.
    pub(super) answer: Answer,
    /// Most output tokens.
    pub(super) max_tokens: u32,
    /// Chained hashes of the full blocks of prompt and answer.
    pub(super) block_hashes: Arc<[u64]>,
}

impl Sequence {
    /// Makes the engine's request under an id.
    #[must_use]
    pub(super) fn request(&self, id: String, priority: i32) -> NewRequest {
        NewRequest {
            id,
            prompt_tokens: count(&self.prompt),
            output_tokens: self.answer.tokens(),
            max_tokens: Some(self.max_tokens),
            priority,
            block_hashes: Arc::clone(&self.block_hashes),
        }
    }
}

/// Everything one HTTP request asks of the engine.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// `n` sequences a prompt, prompts in order.
    pub(super) sequences: Vec<Sequence>,
    /// From the server to the queue, simulated microseconds.
    pub(super) ingress_us: u64,
    /// From a batch's end to the client, simulated microseconds.
    pub(super) egress_us: u64,
    /// Engine priority.
    pub(super) priority: i32,
    /// Prompt tokens of all prompts, each counted once.
    pub(super) prompt_tokens: u32,
}

impl Plan {
    /// Plans a request. `number` counts requests from 0; with the seed it fixes lengths, words and delays.
    ///
    /// # Errors
    /// [`ApiError`] 400 for a prompt that is empty or too long, or a member with a bad value.
    pub(super) fn new(
        request: &Request,
        body: &[u8],
        profile: &Profile,
        draw: Draw,
    ) -> Result<Self, ApiError> {
        let engine_only: EngineOnly = serde_json::from_slice(body).map_err(|_| {
            ApiError::bad_value("stop", "`stop` is a text or a list, `min_tokens` a whole number")
        })?;
        if request.max_tokens == Some(0) {
            return Err(ApiError::bad_value("max_tokens", "`max_tokens` must be at least 1"));
        }
        let prompts = prompts(request, profile);
        if u64::from(request.n) * prompts.len() as u64 > MAX_ANSWERS {
            return Err(ApiError::bad_value("n", "At most 128 answers, over all prompts, are given."));
        }
        let mut rng = ChaCha8Rng::seed_from_u64(draw.seed);
        rng.set_stream(draw.number);
        let ingress_us = (profile.ingress.draw_s(&mut rng) * 1e6).round() as u64;
        let egress_us = (profile.egress.draw_s(&mut rng) * 1e6).round() as u64;
        let stop = match engine_only.stop {
            None => Vec::new(),
            Some(Stop::One(text)) => vec![text],
            Some(Stop::Many(texts)) => texts,
        };
        let (mut sequences, mut prompt_tokens) = (Vec::new(), 0);
        for prompt in prompts {
            let max_tokens = max_tokens(&prompt, request.max_tokens, profile.engine.max_model_len)?;
            prompt_tokens += count(&prompt);
            let prompt: Arc<[u32]> = prompt.into();
            let task = profile.output_tokens.task(request.task.as_deref(), count(&prompt));
            for _ in 0..request.n {
                let drawn = profile.output_tokens.draw_tokens(task, &mut rng);
                let length = AnswerLength {
                    natural_tokens: drawn.max(engine_only.min_tokens.unwrap_or(0)),
                    cap_tokens: max_tokens,
                    ignore_eos: request.ignore_eos,
                    stop: &stop,
                };
                let answer = Answer::write(length, &mut rng);
                let ids = [&prompt[..], &answer.ids].concat();
                let block_hashes = tokens::block_hashes(&ids, profile.engine.block_size);
                sequences.push(Sequence { prompt: Arc::clone(&prompt), answer, max_tokens, block_hashes });
            }
        }
        Ok(Self { sequences, ingress_us, egress_us, priority: request.priority, prompt_tokens })
    }
}

/// What fixes a request's random draws.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    /// The engine's seed.
    pub(super) seed: u64,
    /// The request's place in the order of arrival.
    pub(super) number: u64,
}

/// Returns the token ids of each prompt of a request.
#[must_use]
pub(super) fn prompts(request: &Request, profile: &Profile) -> Vec<Vec<u32>> {
    match &request.input {
        Input::Messages(messages) => {
            let tools = request.template.get("tools");
            let mut ids = tokens::chat_tokens(messages, tools, profile.image_tokens);
            if request.template.get("add_generation_prompt") == Some(&Value::Bool(false)) {
                ids.truncate(ids.len() - tokens::OPENING_TOKENS);
            }
            vec![ids]
        }
        Input::Prompts(prompts) => prompts
            .iter()
            .map(|prompt| match prompt {
                Prompt::Text(text) => tokens::text_tokens(text),
                Prompt::Tokens(ids) => ids.clone(),
            })
            .collect(),
        Input::Opaque => Vec::new(),
    }
}

/// Returns the most output tokens: as asked where that fits, else, nothing being asked, what the context
/// length leaves.
fn max_tokens(prompt: &[u32], asked: Option<u32>, max_model_len: u32) -> Result<u32, ApiError> {
    if prompt.is_empty() {
        return Err(ApiError::bad_value("prompt", "The prompt must hold at least one token."));
    }
    let room = max_model_len.saturating_sub(count(prompt));
    match asked {
        _ if room == 0 => Err(ApiError::prompt_too_long(count(prompt), max_model_len)),
        Some(asked) if asked > room => Err(ApiError::answer_too_long(count(prompt), asked, max_model_len)),
        Some(asked) => Ok(asked),
        None => Ok(room),
    }
}

fn count(ids: &[u32]) -> u32 {
    u32::try_from(ids.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::openai::Shape;

    fn plan(body: &str, shape: Shape, number: u64) -> Result<Plan, ApiError> {
        let profile = Profile::built_in("qwen3-8b-h100").unwrap();
        let request = Request::parse(body.as_bytes(), shape).unwrap();
        Plan::new(&request, body.as_bytes(), &profile, Draw { seed: 3, number })
    }

    fn lengths(plan: &Plan) -> Vec<u32> {
        plan.sequences.iter().map(|s| s.answer.tokens()).collect()
    }

    #[test]
    fn the_seed_and_the_place_fix_everything() {
        let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"n":2}"#;
        let (a, b) = (plan(body, Shape::Chat, 7).unwrap(), plan(body, Shape::Chat, 7).unwrap());
        assert_eq!((lengths(&a), a.ingress_us, a.egress_us), (lengths(&b), b.ingress_us, b.egress_us));
        let other = plan(body, Shape::Chat, 8).unwrap();
        assert_ne!((lengths(&a), a.ingress_us), (lengths(&other), other.ingress_us));
        assert_eq!(a.sequences.len(), 2);
        assert_ne!(a.sequences[0].answer, a.sequences[1].answer);
    }

    #[test]
    fn caps_and_floors_hold() {
        let with = |rest: &str| {
            let body = format!(r#"{{"model":"m","prompt":"one two three",{rest}}}"#);
            lengths(&plan(&body, Shape::Completion, 1).unwrap())[0]
        };
        assert_eq!(with(r#""max_tokens":5,"ignore_eos":true"#), 5);
        assert!(with(r#""min_tokens":3000"#) == 3000);
        assert_eq!(with(r#""ignore_eos":true"#), 40_960 - 3);
        assert_eq!(with(r#""ignore_eos":true,"max_tokens":40957"#), 40_960 - 3);
    }

    #[test]
    fn a_batch_of_prompts_counts_each_prompt_once() {
        let plan = plan(r#"{"model":"m","prompt":[[1,2,3],[4]],"n":2}"#, Shape::Completion, 0).unwrap();
        assert_eq!((plan.sequences.len(), plan.prompt_tokens), (4, 4));
        assert_eq!(plan.sequences[2].prompt[..], [4]);
    }

    #[test]
    fn too_long_and_empty_prompts_are_refused() {
        let ids = vec!["1"; 40_960].join(",");
        let long = plan(&format!(r#"{{"model":"m","prompt":[{ids}]}}"#), Shape::Completion, 0);
        assert_eq!(long.unwrap_err().param(), Some("input_tokens"));
        let much = plan(r#"{"model":"m","prompt":[1,2,3],"max_tokens":40958}"#, Shape::Completion, 0);
        assert_eq!(much.unwrap_err().param(), Some("max_tokens"));
        let empty = plan(r#"{"model":"m","prompt":""}"#, Shape::Completion, 0);
        assert_eq!(empty.unwrap_err().param(), Some("prompt"));
        let many = plan(r#"{"model":"m","prompt":["a","b"],"n":65}"#, Shape::Completion, 0);
        assert_eq!(many.unwrap_err().param(), Some("n"));
        let none = plan(r#"{"model":"m","prompt":"a","max_tokens":0}"#, Shape::Completion, 0);
        assert_eq!(none.unwrap_err().param(), Some("max_tokens"));
    }
}
