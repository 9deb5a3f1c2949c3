//! Whatever the order of events: loads return to zero, nothing is counted twice, each reserve meets one
//! settle, and every state can be replayed.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::{
    domain::{Ending, Horizon, Load},
    latency::{Estimator, EstimatorSetup, estimator},
};

const INSTANCES: usize = 2;

#[derive(Clone, Debug)]
enum Step {
    Reserve {
        instance: usize,
        prompt_tokens: u32,
        cached_tokens: u32,
        streamed: bool,
    },
    FirstToken(usize),
    Tokens(usize, u32),
    Usage(usize, u32),
    Finish(usize),
    Drop(usize),
    /// A snapshot that lists those of the instance's requests which the mask picks, and a stranger.
    Snapshot {
        instance: usize,
        seq: u64,
        mask: u16,
        new_life: bool,
    },
    Lost(usize),
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0usize..16;
    prop_oneof![
        4 => (0..INSTANCES, 1u32..5000, 0u32..6000, any::<bool>()).prop_map(
            |(instance, prompt_tokens, cached_tokens, streamed)| Step::Reserve {
                instance,
                prompt_tokens,
                cached_tokens,
                streamed
            }
        ),
        2 => which.clone().prop_map(Step::FirstToken),
        2 => (which.clone(), 1u32..40).prop_map(|(k, n)| Step::Tokens(k, n)),
        1 => (which.clone(), 1u32..400).prop_map(|(k, n)| Step::Usage(k, n)),
        2 => which.clone().prop_map(Step::Finish),
        1 => which.prop_map(Step::Drop),
        3 => (0..INSTANCES, 0u64..30, any::<u16>(), prop::bool::weighted(0.1)).prop_map(
            |(instance, seq, mask, new_life)| Step::Snapshot { instance, seq, mask, new_life }
        ),
        1 => (0..INSTANCES).prop_map(Step::Lost),
        3 => (0u64..700).prop_map(Step::Advance),
    ]
}

/// A live reservation and what the test knows of it.
struct Held {
    reservation: Reservation,
    uncached_tokens: u64,
    first_token: bool,
    prompt_tokens: u32,
}

fn run(bench: &Bench, held: &mut Vec<Held>, reserved: &mut usize, lives: &mut u64, step: Step) {
    let slot = |k: usize, held: &Vec<Held>| (!held.is_empty()).then(|| k % held.len().max(1));
    match step {
        Step::Reserve { instance, prompt_tokens, cached_tokens, streamed } => {
            let load = QueryLoad { cached_tokens, ..load(prompt_tokens, 50) };
            let id = format!("r{reserved}");
            let request = ReserveRequest { load, streamed, ..request(instance, &id) };
            *reserved += 1;
            held.push(Held {
                reservation: bench.reserve_with(request),
                uncached_tokens: u64::from(prompt_tokens.saturating_sub(cached_tokens)),
                first_token: false,
                prompt_tokens,
            });
        }
        Step::FirstToken(k) => {
            if let Some(k) = slot(k, held) {
                held[k].reservation.first_token();
                held[k].first_token = true;
            }
        }
        Step::Tokens(k, n) => {
            if let Some(k) = slot(k, held) {
                held[k].reservation.tokens(n);
            }
        }
        Step::Usage(k, n) => {
            if let Some(k) = slot(k, held) {
                held[k].reservation.usage(10, None, n);
            }
        }
        Step::Finish(k) => {
            if let Some(k) = slot(k, held) {
                held.swap_remove(k).reservation.finish(Ending::Complete);
            }
        }
        Step::Drop(k) => {
            if let Some(k) = slot(k, held) {
                drop(held.swap_remove(k));
            }
        }
        Step::Snapshot { instance, seq, mask, new_life } => {
            *lives += u64::from(new_life);
            let ours = held.iter().filter(|h| h.reservation.instance() == instance);
            let listed = ours.enumerate().filter(|(n, _)| mask >> (n % 16) & 1 == 1);
            let mut residents: Vec<Resident> =
                listed.map(|(_, h)| waiting(h.reservation.attempt_id(), h.prompt_tokens)).collect();
            residents.push(decoding("stranger", 100, 1 + u32::from(mask % 300)));
            let snapshot = Snapshot { nonce: lives.to_string(), ..bench.snapshot(seq, &[], &residents) };
            bench.pool.publish(instance, snapshot, bench.clock.now()).unwrap();
        }
        Step::Lost(instance) => bench.pool.source_lost(instance, bench.clock.now()),
        Step::Advance(ms) => bench.clock.advance_ms(ms),
    }
}

fn check(bench: &Bench, held: &[Held], bea: &dyn Estimator) -> Result<(), TestCaseError> {
    for instance in 0..INSTANCES {
        let ours: Vec<&Held> = held.iter().filter(|h| h.reservation.instance() == instance).collect();
        let expected = Load {
            requests: ours.len() as u32,
            uncached_prefill_tokens: ours.iter().filter(|h| !h.first_token).map(|h| h.uncached_tokens).sum(),
        };
        prop_assert_eq!(bench.pool.load(instance), expected);
        let basis = bench.pool.view(instance, bench.clock.now()).basis.unwrap();
        let residents = basis.snapshot.running.iter().chain(&basis.snapshot.waiting);
        let mut seen = HashSet::new();
        for resident in residents {
            prop_assert!(seen.insert(resident.id.clone()), "{} twice", resident.id);
            prop_assert!(basis.predicted_remaining[&resident.id] >= 1);
        }
        let live: HashSet<&str> = ours.iter().map(|h| h.reservation.attempt_id()).collect();
        for sent in &*basis.dispatched {
            prop_assert!(seen.insert(sent.id.clone()), "{} twice", sent.id);
            prop_assert!(live.contains(sent.id.as_str()), "{} has settled", sent.id);
            prop_assert!(sent.output_tokens >= 1);
        }
        let view = bench.pool.view(instance, bench.clock.now());
        let estimate = bea.estimate(load(500, 50), &view, bench.clock.now(), Horizon::FirstToken);
        prop_assert!(estimate.ttft.is_ok(), "{:?} of {:?}", estimate, view.basis);
    }
    Ok(())
}

proptest! {
    #[test]
    fn loads_return_to_zero_and_each_reserve_meets_one_settle(
        steps in prop::collection::vec(step(), 1..80)
    ) {
        let bench = Bench::new(INSTANCES);
        let bea = (estimator("bea").unwrap().construct)(&EstimatorSetup::default());
        let (mut held, mut reserved, mut lives) = (Vec::new(), 0, 0);
        for step in steps {
            run(&bench, &mut held, &mut reserved, &mut lives, step);
            check(&bench, &held, &*bea)?;
        }
        drop(held);
        for instance in 0..INSTANCES {
            prop_assert_eq!(bench.pool.load(instance), Load::default());
        }
        let ends = bench.ends.0.lock().unwrap();
        let ids: HashSet<&str> = ends.iter().map(|end| end.attempt_id.as_str()).collect();
        prop_assert_eq!((ends.len(), ids.len()), (reserved, reserved));
    }
}
