//! Eq. 5 on hand-computed cases, and against its own definition.

use proptest::prelude::*;

use super::*;

fn choose(target_s: Option<f64>, hands: &Hands) -> Choice {
    Bear.choose(&query(target_s, 0.0), hands, &mut rng()).unwrap()
}

#[test]
fn the_best_utility_within_the_target_wins() {
    // 32B is best but late, 8B is next and in time, 0.6B is in time and worse.
    let hands = Hands::new(vec![Hand::new(0, 0.3, 0.01), Hand::new(1, 0.6, 0.15), Hand::new(2, 0.8, 0.4)]);
    let choice = choose(Some(0.2), &hands);
    assert_eq!((choice.instance, choice.reason, choice.propensity), (1, Reason::MaxUtility, 1.0));
    assert_eq!(choice.interchangeable, [1]);
    assert_eq!(*hands.asked.borrow(), BTreeSet::from([1, 2]), "the small model needs no estimate");
}

#[test]
fn of_a_large_tier_a_few_tell_the_probability() {
    // A hundred equal replicas, every second one late: the first in time is asked about, and three behind it.
    let hand = |i: usize| Hand::new(0, 0.5, if i.is_multiple_of(2) { 0.4 } else { 0.1 });
    let hands = Hands::new((0..100).map(hand).collect());
    let choice = choose(Some(0.2), &hands);
    assert_eq!(choice.instance, 1);
    assert_eq!(*hands.asked.borrow(), (0..5).collect());
    // Two of the five asked are in time: 40 of 100 are held to be, and one of 40 is picked.
    assert!((choice.propensity - 0.025).abs() < 1e-12, "{}", choice.propensity);
}

#[test]
fn a_ttft_on_the_target_is_in_time() {
    let hands = Hands::new(vec![Hand::new(0, 0.3, 0.01), Hand::new(1, 0.6, 0.25)]);
    assert_eq!(choose(Some(0.25), &hands).instance, 1);
}

#[test]
fn without_a_target_everything_that_can_run_is_feasible() {
    let never = Hand { ttft_s: None, ..Hand::new(2, 0.9, 0.0) };
    let hands = Hands::new(vec![Hand::new(0, 0.3, 0.01), Hand::new(1, 0.6, 900.0), never]);
    let choice = choose(None, &hands);
    assert_eq!((choice.instance, choice.reason), (1, Reason::MaxUtility));
}

#[test]
fn an_answer_past_the_replays_limit_misses_every_target_and_is_no_reason_without_one() {
    let of = |ttft| Estimate {
        ttft,
        e2e_s: None,
        tpot_s: None,
        spread_s: None,
        source: EstimateSource::Bea,
        age_s: None,
    };
    let target = Some(Duration::from_secs(3600));
    let late = of(Err(NoEstimate::Limit));
    assert_eq!((feasible(&late, None), feasible(&late, target)), (true, false));
    let never = of(Err(NoEstimate::Unschedulable));
    assert_eq!((feasible(&never, None), feasible(&never, target)), (false, false));
}

#[test]
fn nothing_feasible_goes_to_the_least_ttft_alone() {
    let hands = Hands::new(vec![Hand::new(0, 0.3, 0.5), Hand::new(0, 0.3, 0.4), Hand::new(1, 0.8, 0.9)]);
    let choice = choose(Some(0.1), &hands);
    assert_eq!(choice, Choice::single(1, Reason::LeastTtft));
}

#[test]
fn equal_least_ttfts_go_by_utility_and_then_in_order() {
    let hands = Hands::new(vec![Hand::new(0, 0.3, 0.5), Hand::new(1, 0.7, 0.5), Hand::new(2, 0.7, 0.5)]);
    assert_eq!(choose(Some(0.1), &hands), Choice::single(1, Reason::LeastTtft));
}

#[test]
fn where_nothing_can_run_utility_still_orders() {
    let never = |model, utility| Hand { ttft_s: None, ..Hand::new(model, utility, 0.0) };
    let hands = Hands::new(vec![never(0, 0.3), never(1, 0.7)]);
    assert_eq!(choose(None, &hands), Choice::single(1, Reason::LeastTtft));
}

#[test]
fn replicas_go_in_the_order_of_affinity_and_the_first_in_time_is_taken() {
    let replica = |affinity, ttft_s| Hand { affinity, ..Hand::new(0, 0.8, ttft_s) };
    let hands = Hands::new(vec![replica(2, 0.1), replica(0, 0.9), replica(1, 0.2), Hand::new(1, 0.2, 0.0)]);
    let choice = choose(Some(0.3), &hands);
    assert_eq!((choice.instance, choice.reason, choice.propensity), (2, Reason::MaxUtility, 1.0));
    assert_eq!(choice.interchangeable, [0, 1, 2]);
    assert_eq!(*hands.asked.borrow(), BTreeSet::from([1, 2]), "nothing behind the pick is estimated");
}

#[test]
fn tied_replicas_share_the_propensity_among_the_feasible() {
    // Tier 0 holds three, of which one is late: either of the other two comes first half the time.
    let hands = Hands::new(vec![Hand::new(0, 0.8, 0.1), Hand::new(0, 0.8, 0.9), Hand::new(0, 0.8, 0.2)]);
    let choice = choose(Some(0.3), &hands);
    assert_eq!((choice.instance, choice.propensity), (0, 0.5));
}

#[test]
fn replicas_at_another_price_are_another_model() {
    let spot = Hand { price_usd: 0.5, ..Hand::new(0, 0.85, 0.1) };
    let hands = Hands::new(vec![Hand::new(0, 0.8, 0.1), spot]);
    let choice = choose(Some(0.3), &hands);
    assert_eq!((choice.instance, choice.interchangeable), (1, vec![1]));
}

#[test]
fn an_unknown_accuracy_comes_after_every_known_one() {
    let hands = Hands::new(vec![Hand::unknown_accuracy(0, Some(1e-9), 0.1), Hand::new(1, -3.0, 0.1)]);
    let choice = choose(Some(0.3), &hands);
    assert_eq!((choice.instance, choice.reason), (1, Reason::MaxUtility));
    let hands = Hands::new(vec![Hand::unknown_accuracy(0, Some(1e-9), 0.1), Hand::new(1, 0.9, 0.5)]);
    let choice = choose(Some(0.3), &hands);
    assert_eq!((choice.instance, choice.reason), (0, Reason::LeastCost), "the known one is late");
}

#[test]
fn without_any_accuracy_the_cheapest_in_time_is_taken() {
    let hands = Hands::new(vec![
        Hand::unknown_accuracy(0, None, 0.1),
        Hand::unknown_accuracy(1, Some(3e-4), 0.1),
        Hand::unknown_accuracy(2, Some(2e-4), 0.1),
        Hand::unknown_accuracy(3, Some(1e-4), 0.9),
    ]);
    let choice = choose(Some(0.3), &hands);
    assert_eq!((choice.instance, choice.reason), (2, Reason::LeastCost));
}

#[test]
fn a_pinned_request_goes_by_affinity_with_its_target_honoured() {
    let replica = |affinity, ttft_s| Hand { affinity, ..Hand::new(0, 0.8, ttft_s) };
    let hands = Hands::new(vec![replica(0, 0.9), replica(1, 0.2)]);
    let choice = pinned(&query(Some(0.3), 0.0), &hands, &mut rng()).unwrap();
    assert_eq!((choice.instance, choice.reason), (1, Reason::Pinned));
    assert_eq!(choice.interchangeable, [0, 1]);
    let choice = pinned(&query(Some(0.1), 0.0), &hands, &mut rng()).unwrap();
    assert_eq!(choice, Choice::single(1, Reason::Pinned), "none in time: the least TTFT");
}

/// Eq. 5 as written: the feasible set first, then the best utility in it; else the least TTFT.
fn exhaustive(target_s: Option<f64>, hands: &[Hand]) -> (usize, Reason) {
    let in_time = |h: &Hand| h.ttft_s.is_some_and(|s| target_s.is_none_or(|t| s <= t));
    let ttft = |h: &Hand| h.ttft_s.unwrap_or(f64::INFINITY);
    let mut best: Option<usize> = None;
    for (i, hand) in hands.iter().enumerate().filter(|(_, hand)| in_time(hand)) {
        if best.is_none_or(|b| hand.utility > hands[b].utility) {
            best = Some(i);
        }
    }
    if let Some(best) = best {
        return (best, Reason::MaxUtility);
    }
    let mut best = 0;
    for (i, hand) in hands.iter().enumerate() {
        let (ours, theirs) = (ttft(hand), ttft(&hands[best]));
        if ours < theirs || (ours == theirs && hand.utility > hands[best].utility) {
            best = i;
        }
    }
    (best, Reason::LeastTtft)
}

proptest! {
    #[test]
    fn lazy_and_exhaustive_choose_alike(
        rows in prop::collection::vec((-2i32..3, prop::option::of(0u32..6)), 1..8),
        target in prop::option::of(0u32..6),
    ) {
        let hands: Vec<Hand> = rows
            .iter()
            .enumerate()
            .map(|(model, &(utility, ttft))| Hand {
                ttft_s: ttft.map(f64::from),
                ..Hand::new(model, f64::from(utility), 0.0)
            })
            .collect();
        let target_s = target.map(f64::from);
        let expected = exhaustive(target_s, &hands);
        let choice = choose(target_s, &Hands::new(hands));
        prop_assert_eq!((choice.instance, choice.reason), expected);
    }
}
