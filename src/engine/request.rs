//! One resident request under vLLM's own field names (`vllm/v1/request.py`, release 0.32).

/// A resident's index into [`super::EngineState::requests`].
pub type Slot = usize;

/// Where a resident stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestStatus {
    /// In the waiting queue, never admitted.
    Waiting,
    /// In the waiting queue again: it was running and lost its blocks.
    Preempted,
    /// Admitted: it holds a seat and blocks.
    Running,
    /// It produced its last token but keeps seat and blocks until released.
    Finished,
}

/// One resident; every count is in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// P: prompt tokens, at least 1.
    pub num_prompt_tokens: u32,
    /// O: output tokens so far.
    pub num_output_tokens: u32,
    /// C: tokens whose KV is computed.
    pub num_computed_tokens: u32,
    /// R: output tokens still to come, the first included while the prompt is not computed.
    pub num_remaining_tokens: u32,
    /// Smaller is sooner.
    pub priority: i32,
    /// Arrival order, unique among residents.
    pub arrival: u64,
    /// Where it stands.
    pub status: RequestStatus,
}

impl Request {
    /// Returns N = P + O.
    #[must_use]
    pub const fn num_tokens(&self) -> u32 {
        self.num_prompt_tokens + self.num_output_tokens
    }

    /// Returns whether one more token of it is a decode (N − C = 1 with output already there); else it
    /// prefills.
    #[must_use]
    pub const fn decodes(&self) -> bool {
        self.num_output_tokens >= 1 && self.num_computed_tokens + 1 == self.num_tokens()
    }

    /// Returns the key of the priority policy: the smallest is admitted first, the largest preempted first.
    #[must_use]
    pub const fn priority_key(&self) -> (i32, u64) {
        (self.priority, self.arrival)
    }

    /// Returns whether it finished but still holds its seat.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        matches!(self.status, RequestStatus::Finished)
    }
}
