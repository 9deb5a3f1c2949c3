//! The engine's steps in simulated time: arrivals join, batches begin and end when the truth says so.
//! Time is an argument, so that the server runs it in real time and tests and fits in none.

use std::{collections::BTreeMap, sync::Arc};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::{
    Profile, TruthError,
    batch_time::{BatchTimeTruth, Work, noise_factor},
};
use crate::{
    domain::Timestamp,
    engine::{Admission, BatchShape, BatchWork, Engine, Event, NewRequest},
};

/// The stream of the noise generator: apart from those of requests, which are numbered from 0.
const NOISE_STREAM: u64 = u64::MAX;

/// How simulated time, in microseconds since the engine's start, lies on the wall clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeScale {
    /// Wall time of simulated 0.
    pub origin: Timestamp,
    /// Simulated seconds a real second.
    pub factor: f64,
}

impl TimeScale {
    /// Returns the simulated time at a wall time.
    #[must_use]
    pub fn simulated_us(&self, wall: Timestamp) -> u64 {
        (wall.us_since(self.origin).max(0) as f64 * self.factor) as u64
    }

    /// Returns the wall time of a simulated time.
    #[must_use]
    pub fn wall(&self, simulated_us: u64) -> Timestamp {
        self.origin.after_s(simulated_us as f64 / self.factor / 1e6)
    }
}

/// What happened at a simulated time.
#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    /// A request was scheduled for the first time, or again after a preemption.
    Scheduled {
        /// The request.
        id: Arc<str>,
        /// Start of the batch.
        at_us: u64,
        /// What its prefix hit saved.
        admission: Admission,
    },
    /// A request emitted a token.
    Token {
        /// The request.
        id: Arc<str>,
        /// End of the batch.
        at_us: u64,
        /// Its output tokens so far.
        output_tokens: u32,
        /// Whether it was the last one.
        last: bool,
    },
    /// The engine refused a request.
    Refused {
        /// The request.
        id: String,
    },
}

/// One batch as it ran, for fits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepRecord {
    /// What eq. 12 sees of it.
    pub work: BatchWork,
    /// Its time, seconds.
    pub duration_s: f64,
    /// Its time without noise, seconds.
    pub duration_without_noise_s: f64,
}

/// One engine under its truth.
pub struct Stepping {
    engine: Engine,
    truth: BatchTimeTruth,
    noise_sigma: f64,
    noise: ChaCha8Rng,
    scale: TimeScale,
    now_us: u64,
    batch_end_us: Option<u64>,
    arrivals: BTreeMap<(u64, u64), NewRequest>,
    submitted: u64,
    records: Option<Vec<StepRecord>>,
}

impl Stepping {
    /// Starts an idle engine at simulated 0.
    ///
    /// # Errors
    /// Fails when the profile's scheduler or its parameters are not usable.
    pub fn new(profile: &Profile, seed: u64, scale: TimeScale) -> Result<Self, TruthError> {
        let mut noise = ChaCha8Rng::seed_from_u64(seed);
        noise.set_stream(NOISE_STREAM);
        Ok(Self {
            engine: Engine::with_block_cache(profile.engine.clone())?,
            truth: profile.batch_time,
            noise_sigma: profile.step_noise_sigma,
            noise,
            scale,
            now_us: 0,
            batch_end_us: None,
            arrivals: BTreeMap::new(),
            submitted: 0,
            records: None,
        })
    }

    /// Keeps a record of every batch from now on.
    pub fn record_batches(&mut self) {
        self.records = Some(Vec::new());
    }

    /// Takes the records kept so far.
    pub fn take_records(&mut self) -> Vec<StepRecord> {
        self.records.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns the engine.
    #[must_use]
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns how many requests are on their way to the queue.
    #[must_use]
    pub fn num_arriving(&self) -> usize {
        self.arrivals.len()
    }

    /// Lets a request join the queue at `at_us`, or now where that has passed.
    pub fn submit(&mut self, at_us: u64, request: NewRequest) {
        self.arrivals.insert((at_us.max(self.now_us), self.submitted), request);
        self.submitted += 1;
    }

    /// Takes a request out wherever it is; returns whether it was there.
    pub fn abort(&mut self, id: &str) -> bool {
        let key = self.arrivals.iter().find(|(_, request)| request.id == id).map(|(key, _)| *key);
        match key {
            Some(key) => self.arrivals.remove(&key).is_some(),
            None => self.engine.abort(id),
        }
    }

    /// Returns when something will happen next, if nothing else is submitted.
    #[must_use]
    pub fn next_us(&self) -> Option<u64> {
        let arrival = self.arrivals.keys().next().map(|(at_us, _)| *at_us);
        match (arrival, self.batch_end_us) {
            (Some(arrival), Some(end)) => Some(arrival.min(end)),
            (arrival, end) => arrival.or(end),
        }
    }

    /// Runs everything due up to and at `to_us`, in order; at the same time arrivals come before batches.
    pub fn advance(&mut self, to_us: u64, happenings: &mut Vec<Happening>) {
        while let Some(at_us) = self.next_us().filter(|at_us| *at_us <= to_us) {
            self.now_us = self.now_us.max(at_us);
            self.join(happenings);
            if self.batch_end_us == Some(at_us) {
                self.batch_end_us = None;
                self.end_batch(at_us, happenings);
            }
            if self.batch_end_us.is_none() {
                self.begin_batch(at_us, happenings);
            }
        }
        self.now_us = self.now_us.max(to_us);
    }

    fn join(&mut self, happenings: &mut Vec<Happening>) {
        while let Some(entry) = self.arrivals.first_entry().filter(|e| e.key().0 <= self.now_us) {
            let request = entry.remove();
            let id = request.id.clone();
            if self.engine.add(request).is_err() {
                happenings.push(Happening::Refused { id });
            }
        }
    }

    fn end_batch(&mut self, at_us: u64, happenings: &mut Vec<Happening>) {
        for event in self.engine.end() {
            match event {
                Event::Token { id, output_tokens } => {
                    happenings.push(Happening::Token { id, at_us, output_tokens, last: false });
                }
                Event::Finished { .. } => {
                    if let Some(Happening::Token { last, .. }) = happenings.last_mut() {
                        *last = true;
                    }
                }
            }
        }
    }

    fn begin_batch(&mut self, at_us: u64, happenings: &mut Vec<Happening>) {
        let Some(shape) = self.engine.begin(self.scale.wall(at_us)) else { return };
        let without_noise_s = self.truth.seconds(shape.members.iter().map(|m| Work {
            tokens: m.tokens,
            context_tokens: m.context_tokens,
            decodes: m.decodes,
        }));
        let duration_s = without_noise_s * noise_factor(self.noise_sigma, &mut self.noise);
        self.batch_end_us = Some(at_us + ((duration_s * 1e6).round() as u64).max(1));
        if let Some(records) = &mut self.records {
            records.push(StepRecord {
                work: shape.work,
                duration_s,
                duration_without_noise_s: without_noise_s,
            });
        }
        report_scheduled(shape, at_us, happenings);
    }
}

fn report_scheduled(shape: BatchShape, at_us: u64, happenings: &mut Vec<Happening>) {
    happenings.extend(shape.members.into_iter().filter_map(|member| {
        let admission = member.admission?;
        Some(Happening::Scheduled { id: member.id, at_us, admission })
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        let mut profile = Profile::built_in("qwen3-8b-h100").unwrap();
        profile.step_noise_sigma = 0.0;
        profile
    }

    fn stepping(profile: &Profile) -> Stepping {
        Stepping::new(profile, 1, TimeScale { origin: Timestamp::from_unix_us(0), factor: 1.0 }).unwrap()
    }

    fn request(id: &str, prompt_tokens: u32, output_tokens: u32) -> NewRequest {
        NewRequest {
            id: id.to_string(),
            prompt_tokens,
            output_tokens,
            max_tokens: None,
            priority: 0,
            block_hashes: [].into(),
        }
    }

    fn tokens_of(happenings: &[Happening], of: &str) -> Vec<(u64, bool)> {
        let token = |h: &Happening| match h {
            Happening::Token { id, at_us, last, .. } if &**id == of => Some((*at_us, *last)),
            _ => None,
        };
        happenings.iter().filter_map(token).collect()
    }

    #[test]
    fn a_lone_request_takes_its_batches_and_nothing_else() {
        let profile = profile();
        let mut engine = stepping(&profile);
        engine.submit(1_000, request("a", 1000, 3));
        let mut happenings = Vec::new();
        engine.advance(10_000_000, &mut happenings);
        let batch = |tokens, context_tokens, decodes| {
            (profile.batch_time.seconds([Work { tokens, context_tokens, decodes }]) * 1e6).round() as u64
        };
        let (first, second, third) = (batch(1000, 0, false), batch(1, 1000, true), batch(1, 1001, true));
        let expected =
            [(1_000 + first, false), (1_000 + first + second, false), (1_000 + first + second + third, true)];
        assert_eq!(tokens_of(&happenings, "a"), expected);
        assert_eq!(engine.next_us(), None);
    }

    #[test]
    fn the_result_does_not_depend_on_how_often_it_is_woken() {
        let mut profile = profile();
        profile.step_noise_sigma = 0.08;
        let run = |every_us: u64| {
            let mut engine = stepping(&profile);
            for i in 0..20_u64 {
                engine.submit(i * 7_000, request(&format!("r{i}"), 300 + 40 * i as u32, 30));
            }
            let mut happenings = Vec::new();
            for wake in 1..=(4_000_000 / every_us) {
                engine.advance(wake * every_us, &mut happenings);
            }
            happenings
        };
        let often = run(500);
        assert_eq!(often.len(), 20 * 31);
        assert_eq!(often, run(250_000));
    }

    #[test]
    fn an_arrival_during_a_batch_waits_for_the_one_already_formed_behind_it() {
        let mut engine = stepping(&profile());
        engine.submit(0, request("a", 1000, 50));
        let mut happenings = Vec::new();
        engine.advance(0, &mut happenings);
        let first_end = engine.next_us().unwrap();
        engine.submit(10, request("b", 50, 2));
        engine.advance(first_end, &mut happenings);
        let second_end = engine.next_us().unwrap();
        engine.advance(second_end, &mut happenings);
        let scheduled = happenings.iter().find_map(|h| match h {
            Happening::Scheduled { id, at_us, .. } if &**id == "b" => Some(*at_us),
            _ => None,
        });
        assert_eq!(scheduled, Some(second_end));
    }

    #[test]
    fn an_aborted_request_is_gone_wherever_it_was() {
        let mut engine = stepping(&profile());
        engine.submit(0, request("a", 1000, 50));
        engine.submit(5_000, request("b", 1000, 50));
        assert!(engine.abort("b") && !engine.abort("b"));
        let mut happenings = Vec::new();
        engine.advance(100_000, &mut happenings);
        assert!(engine.abort("a") && !engine.abort("a"));
        engine.advance(1_000_000, &mut happenings);
        assert_eq!((engine.engine().residents().len(), engine.next_us()), (0, None));
        assert_eq!(engine.engine().free_blocks(), 23_550);
    }

    #[test]
    fn time_scales_both_ways() {
        let scale = TimeScale { origin: Timestamp::from_unix_us(1_000), factor: 4.0 };
        assert_eq!(scale.simulated_us(Timestamp::from_unix_us(1_250)), 1_000);
        assert_eq!(scale.wall(1_000), Timestamp::from_unix_us(1_250));
        assert_eq!(scale.simulated_us(Timestamp::from_unix_us(0)), 0);
    }
}
