//! Answers and their streamed chunks, as a serving engine writes them.
//!
//! The member order and the `choices: []` usage chunk follow vLLM 0.32.

use serde::{Deserialize, Serialize};

/// Why a choice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model ended by itself or met a stop string.
    Stop,
    /// The token cap was met.
    Length,
    /// It calls tools.
    ToolCalls,
}

/// Token counts of one answer; absent ones were not told.
///
/// The names of OpenAI's responses API (`input_tokens`, `output_tokens`) are read too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenUsage")]
pub struct Usage {
    /// Prompt tokens.
    pub prompt_tokens: Option<u32>,
    /// Prompt and output tokens.
    pub total_tokens: Option<u32>,
    /// Output tokens.
    pub completion_tokens: Option<u32>,
    /// How the prompt tokens divide; null when not told.
    pub prompt_tokens_details: Option<PromptTokensDetails>,
}

/// Token counts under every name in use; engines may write both names of one count.
#[derive(Default, Deserialize)]
#[serde(default)]
struct WrittenUsage {
    prompt_tokens: Option<u32>,
    input_tokens: Option<u32>,
    total_tokens: Option<u32>,
    completion_tokens: Option<u32>,
    output_tokens: Option<u32>,
    prompt_tokens_details: Option<PromptTokensDetails>,
    input_tokens_details: Option<PromptTokensDetails>,
}

impl From<WrittenUsage> for Usage {
    fn from(written: WrittenUsage) -> Self {
        Self {
            prompt_tokens: written.prompt_tokens.or(written.input_tokens),
            total_tokens: written.total_tokens,
            completion_tokens: written.completion_tokens.or(written.output_tokens),
            prompt_tokens_details: written.prompt_tokens_details.or(written.input_tokens_details),
        }
    }
}

impl Usage {
    /// Sums up one answer.
    #[must_use]
    pub const fn new(prompt_tokens: u32, cached_tokens: u32, completion_tokens: u32) -> Self {
        Self {
            prompt_tokens: Some(prompt_tokens),
            total_tokens: Some(prompt_tokens.saturating_add(completion_tokens)),
            completion_tokens: Some(completion_tokens),
            prompt_tokens_details: Some(PromptTokensDetails { cached_tokens: Some(cached_tokens) }),
        }
    }

    /// Returns the output tokens: as told, else what the total holds besides the prompt.
    #[must_use]
    pub fn output_tokens(&self) -> Option<u32> {
        self.completion_tokens.or_else(|| self.total_tokens?.checked_sub(self.prompt_tokens?))
    }

    /// Returns the prompt tokens served from the prefix cache, where told.
    #[must_use]
    pub fn cached_tokens(&self) -> Option<u32> {
        self.prompt_tokens_details.and_then(|details| details.cached_tokens)
    }
}

/// How the prompt tokens divide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptTokensDetails {
    /// Tokens served from the prefix cache.
    #[serde(default)]
    pub cached_tokens: Option<u32>,
}

/// A whole chat answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatCompletion {
    /// `chatcmpl-` and the request id.
    pub id: String,
    /// `chat.completion`.
    pub object: String,
    /// Unix seconds.
    pub created: u64,
    /// The served model.
    pub model: String,
    /// One a requested answer.
    pub choices: Vec<ChatChoice>,
    /// Token counts.
    pub usage: Usage,
}

impl ChatCompletion {
    /// The `object` of a chat answer.
    pub const OBJECT: &str = "chat.completion";
}

/// One answer of a chat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatChoice {
    /// Its position.
    pub index: u32,
    /// The message.
    pub message: OutputMessage,
    /// Log-probabilities, passed through.
    #[serde(default)]
    pub logprobs: Option<serde_json::Value>,
    /// Why it ended.
    pub finish_reason: Option<FinishReason>,
}

/// An assistant's message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputMessage {
    /// `assistant`.
    pub role: String,
    /// Its text.
    pub content: Option<String>,
}

/// One streamed piece of a chat answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatChunk {
    /// `chatcmpl-` and the request id.
    pub id: String,
    /// `chat.completion.chunk`.
    pub object: String,
    /// Unix seconds.
    pub created: u64,
    /// The served model.
    pub model: String,
    /// What is new; empty in the usage chunk.
    pub choices: Vec<ChunkChoice>,
    /// Token counts, in the usage chunk only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

impl ChatChunk {
    /// The `object` of a chat chunk.
    pub const OBJECT: &str = "chat.completion.chunk";

    fn with(id: &str, created: u64, model: &str, choices: Vec<ChunkChoice>, usage: Option<Usage>) -> Self {
        Self {
            id: id.to_owned(),
            object: Self::OBJECT.to_owned(),
            created,
            model: model.to_owned(),
            choices,
            usage,
        }
    }

    /// Makes the chunk that opens choice `index`: the role and an empty text.
    #[must_use]
    pub fn role(id: &str, created: u64, model: &str, index: u32) -> Self {
        let delta = Delta { role: Some(String::from("assistant")), content: Some(String::new()) };
        let choice = ChunkChoice { index, delta, logprobs: None, finish_reason: None };
        Self::with(id, created, model, vec![choice], None)
    }

    /// Makes a chunk with new text for choice `index`, and its end where it has one.
    #[must_use]
    pub fn content(
        (id, created, model): (&str, u64, &str),
        index: u32,
        text: &str,
        finish_reason: Option<FinishReason>,
    ) -> Self {
        let delta = Delta { role: None, content: Some(text.to_owned()) };
        let choice = ChunkChoice { index, delta, logprobs: None, finish_reason };
        Self::with(id, created, model, vec![choice], None)
    }

    /// Makes the usage chunk: no choices, token counts only.
    #[must_use]
    pub fn usage(id: &str, created: u64, model: &str, usage: Usage) -> Self {
        Self::with(id, created, model, Vec::new(), Some(usage))
    }
}

/// What is new in one choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkChoice {
    /// Its position.
    pub index: u32,
    /// What is new.
    pub delta: Delta,
    /// Log-probabilities, passed through.
    #[serde(default)]
    pub logprobs: Option<serde_json::Value>,
    /// Why it ended; null until it does.
    pub finish_reason: Option<FinishReason>,
}

/// New parts of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    /// The role, in the opening chunk only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// New text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

/// A whole text completion, or one streamed piece of it (the two share their shape).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    /// `cmpl-` and the request id.
    pub id: String,
    /// `text_completion`.
    pub object: String,
    /// Unix seconds.
    pub created: u64,
    /// The served model.
    pub model: String,
    /// One a requested answer; empty in the usage chunk.
    pub choices: Vec<CompletionChoice>,
    /// Token counts: always in a whole answer, in the usage chunk only when streamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

impl Completion {
    /// The `object` of a completion and of its chunks.
    pub const OBJECT: &str = "text_completion";
}

/// One text completion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletionChoice {
    /// Its position.
    pub index: u32,
    /// The text, or what is new of it.
    pub text: String,
    /// Log-probabilities, passed through.
    #[serde(default)]
    pub logprobs: Option<serde_json::Value>,
    /// Why it ended; null until it does.
    pub finish_reason: Option<FinishReason>,
}

/// The answer of `GET /v1/models`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelList {
    /// `list`.
    pub object: String,
    /// One a model.
    pub data: Vec<ModelCard>,
}

impl ModelList {
    /// Wraps the cards.
    #[must_use]
    pub fn new(data: Vec<ModelCard>) -> Self {
        Self { object: String::from("list"), data }
    }
}

/// One model of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCard {
    /// Its served name.
    pub id: String,
    /// `model`.
    pub object: String,
    /// Unix seconds.
    pub created: u64,
    /// Who serves it.
    pub owned_by: String,
    /// Its context length, tokens; null when unknown.
    pub max_model_len: Option<u32>,
}

impl ModelCard {
    /// Makes a card.
    #[must_use]
    pub fn new(id: &str, created: u64, owned_by: &str, max_model_len: Option<u32>) -> Self {
        Self {
            id: id.to_owned(),
            object: String::from("model"),
            created,
            owned_by: owned_by.to_owned(),
            max_model_len,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_have_the_engines_shape() {
        let json = |chunk: &ChatChunk| serde_json::to_string(chunk).unwrap();
        assert_eq!(
            json(&ChatChunk::role("chatcmpl-a", 7, "m", 0)),
            r#"{"id":"chatcmpl-a","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}"#
        );
        assert_eq!(
            json(&ChatChunk::content(("i", 7, "m"), 1, " é", Some(FinishReason::Length))),
            r#"{"id":"i","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":1,"delta":{"content":" é"},"logprobs":null,"finish_reason":"length"}]}"#
        );
        assert_eq!(
            json(&ChatChunk::usage("i", 7, "m", Usage::new(5, 2, 3))),
            r#"{"id":"i","object":"chat.completion.chunk","created":7,"model":"m","choices":[],"usage":{"prompt_tokens":5,"total_tokens":8,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}}"#
        );
    }

    #[test]
    fn usage_may_leave_details_out() {
        for text in [r#"{"prompt_tokens":4}"#, r#"{"prompt_tokens":4,"prompt_tokens_details":null}"#] {
            let usage: Usage = serde_json::from_str(text).unwrap();
            assert_eq!((usage.prompt_tokens, usage.cached_tokens()), (Some(4), None));
            assert_eq!((usage.output_tokens(), usage.total_tokens), (None, None), "unknown is not 0");
        }
    }

    #[test]
    fn usage_is_read_under_either_name() {
        for (text, want) in [
            (r#"{"input_tokens":4,"output_tokens":2}"#, (Some(4), Some(2), None)),
            (
                r#"{"input_tokens":4,"prompt_tokens":5,"output_tokens":2,"input_tokens_details":{"cached_tokens":1}}"#,
                (Some(5), Some(2), Some(1)),
            ),
            (r#"{"prompt_tokens":4,"total_tokens":4}"#, (Some(4), Some(0), None)),
        ] {
            let usage: Usage = serde_json::from_str(text).unwrap();
            assert_eq!((usage.prompt_tokens, usage.output_tokens(), usage.cached_tokens()), want, "{text}");
        }
    }
}
