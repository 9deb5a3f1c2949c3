//! Block and power of two on hand-computed cases.

use serde_json::json;

use super::*;

fn predicted(ttft_s: f64, tpot_s: Option<f64>, residents: u32) -> Hand {
    Hand { tpot_s, residents: Some(residents), ..Hand::new(0, 0.5, ttft_s) }
}

/// Draws many times; returns the stated probability and the count of each candidate.
fn draws(policy: &dyn RoutingPolicy, hands: &Hands) -> Vec<(f64, u32)> {
    let mut seen = vec![(0.0, 0); hands.len()];
    let mut rng = rng();
    for _ in 0..600 {
        let choice = policy.choose(&query(None, 0.0), hands, &mut rng).unwrap();
        seen[choice.instance].0 = choice.propensity;
        seen[choice.instance].1 += 1;
    }
    seen
}

#[test]
fn block_takes_the_least_ttft_and_decoding() {
    let policy = build("block", json!({})).unwrap();
    // 10 tokens: 0.3 + 10 × 0.01 = 0.4 against 0.1 + 10 × 0.04 = 0.5.
    let hands = Hands::new(vec![predicted(0.1, Some(0.04), 0), predicted(0.3, Some(0.01), 9)]);
    assert_eq!(
        policy.choose(&query(None, 0.0), &hands, &mut rng()),
        Some(Choice::single(1, Reason::LeastLatency))
    );
    let believed = |i| policy.believed_latency_s(&query(None, 0.0), &hands, i).unwrap();
    assert!(close(believed(0), 0.5) && close(believed(1), 0.4));
}

#[test]
fn block_puts_what_has_no_prediction_last_by_residents() {
    let policy = build("block", json!({})).unwrap();
    let unknown = |residents| predicted(0.1, None, residents);
    let never = Hand { ttft_s: None, ..predicted(0.1, Some(0.01), 1) };
    let hands = Hands::new(vec![unknown(3), unknown(2), never]);
    assert_eq!(policy.choose(&query(None, 0.0), &hands, &mut rng()).unwrap().instance, 2);
    assert_eq!(policy.believed_latency_s(&query(None, 0.0), &hands, 0), None);
    // However slow, a prediction comes first.
    let hands = Hands::new(vec![unknown(0), predicted(900.0, Some(1.0), 9)]);
    assert_eq!(policy.choose(&query(None, 0.0), &hands, &mut rng()).unwrap().instance, 1);
}

#[test]
fn block_takes_the_clients_cap_for_an_unknown_length() {
    let policy = build("block", json!({})).unwrap();
    let hand = |ttft_s, tpot_s| Hand { output_tokens: None, ..predicted(ttft_s, Some(tpot_s), 0) };
    let hands = Hands::new(vec![hand(0.1, 0.02), hand(0.3, 0.01)]);
    let capped = |tokens| Query { max_output_tokens: Some(tokens), ..query(None, 0.0) };
    // 0.1 + 10 × 0.02 = 0.3 against 0.3 + 10 × 0.01 = 0.4; with 30: 0.7 against 0.6.
    assert_eq!(policy.choose(&capped(10), &hands, &mut rng()).unwrap().instance, 0);
    assert_eq!(policy.choose(&capped(30), &hands, &mut rng()).unwrap().instance, 1);
}

#[test]
fn block_draws_among_equals_and_may_look_at_two_only() {
    let hands = Hands::new(vec![
        predicted(0.1, Some(0.01), 0),
        predicted(0.1, Some(0.01), 0),
        predicted(0.2, Some(0.01), 0),
    ]);
    let all = draws(&*build("block", json!({})).unwrap(), &hands);
    assert!(close(all[0].0, 0.5) && close(all[1].0, 0.5) && all[2].1 == 0, "{all:?}");
    assert!(all[0].1 > 240 && all[1].1 > 240, "{all:?}");
    // Of the pairs 01, 02 and 12 the first two win 0.5 + 1 of three each, the last none.
    let two = draws(&*build("block", json!({"power_of_two": true})).unwrap(), &hands);
    assert!(close(two[0].0, 0.5) && close(two[1].0, 0.5) && two[2].1 == 0, "{two:?}");
}

#[test]
fn power_of_two_compares_token_loads_where_both_are_told() {
    let policy = build("power-of-two", json!({})).unwrap();
    // Held: (100 − 50) blocks × 16 = 800 tokens, plus 32 a waiting one.
    let told = |waiting: &[u32], outstanding| Hand {
        holds: Some(Holds::new(&[1], waiting)),
        outstanding,
        ..Hand::new(0, 0.5, 0.1)
    };
    // 864, 832 and 800: the pairs 01, 02, 12 are won by 1, 2, 2.
    let seen = draws(&*policy, &Hands::new(vec![told(&[1, 1], 0), told(&[1], 1), told(&[], 2)]));
    assert_eq!(seen[0].1, 0);
    assert!(close(seen[1].0, 1.0 / 3.0) && close(seen[2].0, 2.0 / 3.0), "{seen:?}");
    assert!((150..250).contains(&seen[1].1), "{seen:?}");
    // Nothing told of one: requests in flight, 0 against 1, though it holds more tokens than the other may.
    let untold = Hand { outstanding: 1, ..Hand::new(0, 0.5, 0.1) };
    assert_eq!(draws(&*policy, &Hands::new(vec![told(&[1, 1], 0), untold.clone()]))[0], (1.0, 600));
    assert_eq!(draws(&*policy, &Hands::new(vec![told(&[], 2), untold]))[1], (1.0, 600));
}

#[test]
fn of_one_candidate_power_of_two_takes_that_one() {
    let hands = Hands::new(vec![Hand::new(0, 0.5, 0.1)]);
    let choice = build("power-of-two", json!({})).unwrap().choose(&query(None, 0.0), &hands, &mut rng());
    assert_eq!(choice, Some(Choice::single(0, Reason::LeastLoad)));
}
