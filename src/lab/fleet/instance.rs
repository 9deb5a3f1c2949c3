//! One simulated instance: an engine under its truth, the delays around it, and whether it is up.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::clock::instant;
use crate::{
    domain::Snapshot,
    engine::{Counters, NewRequest, SnapshotMeta},
    lab::LabError,
    truth::{
        Profile,
        stepping::{Happening, Stepping, TimeScale},
    },
};

/// The generator stream of delays: apart from the engine's own noise.
const DELAY_STREAM: u64 = 1;

/// A simulated instance.
pub(super) struct Instance {
    /// Its name, such as `qwen3-8b-0`.
    pub(super) id: String,
    /// The pool's position of its model.
    pub(super) model: usize,
    /// Whether it is up.
    pub(super) up: bool,
    /// When it is to be woken next; absent: nothing runs.
    pub(super) wake_us: Option<u64>,
    profile: Profile,
    stepping: Stepping,
    seed: u64,
    lives: u64,
    delays: ChaCha8Rng,
    past: Counters,
}

impl Instance {
    /// Starts an idle instance.
    pub(super) fn new(id: String, model: usize, profile: Profile, seed: u64) -> Result<Self, LabError> {
        let mut delays = ChaCha8Rng::seed_from_u64(seed);
        delays.set_stream(DELAY_STREAM);
        let stepping = Stepping::new(&profile, seed, scale())?;
        let past = Counters::default();
        Ok(Self { id, model, up: true, wake_us: None, profile, stepping, seed, lives: 0, delays, past })
    }

    /// Draws how long a request takes to reach the queue, microseconds.
    pub(super) fn ingress_us(&mut self) -> u64 {
        (self.profile.ingress.draw_s(&mut self.delays) * 1e6).round() as u64
    }

    /// Draws how long a request's tokens take to leave, microseconds.
    pub(super) fn egress_us(&mut self) -> u64 {
        (self.profile.egress.draw_s(&mut self.delays) * 1e6).round() as u64
    }

    /// Lets a request join the queue at `at_us`.
    pub(super) fn submit(&mut self, at_us: u64, request: NewRequest) {
        self.stepping.submit(at_us, request);
    }

    /// Runs up to and at `to_us`.
    pub(super) fn advance(&mut self, to_us: u64, happenings: &mut Vec<Happening>) {
        self.stepping.advance(to_us, happenings);
    }

    /// Returns when something will happen next.
    pub(super) fn next_us(&self) -> Option<u64> {
        self.stepping.next_us().filter(|_| self.up)
    }

    /// Captures its state at `at_us`.
    pub(super) fn snapshot(&self, at_us: u64) -> Snapshot {
        self.stepping.engine().snapshot(SnapshotMeta {
            instance: self.id.clone(),
            dp_rank: 0,
            nonce: self.lives.to_string(),
            captured: instant(at_us),
        })
    }

    /// Returns whether a snapshot is of its present life.
    pub(super) fn lives_in(&self, snapshot: &Snapshot) -> bool {
        snapshot.nonce.parse() == Ok(self.lives)
    }

    /// Loses everything it holds.
    pub(super) fn fail(&mut self) {
        self.up = false;
    }

    /// Comes back empty, as a restarted engine does.
    pub(super) fn recover(&mut self, at_us: u64) -> Result<(), LabError> {
        self.past = self.counters();
        self.lives += 1;
        self.up = true;
        self.stepping = Stepping::new(&self.profile, self.seed.wrapping_add(self.lives << 32), scale())?;
        self.stepping.advance(at_us, &mut Vec::new());
        Ok(())
    }

    /// Returns the totals over all its lives.
    pub(super) fn counters(&self) -> Counters {
        let now = self.stepping.engine().counters();
        let past = self.past;
        Counters {
            steps: past.steps + now.steps,
            prefix_cache_queries: past.prefix_cache_queries + now.prefix_cache_queries,
            prefix_cache_hits: past.prefix_cache_hits + now.prefix_cache_hits,
            preemptions: past.preemptions + now.preemptions,
            prompt_tokens: past.prompt_tokens + now.prompt_tokens,
            generation_tokens: past.generation_tokens + now.generation_tokens,
        }
    }
}

fn scale() -> TimeScale {
    TimeScale { origin: instant(0), factor: 1.0 }
}
