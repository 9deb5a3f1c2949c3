//! The semantic router's rule on hand-computed cases.

use serde_json::json;

use super::{super::vllm_sr::quantile, *};

/// Two replicas of one model and one of another, at pool positions 1, 2 and 3.
fn pool() -> Hands {
    let hand = |model, residents| Hand { residents: Some(residents), ..Hand::new(model, 0.5, 0.1) };
    let mut hands = Hands::new(vec![hand(0, 5), hand(0, 3), hand(1, 9)]);
    hands.first_position = 1;
    hands
}

/// An answer of 11 tokens with these TTFT and TPOT.
fn answer(instance: usize, ttft_s: f64, tpot_s: f64) -> Outcome {
    outcome(instance, ttft_s, ttft_s + 10.0 * tpot_s, 11)
}

fn chosen(policy: &dyn RoutingPolicy) -> Choice {
    policy.choose(&query(None, 0.0), &pool(), &mut rng()).unwrap()
}

#[test]
fn one_or_two_values_are_averaged_and_more_are_ranked() {
    assert_eq!(quantile(vec![], 90), None);
    assert_eq!(quantile(vec![2.0], 90), Some(2.0));
    // 0.3 × 4 + 0.7 × 2.
    assert!(close(quantile(vec![2.0, 4.0], 90).unwrap(), 2.6));
    // Rank 0.9 × 2 = 1.8 of 1, 2, 4: 2 + 0.8 × 2.
    assert!(close(quantile(vec![4.0, 1.0, 2.0], 90).unwrap(), 3.6));
    assert!(close(quantile(vec![4.0, 1.0, 2.0], 100).unwrap(), 4.0));
    // Rank 0.95 × 4 = 3.8 of 1 … 5: 4 + 0.8.
    assert!(close(quantile(vec![5.0, 3.0, 1.0, 2.0, 4.0], 95).unwrap(), 4.8));
}

#[test]
fn the_model_with_the_least_relative_percentiles_wins_and_its_emptiest_replica_serves() {
    let policy = build("vllm-sr", json!({})).unwrap();
    // Of model 0, seen on both replicas: TTFT 0.7 × 0.2 + 0.3 × 0.4 = 0.26, TPOT 0.010.
    policy.observe(&answer(1, 0.2, 0.010));
    policy.observe(&answer(2, 0.4, 0.010));
    // Of model 1: TTFT 0.13, TPOT 0.018. Scores (0.010/0.010 + 0.26/0.13)/2 = 1.5, (1.8 + 1)/2 = 1.4.
    policy.observe(&answer(3, 0.13, 0.018));
    assert_eq!(chosen(&*policy), Choice::single(2, Reason::LeastLatency));
    let believed = |i| policy.believed_latency_s(&query(None, 0.0), &pool(), i).unwrap();
    assert!(close(believed(0), 0.26) && close(believed(1), 0.26) && close(believed(2), 0.13));
    // By TPOT alone model 0 wins; the replica with 3 residents serves.
    let tpot = build("vllm-sr", json!({"ttft_percentile": 0})).unwrap();
    for seen in [answer(1, 0.2, 0.010), answer(3, 0.13, 0.018)] {
        tpot.observe(&seen);
    }
    assert_eq!(chosen(&*tpot).instance, 1);
    assert_eq!(tpot.believed_latency_s(&query(None, 0.0), &pool(), 0), None);
}

#[test]
fn a_model_that_lacks_a_metric_is_passed_over_unless_it_is_to_be_tried() {
    let (strict, curious) =
        (build("vllm-sr", json!({})).unwrap(), build("vllm-sr", json!({"try_unobserved": true})).unwrap());
    for policy in [&*strict, &*curious] {
        assert_eq!(chosen(policy).instance, 1, "nothing is known: the first model");
        policy.observe(&answer(3, 9.0, 9.0));
        // One token has no TPOT, so model 0 still lacks it.
        policy.observe(&outcome(1, 0.1, 0.1, 1));
    }
    assert_eq!(chosen(&*strict).instance, 2);
    assert_eq!(chosen(&*curious).instance, 1);
}

#[test]
fn without_percentiles_the_first_model_serves() {
    let policy = build("vllm-sr", json!({"tpot_percentile": 0, "ttft_percentile": 0})).unwrap();
    policy.observe(&answer(3, 0.1, 0.001));
    assert_eq!(chosen(&*policy).instance, 1);
}

#[test]
fn a_thousand_values_are_remembered() {
    let policy = build("vllm-sr", json!({"ttft_percentile": 100})).unwrap();
    let believed = || policy.believed_latency_s(&query(None, 0.0), &pool(), 0).unwrap();
    policy.observe(&answer(1, 50.0, 0.010));
    for _ in 0..999 {
        policy.observe(&answer(2, 0.2, 0.010));
    }
    assert!(close(believed(), 50.0), "the first of 1000 still counts");
    policy.observe(&answer(2, 0.3, 0.010));
    assert!(close(believed(), 0.3), "the 1001st pushes it out, on whichever replica");
}

#[test]
fn a_percentile_over_a_hundred_is_refused() {
    let error = build("vllm-sr", json!({"tpot_percentile": 101})).err().unwrap().to_string();
    assert!(error.contains("`tpot_percentile` is 101; give 0 to 100"), "{error}");
}
