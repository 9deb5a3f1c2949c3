//! The baselines on hand-computed cases.

use super::*;
use crate::domain::Placement;

fn turn(policy: &RoundRobin, hands: &Hands) -> usize {
    policy.choose(&query(None, 0.0), hands, &mut rng()).unwrap().instance
}

#[test]
fn round_robin_moves_when_dispatched_and_only_then() {
    let hands = Hands::new((0..3).map(|m| Hand::new(m, 0.5, 0.1)).collect());
    let policy = RoundRobin::default();
    assert_eq!((turn(&policy, &hands), turn(&policy, &hands)), (0, 0));
    let turns: Vec<usize> = (0..7)
        .map(|_| {
            let chosen = turn(&policy, &hands);
            policy.dispatched(&query(None, 0.0), &Placement::single(chosen, None));
            chosen
        })
        .collect();
    assert_eq!(turns, [0, 1, 2, 0, 1, 2, 0]);
    assert_eq!(policy.choose(&query(None, 0.0), &hands, &mut rng()).unwrap().reason, Reason::RoundRobin);
    assert!(hands.asked.borrow().is_empty());
}

#[test]
fn shortest_queue_takes_the_fewest_residents_and_the_first_among_equals() {
    let with = |residents| Hand { residents: Some(residents), ..Hand::new(0, 0.5, 0.1) };
    let hands = Hands::new(vec![with(4), with(2), with(2)]);
    let choice = ShortestQueue.choose(&query(None, 0.0), &hands, &mut rng()).unwrap();
    assert_eq!(choice, Choice::single(1, Reason::ShortestQueue));
}

#[test]
fn shortest_queue_counts_its_own_requests_where_residents_are_unknown() {
    let unknown = |outstanding| Hand { residents: None, outstanding, ..Hand::new(0, 0.5, 0.1) };
    let known = Hand { residents: Some(3), outstanding: 1, ..Hand::new(1, 0.5, 0.1) };
    let choose = |hands: Vec<Hand>| {
        ShortestQueue.choose(&query(None, 0.0), &Hands::new(hands), &mut rng()).unwrap().instance
    };
    assert_eq!(choose(vec![known.clone(), unknown(2)]), 1);
    assert_eq!(choose(vec![unknown(4), known]), 1);
}

#[test]
fn latency_agnostic_takes_the_best_utility_however_late() {
    let hands = Hands::new(vec![Hand::new(0, 0.5, 0.1), Hand::new(1, 0.6, 1e6)]);
    let choice = LatencyAgnostic.choose(&query(Some(0.2), 9.0), &hands, &mut rng()).unwrap();
    assert_eq!(choice, Choice::single(1, Reason::MaxUtility));
    assert!(hands.asked.borrow().is_empty());
}

#[test]
fn latency_agnostic_draws_uniformly_among_replicas() {
    let hands = Hands::new(vec![Hand::new(0, 0.5, 0.1), Hand::new(1, 0.6, 0.1), Hand::new(1, 0.6, 0.1)]);
    let mut rng = rng();
    let mut counts = [0; 3];
    for _ in 0..600 {
        let choice = LatencyAgnostic.choose(&query(None, 0.0), &hands, &mut rng).unwrap();
        assert!((choice.propensity - 0.5).abs() < 1e-12);
        counts[choice.instance] += 1;
    }
    assert_eq!(counts[0], 0);
    assert!(counts[1] > 240 && counts[2] > 240, "{counts:?}");
}

#[test]
fn latency_agnostic_without_accuracy_takes_the_least_cost() {
    let hands = Hands::new(vec![
        Hand::unknown_accuracy(0, Some(2e-4), 0.1),
        Hand::unknown_accuracy(1, Some(1e-4), 0.1),
    ]);
    let choice = LatencyAgnostic.choose(&query(None, 0.0), &hands, &mut rng()).unwrap();
    assert_eq!(choice, Choice::single(1, Reason::LeastCost));
}
