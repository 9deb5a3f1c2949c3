//! A request's place in its instance's ledger, as a guard that settles exactly once.

use std::{fmt, sync::Arc};

use super::{Pool, ReserveRequest, SettleSink, ledger::Entry};
use crate::{
    domain::{Ending, Now, Outcome, Timestamp},
    predict,
};

/// A reserved request. It settles when it is finished or dropped, also while a panic unwinds; dropped
/// without a word it was cancelled.
pub struct Reservation {
    pool: Arc<Pool>,
    entry: Arc<Entry>,
    instance: usize,
    arrived: Timestamp,
    streamed: bool,
    choices: u32,
    typical: bool,
    now: Arc<dyn Now>,
    sink: Arc<dyn SettleSink>,
    first_token_at: Option<Timestamp>,
    usage: Option<Usage>,
    ending: Option<Ending>,
}

#[derive(Clone, Copy)]
struct Usage {
    prompt_tokens: u32,
    cached_tokens: Option<u32>,
    output_tokens: u32,
}

impl Reservation {
    pub(super) fn new(
        pool: Arc<Pool>,
        entry: Arc<Entry>,
        request: ReserveRequest,
        now: Arc<dyn Now>,
        sink: Arc<dyn SettleSink>,
    ) -> Self {
        Self {
            pool,
            entry,
            instance: request.instance,
            arrived: request.arrived,
            streamed: request.streamed,
            choices: request.choices.max(1),
            typical: request.typical,
            now,
            sink,
            first_token_at: None,
            usage: None,
            ending: None,
        }
    }

    /// Returns the id to send upstream.
    #[must_use]
    pub fn attempt_id(&self) -> &str {
        &self.entry.id
    }

    /// Returns the instance's position in the pool.
    #[must_use]
    pub const fn instance(&self) -> usize {
        self.instance
    }

    /// Notes the first event with content, reasoning or a tool call; later calls change nothing.
    pub fn first_token(&mut self) {
        if self.first_token_at.is_none() {
            let now = self.now.now();
            self.first_token_at = Some(now);
            if let Ok(slot) = self.pool.slot(self.instance) {
                slot.first_token(&self.entry, now);
            }
        }
    }

    /// Counts `n` more output tokens seen in the stream, the first included.
    pub fn tokens(&mut self, n: u32) {
        if let Ok(slot) = self.pool.slot(self.instance) {
            slot.tokens(&self.entry, n, self.now.now());
        }
    }

    /// Takes the engine's own usage; it goes before what the stream showed.
    pub fn usage(&mut self, prompt_tokens: u32, cached_tokens: Option<u32>, output_tokens: u32) {
        self.usage = Some(Usage { prompt_tokens, cached_tokens, output_tokens });
    }

    /// Sets how the request ends if the guard is dropped from here on.
    pub fn ends_as(&mut self, ending: Ending) {
        self.ending = Some(ending);
    }

    /// Settles now.
    pub fn finish(mut self, ending: Ending) {
        self.ending = Some(ending);
    }

    fn outcome(&self, ended: Timestamp, ending: Ending) -> Outcome {
        let price = self.pool.spec(self.instance).price;
        let streamed_tokens = self.entry.produced_tokens();
        let seconds = |at: Timestamp| at.since(self.arrived).as_secs_f64();
        Outcome {
            attempt_id: self.entry.id.to_string(),
            instance: self.instance,
            ending,
            ttft_s: self.first_token_at.filter(|_| self.streamed).map(seconds),
            e2e_s: seconds(ended),
            prompt_tokens: self.usage.map(|usage| usage.prompt_tokens),
            cached_tokens: self.usage.and_then(|usage| usage.cached_tokens),
            output_tokens: self
                .usage
                .map(|usage| usage.output_tokens)
                .or_else(|| (streamed_tokens > 0).then_some(streamed_tokens)),
            cost_usd: self.usage.map(|usage| {
                predict::cost_usd(
                    &price,
                    usage.prompt_tokens,
                    usage.cached_tokens.unwrap_or(0),
                    f64::from(usage.output_tokens),
                )
            }),
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let ending = self.ending.unwrap_or(Ending::Cancelled);
        let ended = self.now.now();
        let outcome = self.outcome(ended, ending);
        let each_tokens = outcome.output_tokens.map(|tokens| tokens / self.choices);
        if let Ok(slot) = self.pool.slot(self.instance) {
            slot.leave(&self.entry, ended, each_tokens.unwrap_or(0));
        }
        if let (true, Ending::Complete, Some(tokens @ 1..)) = (self.typical, ending, each_tokens) {
            let model = self.pool.spec(self.instance).model;
            self.pool.observe_length(model, self.entry.load.prompt_tokens, tokens);
        }
        self.sink.settled(&outcome);
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("attempt_id", &self.entry.id)
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}
