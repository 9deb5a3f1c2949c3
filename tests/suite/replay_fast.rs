//! The fast replay against the plain one on generated states: every field equal, to the attosecond.
//!
//! `BEAR_REPLAY_CASES` sets how many; a failure names its case, and `BEAR_REPLAY_FROM` starts there.

use std::{collections::HashMap, env};

use bear::{
    domain::{
        BatchTimeCoefficients, Dispatched, QueryLoad, Snapshot, Timestamp,
        snapshot::{EngineParams, InFlight, QueuePolicy, Resident, SCHEMA, WaitingBeyond},
    },
    engine::BatchTime,
    latency::replay::{Ended, Goal, Scenario, Scratch, Start, fast, plain},
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const CAPTURED: Timestamp = Timestamp::from_unix_us(1_764_460_800_000_000);

/// A scenario that owns what it rests on.
#[derive(Debug)]
struct Case {
    snapshot: Snapshot,
    predicted_remaining: HashMap<String, u32>,
    dispatched: Vec<Dispatched>,
    query: QueryLoad,
    now: Timestamp,
    batch_time: BatchTimeCoefficients,
    goal: Goal,
}

impl Case {
    fn scenario(&self) -> Scenario<'_> {
        Scenario {
            snapshot: &self.snapshot,
            predicted_remaining: &self.predicted_remaining,
            dispatched: &self.dispatched,
            query: self.query,
            now: self.now,
            batch_time: BatchTime::from(&self.batch_time),
        }
    }
}

/// Draws cases; what it draws first shapes the rest of a case.
struct Draw {
    rng: ChaCha8Rng,
    /// Residents' prompts go up to this.
    longest_prompt: u32,
    /// Lengths go up to this; short ones make many events, alike ones ties.
    longest_output: u32,
}

impl Draw {
    fn below(&mut self, end: u32) -> u32 {
        self.rng.random_range(0..end.max(1))
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.rng.random_range(0..choices.len())]
    }

    fn engine(&mut self) -> EngineParams {
        let max_model_len = self.of(&[60, 300, 300, 1_000, 5_000]);
        let block_size = self.of(&[1, 2, 3, 7, 16, 16, 16, 64, 5_000]);
        let least = u32::div_ceil(max_model_len, block_size);
        let enable_chunked_prefill = !self.one_in(5);
        let mut max_num_batched_tokens = match self.below(8) {
            0 => 1 + self.below(8),
            1 | 2 => 8 + self.below(60),
            3 | 4 => 60 + self.below(600),
            5 => self.below(3),
            _ => 8_192,
        };
        if !enable_chunked_prefill {
            max_num_batched_tokens += max_model_len;
        }
        EngineParams {
            scheduler: String::from("vllm-v1"),
            max_num_batched_tokens,
            max_num_seqs: match self.below(4) {
                0 => self.below(3),
                1 => 40,
                _ => 2 + self.below(12),
            },
            block_size,
            num_kv_blocks: match self.below(4) {
                0 => least + self.below(3),
                1 => least + self.below(least + 2),
                2 => least * 4,
                _ => least * 40,
            },
            max_model_len,
            long_prefill_token_threshold: match self.below(4) {
                0 => 1 + self.below(60),
                _ => 0,
            },
            watermark_blocks: match self.below(4) {
                0 => self.below(6),
                _ => 0,
            },
            reserve_full_isl: self.rng.random(),
            enable_chunked_prefill,
            enable_prefix_caching: self.rng.random(),
            policy: self.of(&[QueuePolicy::Fcfs, QueuePolicy::Fcfs, QueuePolicy::Priority]),
            async_scheduling: self.rng.random(),
        }
    }

    fn output(&mut self) -> u32 {
        match self.below(6) {
            0 => 1 + self.below(3),
            1 => self.longest_output,
            _ => 1 + self.below(self.longest_output),
        }
    }

    fn priority(&mut self) -> i32 {
        self.of(&[0, 0, 0, 1, -1])
    }

    /// A request with its tokens, nothing computed.
    fn resident(&mut self, id: String, engine: &EngineParams) -> Resident {
        let prompt_tokens = (1 + self.below(self.longest_prompt)).min(engine.max_model_len - 1);
        let output_tokens = match self.below(4) {
            0 => 0,
            _ => self.below(200).min(engine.max_model_len - 1 - prompt_tokens),
        };
        Resident { id, prompt_tokens, output_tokens, priority: self.priority(), ..Resident::default() }
    }

    fn running(&mut self, i: u32, engine: &EngineParams) -> Resident {
        let mut resident = self.resident(format!("r{i}"), engine);
        let known = resident.prompt_tokens + resident.output_tokens;
        resident.computed_tokens = match self.below(10) {
            0 => self.below(resident.prompt_tokens),
            1 => self.below(known),
            2 => known,
            _ => known - 1,
        };
        let needed = resident.computed_tokens.div_ceil(engine.block_size);
        resident.kv_blocks = match self.below(12) {
            0 => needed + 1,
            1 => needed + self.below(5),
            2 => needed.saturating_sub(1),
            3 => known.div_ceil(engine.block_size),
            _ => needed,
        };
        if self.one_in(4) {
            resident.kv_blocks_exclusive = Some(self.below(resident.kv_blocks + 1));
        }
        resident
    }

    fn waiting(&mut self, i: u32, engine: &EngineParams) -> Resident {
        let mut resident = self.resident(format!("w{i}"), engine);
        if self.one_in(3) {
            resident.cached_tokens = self.below(resident.prompt_tokens + 2);
            resident.cached_blocks_in_use = self.below(4);
        }
        resident
    }

    fn snapshot(&mut self, engine: EngineParams) -> Snapshot {
        let seats = engine.max_num_seqs;
        let runs = match self.below(4) {
            0 => seats,
            1 => seats + self.below(3),
            _ => self.below(seats + 1),
        };
        let waits = match self.below(5) {
            0 => self.below(30),
            1 | 2 => self.below(5),
            _ => 0,
        };
        let running: Vec<Resident> = (0..runs).map(|i| self.running(i, &engine)).collect();
        let waiting: Vec<Resident> = (0..waits).map(|i| self.waiting(i, &engine)).collect();
        let held: u32 = running.iter().map(|r| r.kv_blocks_exclusive.unwrap_or(r.kv_blocks)).sum();
        let usable = engine.num_kv_blocks - 1;
        let free_kv_blocks = match self.below(6) {
            0 => self.below(usable + 1),
            1 => self.below(4),
            _ => usable.saturating_sub(held),
        };
        let in_flight = self.one_in(2).then(|| self.in_flight(&running));
        let requests = match self.below(6) {
            0 => self.below(20),
            _ => 0,
        };
        let waiting_beyond = WaitingBeyond {
            requests,
            prefill_tokens: u64::from(requests * (1 + self.below(self.longest_prompt))),
        };
        Snapshot {
            schema: SCHEMA.to_owned(),
            instance: String::from("m-0"),
            dp_rank: 0,
            nonce: String::new(),
            seq: 1,
            captured_unix_us: CAPTURED,
            engine,
            free_kv_blocks,
            in_flight,
            running,
            waiting,
            waiting_beyond,
            scheduler_state: None,
        }
    }

    /// Those who have computed something, one token of it in flight or more.
    fn in_flight(&mut self, running: &[Resident]) -> InFlight {
        let mut tokens = std::collections::BTreeMap::new();
        for resident in running.iter().filter(|resident| resident.computed_tokens > 0) {
            if !self.one_in(4) {
                let known = resident.prompt_tokens + resident.output_tokens;
                let k = if resident.computed_tokens < known {
                    1 + self.below(resident.computed_tokens)
                } else {
                    1
                };
                tokens.insert(resident.id.clone(), k);
            }
        }
        let since_us = f64::from(self.below(20_000)) / 1e6;
        InFlight { started_unix_us: CAPTURED.after_s(-since_us), tokens }
    }

    /// Coefficients; under whole milliseconds arrivals fall on the boundaries of steps.
    fn batch_time(&mut self) -> BatchTimeCoefficients {
        let [b0_s, b1_s, b2_s, b3_s, b4_s] = self.of(&[
            [1e-3, 0.0, 0.0, 0.0, 0.0],
            [1e-3, 1e-3, 1e-3, 0.0, 0.0],
            [6.76e-3, 2.0e-5, 4.53e-8, 2.19e-9, 0.0],
            [6.76e-3, 2.0e-5, 4.53e-8, 2.19e-9, 1.3e-4],
            [2.1e-3, 0.0, 1e-6, 1e-6, 0.0],
            [0.0, 0.0, 0.0, 0.0, 0.0],
            [1e6, 1e6, 1e6, 1e6, 1e6],
        ]);
        BatchTimeCoefficients { b0_s, b1_s, b2_s, b3_s, b4_s }
    }

    /// A moment near the capture, often a whole number of milliseconds after it.
    fn moment(&mut self) -> Timestamp {
        let us = match self.below(6) {
            0 => 0,
            1 => self.below(100) * 1_000,
            2 => self.below(5_000) * 1_000,
            3 => self.below(100_000),
            _ => self.below(1_500_000),
        };
        CAPTURED.after_s(f64::from(us) / 1e6 - if self.one_in(10) { 0.05 } else { 0.0 })
    }

    fn case(&mut self) -> Case {
        self.longest_prompt = self.of(&[5, 50, 250, 2_000]);
        self.longest_output = self.of(&[3, 30, 150, 2_500]);
        let engine = self.engine();
        let max_prompt = engine.max_model_len - 1;
        let snapshot = self.snapshot(engine);
        let residents = snapshot.running.iter().chain(&snapshot.waiting);
        let predicted_remaining = residents.map(|resident| (resident.id.clone(), self.output())).collect();
        let sent = match self.below(3) {
            0 => self.below(5),
            _ => 0,
        };
        let dispatched = (0..sent).map(|i| Dispatched {
            id: if self.one_in(6) { format!("r{i}") } else { format!("d{i}") },
            at_unix_us: self.moment(),
            prompt_tokens: (1 + self.below(self.longest_prompt)).min(max_prompt),
            cached_tokens: self.below(40),
            cached_blocks_in_use: self.below(3),
            output_tokens: self.output(),
            priority: self.priority(),
        });
        Case {
            dispatched: dispatched.collect(),
            snapshot,
            predicted_remaining,
            query: QueryLoad {
                prompt_tokens: (1 + self.below(self.longest_prompt)).min(max_prompt),
                cached_tokens: self.below(60),
                cached_blocks_in_use: self.below(3),
                output_tokens: self.output(),
                priority: self.priority(),
            },
            now: self.moment(),
            batch_time: self.batch_time(),
            goal: Goal {
                output_tokens: self.of(&[1, 1, 1, 2, 9, 300, u32::MAX]),
                step_limit: match self.below(6) {
                    0 => u64::from(self.below(40)),
                    _ => 3_000,
                },
            },
        }
    }
}

fn case(number: u64) -> Case {
    Draw { rng: ChaCha8Rng::seed_from_u64(number), longest_prompt: 1, longest_output: 1 }.case()
}

fn variable(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number")))
}

#[test]
fn fast_equals_plain() {
    let (cases, from) = (variable("BEAR_REPLAY_CASES", 3_000), variable("BEAR_REPLAY_FROM", 0));
    let (mut scratch, mut ends, mut thrashing, mut steps) = (Scratch::default(), [0_u64; 3], 0_u64, 0_u64);
    for number in from..from + cases {
        let case = case(number);
        let scenario = case.scenario();
        let expected = plain(&scenario, case.goal);
        assert_eq!(fast(&scenario, case.goal, &mut scratch), expected, "case {number}: {case:#?}");
        let Ok(replayed) = expected else { continue };
        ends[match replayed.ended {
            Ended::Reached => 0,
            Ended::Unschedulable => 1,
            Ended::Limit => 2,
        }] += 1;
        steps += replayed.steps;
        if number % 16 == 0 {
            let mut preempted = false;
            Start::new(&scenario).unwrap().plain(case.goal, |step| preempted |= !step.preempted.is_empty());
            thrashing += 16 * u64::from(preempted);
        }
    }
    eprintln!("{cases} cases: {ends:?} reached, unschedulable, limit; {thrashing} preempt; {steps} steps");
    assert!(ends.iter().all(|&end| end * 50 > cases), "every end has its share: {ends:?} of {cases}");
    assert!(thrashing * 20 > cases, "{thrashing} of {cases} cases preempt");
}
