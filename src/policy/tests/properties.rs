//! What holds for every policy: choosing moves nothing, and the stated probabilities are those of the draws.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::domain::Placement;

/// Every policy at its defaults, and those that draw otherwise by option.
fn settings() -> Vec<(&'static str, Value)> {
    let mut settings: Vec<(&str, Value)> = POLICIES.iter().map(|entry| (entry.name, json!({}))).collect();
    settings.push(("block", json!({"power_of_two": true})));
    settings.push(("dynamo", json!({"temperature": 0.5})));
    settings
}

prop_compose! {
    fn hand(model: usize, affinity: u32)(
        signals in (0u32..3, 0u32..3, 1u32..4, prop::option::of(1u32..4), 0u32..3, 0u64..3),
        running in prop::collection::vec(1u32..9, 0..3),
        waiting in prop::collection::vec(1u32..9, 0..2),
        told in any::<bool>(),
    ) -> Hand {
        let (accuracy, cost, ttft, tpot, outstanding, prefilling) = signals;
        Hand {
            accuracy: Some(0.5 + 0.1 * f64::from(accuracy)),
            cost_usd: Some(1e-4 * f64::from(cost)),
            tpot_s: tpot.map(|tpot| 0.01 * f64::from(tpot)),
            holds: told.then(|| Holds::new(&running, &waiting)),
            outstanding,
            prefilling: prefilling * 16,
            affinity,
            ..Hand::new(model, 0.5 + 0.1 * f64::from(accuracy) - 0.05 * f64::from(cost), 0.1 * f64::from(ttft))
        }
    }
}

fn pool() -> impl Strategy<Value = Vec<Hand>> {
    (hand(0, 0), hand(1, 1), hand(1, 2), hand(2, 3)).prop_map(|(a, b, c, d)| vec![a, b, c, d])
}

/// A request that was placed and ended: where, its prompt's blocks, and its TTFT in tenths of a second.
fn past() -> impl Strategy<Value = Vec<(usize, u64, u32)>> {
    prop::collection::vec((0usize..4, 1u64..4, 1u32..5), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn choosing_moves_nothing_and_states_its_probability(hands in pool(), past in past()) {
        const DRAWS: u32 = 400;
        let hands = Hands::new(hands);
        let query = Query { ttft_target: Some(Duration::from_millis(150)), ..sized(64, &[1, 2, 3]) };
        for (name, options) in settings() {
            let policy = build(name, options).unwrap();
            for &(instance, block, tenths) in &past {
                policy.dispatched(&sized(64, &[block, 2, 3]), &Placement::single(instance, None));
                let ttft_s = 0.1 * f64::from(tenths);
                policy.observe(&outcome(instance, ttft_s, ttft_s + 0.1, 1 + tenths));
            }
            let before = policy.choose(&query, &hands, &mut rng());
            let mut stated = [None; 4];
            let mut counts = [0u32; 4];
            let mut rng_of_draws = rng();
            for _ in 0..DRAWS {
                let choice = policy.choose(&query, &hands, &mut rng_of_draws).unwrap();
                let known = stated[choice.instance].replace(choice.propensity);
                prop_assert!(known.is_none_or(|known| known == choice.propensity), "{}", name);
                counts[choice.instance] += 1;
            }
            for (count, stated) in counts.into_iter().zip(stated) {
                let expected = stated.unwrap_or(0.0) * f64::from(DRAWS);
                // Five standard deviations of a binomial count are at most 5 × √400 / 2.
                prop_assert!((f64::from(count) - expected).abs() <= 50.0, "{} {:?}", name, counts);
            }
            prop_assert_eq!(before, policy.choose(&query, &hands, &mut rng()), "{}", name);
        }
    }
}
