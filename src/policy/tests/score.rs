//! SCORE on hand-computed cases.

use serde_json::json;

use super::*;

/// 20 output tokens each: a good slow dear one, a poor fast cheap one.
fn pool() -> Vec<Hand> {
    let hand = |accuracy, cost_usd, tpot_s, holds| Hand {
        accuracy: Some(accuracy),
        cost_usd: Some(cost_usd),
        output_tokens: Some(20.0),
        tpot_s: Some(tpot_s),
        holds: Some(holds),
        ..Hand::new(0, 0.5, 0.1)
    };
    vec![
        hand(0.9, 4e-4, 0.020, Holds::new(&[60], &[20])),
        hand(0.6, 1e-4, 0.010, Holds { sent: vec![30], ..Holds::new(&[], &[]) }),
    ]
}

fn believed(options: serde_json::Value) -> Vec<f64> {
    let (policy, hands) = (build("score", options).unwrap(), Hands::new(pool()));
    (0..2).map(|i| policy.believed_latency_s(&sized(100, &[]), &hands, i).unwrap()).collect()
}

fn chosen(options: serde_json::Value) -> usize {
    let choice = build("score", options).unwrap().choose(&sized(100, &[]), &Hands::new(pool()), &mut rng());
    let choice = choice.unwrap();
    assert_eq!(choice, Choice::single(choice.instance, Reason::Score));
    choice.instance
}

#[test]
fn residents_are_served_one_after_the_other_unless_a_batch_is_given() {
    // (60 + 20 + 20) × 20 ms, and (30 + 20) × 10 ms.
    let one = believed(json!({}));
    assert!(close(one[0], 2.0) && close(one[1], 0.5), "{one:?}");
    // (80/4 + 20) × 20 ms, and (30/4 + 20) × 10 ms.
    let four = believed(json!({"decode_batch": 4}));
    assert!(close(four[0], 0.8) && close(four[1], 0.275), "{four:?}");
}

#[test]
fn alpha_weighs_cost_and_latency_against_quality() {
    // Shares of the largest: cost 1 and 0.25, latency 1 and 0.25. With α on both weights 1:
    // 0.9 − 2α against 0.6 − 0.5α: even at α = 0.2.
    assert_eq!(chosen(json!({"alpha": 0})), 0);
    assert_eq!(chosen(json!({"alpha": 0.19})), 0);
    assert_eq!(chosen(json!({"alpha": 0.21})), 1);
    // Latency alone: 0.9 − α against 0.6 − 0.25α: even at α = 0.4.
    assert_eq!(chosen(json!({"alpha": 0.39, "w_cost": 0})), 0);
    assert_eq!(chosen(json!({"alpha": 0.41, "w_cost": 0})), 1);
    // Cost alone, at half weight: even at α = 0.8.
    assert_eq!(chosen(json!({"alpha": 0.79, "w_latency": 0, "w_cost": 0.5})), 0);
    assert_eq!(chosen(json!({"alpha": 0.81, "w_latency": 0, "w_cost": 0.5})), 1);
}

#[test]
fn a_batch_under_one_and_a_negative_weight_are_refused() {
    for (options, said) in [
        (json!({"decode_batch": 0.5}), "`decode_batch` is 0.5; give at least 1"),
        (json!({"alpha": -0.1}), "`alpha` is -0.1"),
        (json!({"alpha": "much"}), "options of policy `score`"),
    ] {
        let error = build("score", options).err().unwrap().to_string();
        assert!(error.contains(said), "{error}");
    }
}
