//! OpenAI's request and answer shapes, as far as routing and serving need them.
//!
//! Requests are read leniently: unknown members are ignored (the body goes upstream as it came), known
//! ones are checked and a bad one is named.

mod answer;
mod error;
mod message;
mod observed;
mod request;

pub use answer::{
    ChatChoice, ChatChunk, ChatCompletion, ChunkChoice, Completion, CompletionChoice, Delta, FinishReason,
    ModelCard, ModelList, OutputMessage, PromptTokensDetails, Usage,
};
pub use error::{ErrorBody, ErrorCode, ErrorDetail};
pub use message::modality_of_part;
pub use observed::{ChunkFacts, DONE, ErrorFacts, observe_chunk, usage_of_answer};
pub use request::{Input, Prompt, Request, RequestError, Shape};
