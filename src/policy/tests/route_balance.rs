//! RouteBalance on hand-computed cases.

use serde_json::json;

use super::*;
use crate::domain::Placement;

/// 100 prompt and 20 output tokens at 10 ms each; one instance idle, one busy.
fn pool() -> Vec<Hand> {
    let hand = |model, accuracy, cost_usd, holds| Hand {
        accuracy: Some(accuracy),
        cost_usd: Some(cost_usd),
        output_tokens: Some(20.0),
        tpot_s: Some(0.010),
        holds: Some(holds),
        ..Hand::new(model, 0.5, 0.1)
    };
    vec![
        hand(0, 0.5, 2e-5, Holds::new(&[30, 50], &[])),
        hand(1, 0.8, 8e-5, Holds { free_kv_blocks: 20, ..Holds::new(&[30, 50], &[40]) }),
    ]
}

fn choose(policy: &dyn RoutingPolicy, hands: Vec<Hand>) -> Choice {
    policy.choose(&sized(100, &[]), &Hands::new(hands), &mut rng()).unwrap()
}

#[test]
fn latency_is_decoding_alone_with_a_free_slot_and_follows_the_pending_tokens_without() {
    let policy = build("route-balance", json!({})).unwrap();
    let believed =
        |hands: Vec<Hand>| policy.believed_latency_s(&sized(100, &[]), &Hands::new(hands), 0).unwrap();
    let with = |holds: Holds| vec![Hand { holds: Some(holds), ..pool().remove(0) }];
    // 20 tokens × 10 ms.
    assert!(close(believed(pool()), 0.2));
    // One waits: pending 30 + 50 + 40 = 120 over 2 running = 60; (60 + 20) × 10 ms.
    assert!(close(believed(with(Holds::new(&[30, 50], &[40]))), 0.8));
    // One was sent since the capture: (120/2 + 20) × 10 ms.
    assert!(close(believed(with(Holds { sent: vec![40], ..Holds::new(&[30, 50], &[]) })), 0.8));
    // No slot is free: (80/2 + 20) × 10 ms.
    assert!(close(believed(with(Holds { max_num_seqs: 2, ..Holds::new(&[30, 50], &[]) })), 0.6));
    // Two unlisted ones count as the mean of the listed, 40: (30 + 50 + 40 + 80)/2 + 20 = 120 × 10 ms.
    assert!(close(believed(with(Holds { beyond: 2, ..Holds::new(&[30, 50], &[40]) })), 1.2));
    // Nothing runs: the pending 40 tokens over 1; (40 + 20) × 10 ms.
    assert!(close(believed(with(Holds::new(&[], &[40]))), 0.6));
}

#[test]
fn tpot_is_at_least_a_millisecond_and_a_single_token_takes_the_whole_answer() {
    let policy = build("route-balance", json!({})).unwrap();
    let believed = |hand: Hand| policy.believed_latency_s(&sized(9, &[]), &Hands::new(vec![hand]), 0);
    let idle = || Hand { holds: Some(Holds::new(&[], &[])), ..pool().remove(0) };
    assert!(close(believed(Hand { tpot_s: Some(1e-5), ..idle() }).unwrap(), 0.020));
    let single = Hand { tpot_s: None, e2e_s: Some(0.3), output_tokens: Some(1.0), ..idle() };
    assert!(close(believed(single).unwrap(), 0.3));
    assert_eq!(believed(Hand { tpot_s: None, ..idle() }), None);
    assert_eq!(believed(Hand { output_tokens: None, ..idle() }), None);
}

#[test]
fn the_weights_decide_between_quality_cost_latency_and_use() {
    let with = |options| choose(&*build("route-balance", options).unwrap(), pool());
    // Instance 0 is worse (0.5 < 0.8), cheaper (1 − 2/8 = 0.75 over 0) and faster (1 − 0.2/0.8 = 0.75 over 0).
    // Use: 50 + 120/16 = 57.5 of 100 blocks over 80 + 7.5 = 87.5, so 1 − 57.5/87.5 = 0.343 over 0.
    for (options, best) in [
        (json!({"w_q": 1, "w_c": 0, "w_l": 0, "w_b": 0}), 1),
        (json!({"w_q": 0, "w_c": 1, "w_l": 0, "w_b": 0}), 0),
        (json!({"w_q": 0, "w_c": 0, "w_l": 1, "w_b": 0}), 0),
        (json!({"w_q": 0, "w_c": 0, "w_l": 0, "w_b": 1}), 0),
        // 0.75·0.5 + 0.25·0.75 = 0.5625 < 0.75·0.8 = 0.6, and 0.7·0.5 + 0.3·0.75 = 0.575 > 0.7·0.8 = 0.56.
        (json!({"w_q": 0.75, "w_c": 0.25, "w_l": 0, "w_b": 0}), 1),
        (json!({"w_q": 0.70, "w_c": 0.30, "w_l": 0, "w_b": 0}), 0),
        // 0.5·0.5 + 0.5·0.343 = 0.421 > 0.5·0.8 = 0.4; 0.6·0.5 + 0.4·0.343 = 0.437 < 0.6·0.8 = 0.48.
        (json!({"w_q": 0.5, "w_c": 0, "w_l": 0, "w_b": 0.5}), 0),
        (json!({"w_q": 0.6, "w_c": 0, "w_l": 0, "w_b": 0.4}), 1),
    ] {
        assert_eq!(with(options.clone()), Choice::single(best, Reason::Score), "{options}");
    }
}

#[test]
fn use_is_residents_over_capacity_where_the_cache_is_unknown() {
    let ledger = |free_kv_blocks, residents| Hand {
        holds: Some(Holds { from_ledger: true, free_kv_blocks, ..Holds::new(&[], &[]) }),
        residents: Some(residents),
        ..pool().remove(0)
    };
    let policy = build("route-balance", json!({"w_q": 0, "w_c": 0, "w_l": 0, "w_b": 1})).unwrap();
    // 4/8 and 2/8, whatever the ledger supposes of the cache.
    assert_eq!(choose(&*policy, vec![ledger(90, 4), ledger(10, 2)]).instance, 1);
    // A known cache at 50 + 120/16 = 57.5% comes after 4/8 and before 5/8.
    let known = |residents| vec![Hand { residents: Some(0), ..pool().remove(0) }, ledger(90, residents)];
    assert_eq!(choose(&*policy, known(4)).instance, 1);
    assert_eq!(choose(&*policy, known(5)).instance, 0);
}

#[test]
fn ties_go_to_fewer_residents_then_to_the_least_recently_assigned() {
    let alike = |residents| Hand { residents: Some(residents), ..pool().remove(0) };
    let policy = build("route-balance", json!({"w_b": 0})).unwrap();
    assert_eq!(choose(&*policy, vec![alike(3), alike(2), alike(2)]).instance, 1);
    let hands = || {
        let mut hands = Hands::new(vec![alike(2), alike(2), alike(2)]);
        hands.first_position = 4;
        hands
    };
    let turns: Vec<usize> = (0..5)
        .map(|_| {
            let chosen = policy.choose(&sized(100, &[]), &hands(), &mut rng()).unwrap().instance;
            policy.dispatched(&sized(100, &[]), &Placement::single(chosen + 4, None));
            chosen
        })
        .collect();
    assert_eq!(turns, [0, 1, 2, 0, 1]);
}

#[test]
fn an_unknown_signal_comes_after_known_ones_unless_it_has_no_weight() {
    let mut hands = pool();
    hands[1].accuracy = None;
    let quality = json!({"w_q": 1, "w_c": 0, "w_l": 0, "w_b": 0});
    assert_eq!(choose(&*build("route-balance", quality).unwrap(), hands.clone()).instance, 0);
    hands[1].cost_usd = Some(1e-6);
    let cost = json!({"w_q": 0, "w_c": 1, "w_l": 0, "w_b": 0});
    assert_eq!(choose(&*build("route-balance", cost).unwrap(), hands).instance, 1);
}

#[test]
fn a_weight_of_zero_asks_for_no_estimate() {
    let hands = Hands::new(pool());
    let policy = build("route-balance", json!({"w_l": 0})).unwrap();
    policy.choose(&sized(100, &[]), &hands, &mut rng()).unwrap();
    assert!(hands.asked.borrow().is_empty());
}

#[test]
fn values_out_of_range_are_named() {
    for (options, said) in [
        (json!({"w_q": -1}), "`w_q` is -1; give a number of at least 0"),
        (json!({"capacity_requests": 0}), "`capacity_requests` is 0; give at least 1"),
    ] {
        let error = build("route-balance", options).err().unwrap().to_string();
        assert!(error.contains("`route-balance`") && error.contains(said), "{error}");
    }
}
