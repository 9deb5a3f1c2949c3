//! What an estimator says of a query on an instance.

/// How far an estimate looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Horizon {
    /// To the first output token.
    FirstToken,
    /// To the given output token.
    Tokens(u32),
    /// To the last output token.
    Completion,
}

/// The estimator behind a number, and what it rested on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EstimateSource {
    /// Replay of a published snapshot (eq. 9–11).
    Bea,
    /// Replay of the router's own ledger (eq. 9–11).
    BeaLedger,
    /// Pending prefill over effective throughput (eq. 8).
    PrefillThroughput,
    /// A labelled guess from model size and load; nothing is calibrated.
    Guess,
}

impl EstimateSource {
    /// Returns the label used in headers, tables and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Bea => "bea",
            Self::BeaLedger => "bea-ledger",
            Self::PrefillThroughput => "prefill-throughput",
            Self::Guess => "guess",
        }
    }
}

/// Why there is no finite TTFT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoEstimate {
    /// The engine can never schedule the query.
    Unschedulable,
    /// The replay reached its step limit first.
    Limit,
}

impl NoEstimate {
    /// Returns the label used in output and tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Unschedulable => "unschedulable",
            Self::Limit => "limit",
        }
    }
}

/// A time to first token in two parts (eq. 3), seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ttft {
    /// Wait until the query is first scheduled, ingress included, seconds.
    pub wait_s: f64,
    /// From then to the first token, egress included, seconds.
    pub prefill_s: f64,
}

impl Ttft {
    /// Returns wait and prefill together, seconds.
    #[must_use]
    pub fn total_s(self) -> f64 {
        self.wait_s + self.prefill_s
    }
}

/// One estimate of a query on one instance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The time to first token, or why there is none.
    pub ttft: Result<Ttft, NoEstimate>,
    /// Time to the last token, seconds, where the horizon was [`Horizon::Completion`].
    pub e2e_s: Option<f64>,
    /// Mean time an output token after the first, seconds, where the horizon reached past it.
    pub tpot_s: Option<f64>,
    /// One standard deviation of the TTFT, seconds, where known.
    pub spread_s: Option<f64>,
    /// What it rests on.
    pub source: EstimateSource,
    /// Age of that state, seconds; absent where the estimate rests on no state.
    pub age_s: Option<f64>,
}

impl Estimate {
    /// Returns the TTFT in seconds; infinite where there is none, so that comparisons stay total.
    #[must_use]
    pub fn ttft_s(&self) -> f64 {
        self.ttft.map_or(f64::INFINITY, Ttft::total_s)
    }
}
