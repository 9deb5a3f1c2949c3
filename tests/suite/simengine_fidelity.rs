//! The replay against the simulated engine, in virtual time: from a snapshot taken in the middle of a
//! loaded engine's work, the estimator must say when a query's first token comes.

use std::{collections::HashMap, sync::Arc};

use bear::{
    domain::{
        Basis, BasisSource, BatchTimeCoefficients, Horizon, InstanceSpec, InstanceView, Load, ModelIndex,
        Overhead, Price, QueryLoad, Timestamp,
    },
    engine::{NewRequest, SnapshotMeta},
    latency::{self, EstimatorSetup},
    truth::{
        PROFILES, Profile, ProfileEntry,
        stepping::{Happening, Stepping, TimeScale},
    },
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// One request of a load: when it joins, its prompt and its output, tokens.
type Arrival = (u64, u32, u32);

fn load(seed: u64, requests: u32, mean_gap_us: u64, longest_prompt: u32) -> Vec<Arrival> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut at_us = 0;
    (0..requests)
        .map(|_| {
            at_us += rng.random_range(0..2 * mean_gap_us);
            (at_us, rng.random_range(8..longest_prompt), rng.random_range(2..400))
        })
        .collect()
}

/// A profile whose truth is eq. 12 itself, and its coefficients.
fn four_term_profile(num_kv_blocks: u32) -> (Profile, BatchTimeCoefficients) {
    let mut profile = Profile::built_in("qwen3-8b-h100").unwrap();
    profile.step_noise_sigma = 0.0;
    profile.engine.num_kv_blocks = num_kv_blocks;
    profile.engine.max_model_len = 8_192;
    profile.batch_time.fixed_s = 6.0e-3;
    profile.batch_time.floor_s = 0.0;
    profile.batch_time.sequence_s = 0.0;
    // With equal costs of a pair and of a key read, the pairs always decide.
    profile.batch_time.pair_s = 5.0e-9;
    profile.batch_time.kv_read_s_per_token = 5.0e-9;
    let truth = profile.batch_time;
    let b = BatchTimeCoefficients {
        b0_s: truth.fixed_s,
        b1_s: truth.compute_s_per_token,
        b2_s: truth.kv_read_s_per_token,
        b3_s: truth.pair_s,
        b4_s: 0.0,
    };
    (profile, b)
}

fn request(id: String, prompt_tokens: u32, output_tokens: u32) -> NewRequest {
    NewRequest { id, prompt_tokens, output_tokens, max_tokens: None, priority: 0, block_hashes: [].into() }
}

/// A query's TTFT as predicted and as it came, seconds.
struct Probe {
    predicted_s: f64,
    true_s: f64,
    /// Whether a resident joined after the batch in flight began. With asynchronous scheduling the batch
    /// behind was formed without it, which a snapshot does not tell: the replay lets it in a batch early.
    late_resident: bool,
}

/// Puts a query into the engine while it works on `arrivals`.
fn probe(profile: &Profile, b: BatchTimeCoefficients, arrivals: &[Arrival], query: Arrival) -> Probe {
    let (now_us, prompt_tokens, output_tokens) = query;
    let scale = TimeScale { origin: Timestamp::from_unix_us(0), factor: 1.0 };
    let mut stepping = Stepping::new(profile, 1, scale).unwrap();
    let mut lengths = HashMap::new();
    for (i, &(at_us, prompt_tokens, output_tokens)) in arrivals.iter().enumerate() {
        if at_us < now_us {
            let id = format!("r{i}");
            lengths.insert(id.clone(), output_tokens);
            stepping.submit(at_us, request(id, prompt_tokens, output_tokens));
        }
    }
    let mut happenings = Vec::new();
    stepping.advance(now_us, &mut happenings);
    let now = Timestamp::from_unix_us(now_us);
    let meta = SnapshotMeta { instance: "i".into(), dp_rank: 0, nonce: "n".into(), captured: now };
    let snapshot = stepping.engine().snapshot(meta);
    let late_resident = snapshot.in_flight.as_ref().is_some_and(|in_flight| {
        let mid_step = in_flight.started_unix_us.unix_us() + 1..now_us;
        arrivals.iter().any(|(at_us, ..)| mid_step.contains(at_us))
    });
    let remaining = snapshot
        .running
        .iter()
        .chain(&snapshot.waiting)
        .map(|r| (r.id.clone(), lengths[&r.id] - r.output_tokens))
        .collect();
    let view = InstanceView {
        spec: Arc::new(InstanceSpec {
            id: "i".into(),
            model: ModelIndex(0),
            dp_rank: 0,
            price: Price::default(),
            batch_time: Some(b),
            overhead: Overhead::default(),
            effective_prefill_tokens_per_s: None,
            peak_prefill_tokens_per_s: None,
        }),
        basis: Some(Basis {
            source: BasisSource::Snapshot,
            snapshot: Arc::new(snapshot),
            predicted_remaining: Arc::new(remaining),
            dispatched: [].into(),
        }),
        resident_requests: None,
        load: Load::default(),
        usable: Ok(()),
    };
    let query =
        QueryLoad { prompt_tokens, cached_tokens: 0, cached_blocks_in_use: 0, output_tokens, priority: 0 };
    let estimator = (latency::estimator("bea").unwrap().construct)(&EstimatorSetup::default());
    let estimate = estimator.estimate(query, &view, now, Horizon::FirstToken);
    stepping.submit(now_us, request("query".to_string(), prompt_tokens, output_tokens));
    loop {
        stepping.advance(stepping.next_us().unwrap(), &mut happenings);
        let first = happenings.drain(..).find_map(|h| match h {
            Happening::Token { id, at_us, .. } if &*id == "query" => Some(at_us),
            _ => None,
        });
        if let Some(at_us) = first {
            let true_s = (at_us - now_us) as f64 / 1e6;
            return Probe { predicted_s: estimate.ttft_s(), true_s, late_resident };
        }
    }
}

fn probes(seed: u64, until_us: u64, count: usize) -> Vec<Arrival> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let one = |_| (rng.random_range(1_000..until_us), rng.random_range(8..6_000), 50);
    (0..count).map(one).collect()
}

#[test]
fn with_the_true_batch_time_the_replay_is_exact() {
    for (async_scheduling, num_kv_blocks, mean_gap_us) in [
        (false, 23_551, 60_000),
        (false, 600, 60_000),
        (true, 23_551, 60_000),
        (true, 23_551, 20_000),
        (true, 1_500, 60_000),
        (true, 600, 40_000),
    ] {
        let (mut profile, b) = four_term_profile(num_kv_blocks);
        profile.engine.async_scheduling = async_scheduling;
        let arrivals = load(11, 150, mean_gap_us, 4_000);
        let until_us = arrivals.last().unwrap().0;
        let (mut longest_s, mut exact) = (0.0f64, 0);
        for query in probes(12, until_us, 50) {
            let Probe { predicted_s, true_s, late_resident } = probe(&profile, b, &arrivals, query);
            if late_resident && async_scheduling {
                continue;
            }
            exact += 1;
            longest_s = longest_s.max(true_s);
            // The engine rounds each batch to a microsecond, the replay to nothing.
            assert!(
                (predicted_s - true_s).abs() <= 2e-4 + 1e-4 * true_s,
                "async {async_scheduling}, {num_kv_blocks} blocks, {query:?}: {predicted_s} s predicted, {true_s} s true"
            );
        }
        assert!(exact >= 5, "{exact} probes only");
        assert!(longest_s > 0.3, "the load of {num_kv_blocks} blocks never made a query wait: {longest_s}");
    }
}

#[test]
fn with_the_committed_fit_the_estimate_is_close_to_the_roofline() {
    for entry in PROFILES {
        let mut profile = Profile::built_in(entry.name).unwrap();
        profile.step_noise_sigma = 0.0;
        let b = ProfileEntry::find(entry.name).unwrap().parse_fit().unwrap().batch_time;
        // The same load against the capacity of each engine.
        let mean_gap_us = (profile.batch_time.compute_s_per_token * 3.5e9) as u64;
        let arrivals = load(21, 120, mean_gap_us, 4_000);
        let until_us = arrivals.last().unwrap().0;
        let errors: Vec<f64> = probes(22, until_us, 60)
            .into_iter()
            .map(|query| {
                let probe = probe(&profile, b, &arrivals, query);
                (probe.predicted_s / probe.true_s - 1.0).abs()
            })
            .collect();
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        assert!(mean < 0.15 && mean > 0.001, "{}: {mean}", entry.name);
    }
}
