//! How an answer is written for each of the two OpenAI endpoints, whole and in chunks.

use serde::Serialize;
use serde_json::Value;

use super::{answer::Answer, owner::Emission};
use crate::wire::openai::{
    ChatChoice, ChatChunk, ChatCompletion, Completion, CompletionChoice, FinishReason, OutputMessage, Usage,
};

/// One of the two endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completion,
}

/// What every chunk of an answer repeats.
#[derive(Clone, Debug)]
pub(super) struct Heading {
    /// The answer's id.
    pub(super) id: String,
    /// Unix seconds.
    pub(super) created: u64,
    /// The model as the client named it.
    pub(super) model: String,
}

impl Api {
    /// Returns what stands before the request id.
    #[must_use]
    pub(super) const fn id_prefix(self) -> &'static str {
        match self {
            Self::Chat => "chatcmpl-",
            Self::Completion => "cmpl-",
        }
    }

    /// Writes a whole answer.
    #[must_use]
    pub(super) fn whole(self, heading: &Heading, answers: &[Answer], usage: Usage) -> Value {
        let numbered = (0..).zip(answers);
        match self {
            Self::Chat => value(&ChatCompletion {
                id: heading.id.clone(),
                object: ChatCompletion::OBJECT.to_string(),
                created: heading.created,
                model: heading.model.clone(),
                choices: numbered
                    .map(|(index, answer)| ChatChoice {
                        index,
                        message: OutputMessage {
                            role: "assistant".to_string(),
                            content: Some(answer.pieces.concat()),
                        },
                        logprobs: None,
                        finish_reason: Some(finish_reason(answer)),
                    })
                    .collect(),
                usage,
            }),
            Self::Completion => value(&completion(
                heading,
                numbered
                    .map(|(index, answer)| completion_choice(index, answer.pieces.concat(), Some(answer)))
                    .collect(),
                Some(usage),
            )),
        }
    }

    /// Writes the chunk that opens a choice.
    #[must_use]
    pub(super) fn opening(self, heading: &Heading, choice: u32) -> String {
        match self {
            Self::Chat => text(&ChatChunk::role(&heading.id, heading.created, &heading.model, choice)),
            Self::Completion => {
                text(&completion(heading, vec![completion_choice(choice, String::new(), None)], None))
            }
        }
    }

    /// Writes the chunk of one token.
    #[must_use]
    pub(super) fn chunk(self, heading: &Heading, answer: &Answer, emission: Emission) -> String {
        let piece = answer.pieces.get(emission.number.saturating_sub(1) as usize).map_or("", String::as_str);
        match self {
            Self::Chat => text(&ChatChunk::content(
                (&heading.id, heading.created, &heading.model),
                emission.choice,
                piece,
                emission.last.then(|| finish_reason(answer)),
            )),
            Self::Completion => {
                let ended = emission.last.then_some(answer);
                let choice = completion_choice(emission.choice, piece.to_string(), ended);
                text(&completion(heading, vec![choice], None))
            }
        }
    }

    /// Writes the usage chunk: no choices.
    #[must_use]
    pub(super) fn usage(self, heading: &Heading, usage: Usage) -> String {
        match self {
            Self::Chat => text(&ChatChunk::usage(&heading.id, heading.created, &heading.model, usage)),
            Self::Completion => text(&completion(heading, Vec::new(), Some(usage))),
        }
    }
}

const fn finish_reason(answer: &Answer) -> FinishReason {
    if answer.stopped { FinishReason::Stop } else { FinishReason::Length }
}

fn completion(heading: &Heading, choices: Vec<CompletionChoice>, usage: Option<Usage>) -> Completion {
    Completion {
        id: heading.id.clone(),
        object: Completion::OBJECT.to_string(),
        created: heading.created,
        model: heading.model.clone(),
        choices,
        usage,
    }
}

fn completion_choice(index: u32, text: String, ended: Option<&Answer>) -> CompletionChoice {
    CompletionChoice { index, text, logprobs: None, finish_reason: ended.map(finish_reason) }
}

fn value(answer: &impl Serialize) -> Value {
    serde_json::to_value(answer).unwrap_or_default()
}

fn text(chunk: &impl Serialize) -> String {
    serde_json::to_string(chunk).unwrap_or_default()
}
