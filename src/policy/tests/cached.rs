//! SGLang's and Dynamo's rules, and the index of what was sent where, on hand-computed cases.

use serde_json::json;

use super::{super::prefix_index::PrefixIndex, *};
use crate::domain::Placement;

fn busy(outstanding: &[u32]) -> Hands {
    let hand = |&outstanding| Hand { outstanding, ..Hand::new(0, 0.5, 0.1) };
    Hands::new(outstanding.iter().map(hand).collect())
}

fn send(policy: &dyn RoutingPolicy, instance: usize, prefix: &[u64]) {
    policy.dispatched(&sized(64, prefix), &Placement::single(instance, None));
}

fn chosen(policy: &dyn RoutingPolicy, prefix: &[u64], hands: &Hands) -> Choice {
    policy.choose(&sized(64, prefix), hands, &mut rng()).unwrap()
}

#[test]
fn the_index_matches_from_the_start_and_forgets_ends_first() {
    let index = PrefixIndex::new(4);
    index.placed(7, &[1, 2, 3]);
    assert_eq!(index.matched_blocks(7, &[1, 2, 9]), 2);
    assert_eq!(index.matched_blocks(7, &[2, 3]), 2);
    assert_eq!(index.matched_blocks(7, &[9, 1, 2]), 0);
    assert_eq!(index.matched_blocks(8, &[1]), 0);
    // Two more than fit with the last block of the first prompt: that one goes.
    index.placed(7, &[4, 5]);
    assert_eq!((index.matched_blocks(7, &[1, 2, 3]), index.matched_blocks(7, &[4, 5])), (2, 2));
    // Sent again, a prompt is the newest; a longer one than fits is kept from its start.
    index.placed(7, &[1, 2]);
    index.placed(7, &[6]);
    assert_eq!((index.matched_blocks(7, &[1, 2]), index.matched_blocks(7, &[4, 5])), (2, 1));
    index.placed(7, &[11, 12, 13, 14, 15]);
    assert_eq!((index.matched_blocks(7, &[11, 12, 13, 14, 15]), index.matched_blocks(7, &[6])), (4, 0));
}

#[test]
fn sglang_follows_a_match_over_half_of_the_prompt() {
    let policy = build("sglang-cache-aware", json!({})).unwrap();
    send(&*policy, 1, &[1, 2, 3]);
    let hands = busy(&[0, 5]);
    assert_eq!(chosen(&*policy, &[1, 2, 3, 9], &hands), Choice::single(1, Reason::CacheHit));
    // Two of four are not more than half.
    assert_eq!(chosen(&*policy, &[1, 2, 8, 9], &hands), Choice::single(0, Reason::LeastLoad));
    assert_eq!(chosen(&*policy, &[], &hands), Choice::single(0, Reason::LeastLoad));
    // The same match twice: the less loaded.
    send(&*policy, 0, &[1, 2, 3]);
    assert_eq!(chosen(&*policy, &[1, 2, 3, 9], &hands), Choice::single(0, Reason::CacheHit));
}

#[test]
fn sglang_leaves_a_match_where_load_is_uneven() {
    let policy = build("sglang-cache-aware", json!({"balance_rel_threshold": 2})).unwrap();
    send(&*policy, 1, &[1, 2]);
    // 33 − 0 > 32 and 33 > 2·0; 32 is not more than 32; 66 − 33 > 32 but 66 is not more than 2·33.
    assert_eq!(chosen(&*policy, &[1, 2], &busy(&[0, 33])), Choice::single(0, Reason::LeastLoad));
    assert_eq!(chosen(&*policy, &[1, 2], &busy(&[0, 32])), Choice::single(1, Reason::CacheHit));
    assert_eq!(chosen(&*policy, &[1, 2], &busy(&[33, 66])), Choice::single(1, Reason::CacheHit));
}

#[test]
fn sglang_knows_instances_by_pool_position() {
    let policy = build("sglang-cache-aware", json!({})).unwrap();
    send(&*policy, 6, &[1, 2]);
    let mut hands = busy(&[0, 5]);
    hands.first_position = 5;
    assert_eq!(chosen(&*policy, &[1, 2], &hands).instance, 1);
}

#[test]
fn dynamo_adds_prefill_and_decode_blocks_less_the_cached() {
    // A prompt of 64 tokens is 4 blocks. Held: 800 tokens are 50 blocks and a waiting prompt of 32 is 2 more.
    let with = |waiting: &[u32], prefilling| Hand {
        holds: Some(Holds::new(&[1], waiting)),
        prefilling,
        ..Hand::new(0, 0.5, 0.1)
    };
    let hands = Hands::new(vec![with(&[], 48), with(&[1], 0)]);
    let policy = build("dynamo", json!({})).unwrap();
    // 48/16 + 4 + 50 + 4 = 61 against 0 + 4 + 52 + 4 = 60.
    assert_eq!(chosen(&*policy, &[1, 2, 3, 4], &hands), Choice::single(1, Reason::Score));
    // Two blocks cached on the first: 59.
    send(&*policy, 0, &[1, 2]);
    assert_eq!(chosen(&*policy, &[1, 2, 3, 4], &hands), Choice::single(0, Reason::Score));
    // With decay 1 the credit is 2 / (1 + 3/4) = 1.14: 61 − 1.14 = 59.86, still less than 60; with 2 it is
    // 2 / (1 + 6/4) = 0.8, and 60.2 is more.
    for (decay, best) in [(1, 0), (2, 1)] {
        let policy = build("dynamo", json!({"overlap_credit_decay": decay})).unwrap();
        send(&*policy, 0, &[1, 2]);
        assert_eq!(chosen(&*policy, &[1, 2, 3, 4], &hands).instance, best, "{decay}");
    }
    // Half a credit a block: 60 each, a tie.
    let policy = build("dynamo", json!({"overlap_credit": 0.5})).unwrap();
    send(&*policy, 0, &[1, 2]);
    assert!(close(chosen(&*policy, &[1, 2, 3, 4], &hands).propensity, 0.5));
}

#[test]
fn dynamo_may_weigh_requests_and_prefill() {
    let hand = |outstanding, prefilling| Hand {
        holds: Some(Holds::new(&[], &[])),
        outstanding,
        prefilling,
        ..Hand::new(0, 0.5, 0.1)
    };
    let hands = Hands::new(vec![hand(4, 0), hand(0, 48)]);
    // 0 + 4 requests × w against 48/16 × s.
    for (options, best) in [
        (json!({}), 0),
        (json!({"active_request_weight": 0.7}), 0),
        (json!({"active_request_weight": 0.8}), 1),
        (json!({"active_request_weight": 0.8, "prefill_load_scale": 1.1}), 0),
    ] {
        assert_eq!(
            chosen(&*build("dynamo", options.clone()).unwrap(), &[], &hands).instance,
            best,
            "{options}"
        );
    }
}

#[test]
fn dynamo_draws_by_cost_at_a_temperature() {
    let hand = |prefilling| Hand { prefilling, ..Hand::new(0, 0.5, 0.1) };
    // Costs 8, 9 and 10: weights e^0, e^-(1/2)/0.5 = e^-1 and e^-2, of 1.503 together.
    let hands = Hands::new(vec![hand(0), hand(16), hand(32)]);
    let policy = build("dynamo", json!({"temperature": 0.5})).unwrap();
    let mut rng = rng();
    let mut counts = [0; 3];
    for _ in 0..1000 {
        let choice = policy.choose(&sized(64, &[]), &hands, &mut rng).unwrap();
        let stated = [0.665_241, 0.244_728, 0.090_031][choice.instance];
        assert!((choice.propensity - stated).abs() < 1e-6, "{choice:?}");
        counts[choice.instance] += 1;
    }
    assert!((600..730).contains(&counts[0]) && (190..300).contains(&counts[1]), "{counts:?}");
    let even = Hands::new(vec![hand(0), hand(0)]);
    assert!(close(policy.choose(&sized(64, &[]), &even, &mut rng).unwrap().propensity, 0.5));
}

#[test]
fn values_out_of_range_are_named() {
    for (name, options, said) in [
        ("dynamo", json!({"temperature": -1}), "`temperature` is -1"),
        ("sglang-cache-aware", json!({"cache_threshold": 1.5}), "`cache_threshold` is 1.5; give 0 to 1"),
    ] {
        let error = build(name, options).err().unwrap().to_string();
        assert!(error.contains(name) && error.contains(said), "{error}");
    }
}
