//! What became of a routed request.

use serde::{Deserialize, Serialize};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// The upstream finished its answer.
    Complete,
    /// The client left.
    Cancelled,
    /// The upstream failed or broke off.
    Failed,
    /// A time-out of ours ran out.
    TimedOut,
}

impl Ending {
    /// Returns the label used in metrics and rows.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::TimedOut => "timed-out",
        }
    }
}

/// The realised side of one attempt on one instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The id sent upstream.
    pub attempt_id: String,
    /// The instance's position in the pool.
    pub instance: usize,
    /// How it ended.
    pub ending: Ending,
    /// From the complete request at the router to the first content, seconds; absent: never seen or
    /// not observable (a non-streamed answer).
    pub ttft_s: Option<f64>,
    /// From the complete request to the end, seconds.
    pub e2e_s: f64,
    /// Prompt tokens by the engine's usage; absent: not told.
    pub prompt_tokens: Option<u32>,
    /// Of these, served from its cache; absent: not told.
    pub cached_tokens: Option<u32>,
    /// Output tokens by usage, else counted from the stream; absent: unknown.
    pub output_tokens: Option<u32>,
    /// Cost at the instance's price, USD; absent: token counts unknown.
    pub cost_usd: Option<f64>,
}
