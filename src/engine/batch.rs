//! The batch of one step: who runs how many tokens, and who lost its blocks for it.

use super::Slot;

/// Which list a member came from (vLLM's scheduled running, new and resumed requests).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was running.
    Running,
    /// This step admitted it for the first time.
    New,
    /// This step admitted it again after a preemption.
    Resumed,
}

/// One scheduled request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The request.
    pub slot: Slot,
    /// k: tokens scheduled in this step.
    pub num_scheduled_tokens: u32,
    /// c: tokens computed before this step.
    pub num_computed_tokens: u32,
    /// Whether it decodes; else it prefills.
    pub decodes: bool,
    /// Whether it reaches its last known token, and so emits one.
    pub emits: bool,
    /// Where it came from.
    pub origin: Origin,
}

/// The first of `running`, each decoding one token or finished. Whoever forms behind them keeps their
/// counts elsewhere: what [`super::EngineState`] says of their tokens and blocks may be out of date. The blocks of
/// their tokens are taken from the free ones already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lead {
    /// How many they are.
    pub requests: usize,
    /// Tokens they get, one each that decodes.
    pub tokens: u32,
}

/// The outcome of one formation. Kept and refilled, so that forming allocates nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Scheduled requests: running ones in order, then the admitted.
    pub members: Vec<Member>,
    /// Requests that lost their blocks, in the order they did.
    pub preempted: Vec<Slot>,
}

impl Batch {
    /// Empties it for the next formation.
    pub fn clear(&mut self) {
        self.members.clear();
        self.preempted.clear();
    }

    /// Returns whether nothing was scheduled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Takes a request out again and returns the tokens it gives back to the budget.
    pub(super) fn withdraw(&mut self, slot: Slot) -> u32 {
        match self.members.iter().position(|member| member.slot == slot) {
            Some(position) => self.members.remove(position).num_scheduled_tokens,
            None => 0,
        }
    }
}
