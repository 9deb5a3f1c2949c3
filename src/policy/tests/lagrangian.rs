//! Eq. 7 on hand-computed cases, and against its own definition.

use proptest::prelude::*;

use super::*;

fn choose(delta_per_s: f64, hands: &Hands) -> Choice {
    BearLagrangian.choose(&query(Some(0.001), delta_per_s), hands, &mut rng()).unwrap()
}

#[test]
fn utility_less_delta_times_ttft_decides() {
    // 0.8 − 2·0.3 = 0.2 against 0.6 − 2·0.15 = 0.3 against 0.2 − 2·0.01 = 0.18.
    let hands = Hands::new(vec![Hand::new(0, 0.8, 0.3), Hand::new(1, 0.6, 0.15), Hand::new(2, 0.2, 0.01)]);
    assert_eq!(choose(2.0, &hands), Choice::single(1, Reason::Lagrangian));
    // At δ = 1: 0.5, 0.45, 0.19. At δ = 100 the least TTFT.
    assert_eq!(choose(1.0, &hands).instance, 0);
    assert_eq!(choose(100.0, &hands).instance, 2);
}

#[test]
fn at_delta_zero_utility_alone_decides_and_nothing_is_estimated() {
    let never = Hand { ttft_s: None, ..Hand::new(1, 0.9, 0.0) };
    let hands = Hands::new(vec![Hand::new(0, 0.8, 0.3), never]);
    assert_eq!(choose(0.0, &hands).instance, 1);
    assert!(hands.asked.borrow().is_empty());
}

#[test]
fn what_can_never_run_loses_to_all_that_can() {
    let never = Hand { ttft_s: None, ..Hand::new(1, 0.9, 0.0) };
    let hands = Hands::new(vec![never, Hand::new(0, -50.0, 1000.0)]);
    assert_eq!(choose(1e-6, &hands).instance, 1);
}

#[test]
fn equal_values_go_by_utility_and_then_in_order() {
    let hands = vec![Hand::new(0, 0.5, 0.25), Hand::new(1, 0.75, 0.5), Hand::new(2, 0.75, 0.5)];
    assert_eq!(choose(1.0, &Hands::new(hands)).instance, 1);
}

#[test]
fn an_unknown_accuracy_drops_out_where_it_is_unknown_for_all() {
    // −500·2e-4 − 0.5·0.1 = −0.15 against −500·1e-4 − 0.5·0.4 = −0.25.
    let a = Hand::unknown_accuracy(0, Some(2e-4), 0.1);
    let b = Hand::unknown_accuracy(1, Some(1e-4), 0.4);
    assert_eq!(choose(0.5, &Hands::new(vec![b.clone(), a.clone()])).instance, 1);
    let known = Hand::new(2, -9.0, 9.0);
    assert_eq!(choose(0.5, &Hands::new(vec![a, b, known])).instance, 2, "a known utility goes first");
}

#[test]
fn without_even_a_cost_the_least_ttft_decides() {
    let hands = Hands::new(vec![Hand::unknown_accuracy(0, None, 0.4), Hand::unknown_accuracy(1, None, 0.1)]);
    assert_eq!(choose(0.5, &hands).instance, 1);
}

proptest! {
    #[test]
    fn no_candidate_has_a_higher_value(
        rows in prop::collection::vec((-2.0f64..2.0, 0.0f64..3.0), 1..8),
        delta in 0.0f64..4.0,
    ) {
        let hands: Vec<Hand> =
            rows.iter().enumerate().map(|(m, &(utility, ttft))| Hand::new(m, utility, ttft)).collect();
        let chosen = choose(delta, &Hands::new(hands)).instance;
        let value = |&(utility, ttft): &(f64, f64)| utility - delta * ttft;
        for row in &rows {
            prop_assert!(value(&rows[chosen]) >= value(row) - 1e-12);
        }
    }
}
