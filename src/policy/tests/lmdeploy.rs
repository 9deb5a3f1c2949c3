//! LMDeploy's two rules on hand-computed cases.

use serde_json::json;

use super::*;

fn busy(outstanding: &[u32]) -> Vec<Hand> {
    outstanding.iter().enumerate().map(|(m, &n)| Hand { outstanding: n, ..Hand::new(m, 0.5, 0.1) }).collect()
}

fn believed(policy: &dyn RoutingPolicy, hands: &Hands) -> Vec<Option<f64>> {
    (0..hands.len()).map(|i| policy.believed_latency_s(&query(None, 0.0), hands, i)).collect()
}

#[test]
fn unfinished_requests_count_by_the_speed_of_their_instance() {
    // The instance's own speed comes before its model's; the third has the mean of 2 and 8.
    let policy = build("lmdeploy", json!({"speeds": {"m0": 9, "i0": 2, "m1": 8}})).unwrap();
    let hands = Hands::new(busy(&[3, 8, 6]));
    assert_eq!(believed(&*policy, &hands), [Some(1.5), Some(1.0), Some(1.2)]);
    let choice = policy.choose(&query(None, 0.0), &hands, &mut rng()).unwrap();
    assert_eq!(choice, Choice::single(1, Reason::LeastLatency));
    assert!(hands.asked.borrow().is_empty());
}

#[test]
fn without_speeds_every_instance_has_one() {
    let policy = build("lmdeploy", json!({})).unwrap();
    let hands = Hands::new(busy(&[3, 8, 2]));
    assert_eq!(believed(&*policy, &hands), [Some(3.0), Some(8.0), Some(2.0)]);
    assert_eq!(policy.choose(&query(None, 0.0), &hands, &mut rng()).unwrap().instance, 2);
}

#[test]
fn equal_ones_are_drawn_alike() {
    let policy = build("lmdeploy", json!({"speeds": {"m0": 2}})).unwrap();
    let hands = Hands::new(busy(&[4, 4, 9]));
    let mut rng = rng();
    let mut counts = [0; 3];
    for _ in 0..600 {
        let choice = policy.choose(&query(None, 0.0), &hands, &mut rng).unwrap();
        assert!(close(choice.propensity, 0.5));
        counts[choice.instance] += 1;
    }
    assert!(counts[0] > 240 && counts[1] > 240 && counts[2] == 0, "{counts:?}");
}

#[test]
fn a_speed_of_nothing_is_refused() {
    let error = build("lmdeploy", json!({"speeds": {"m0": 0}})).err().unwrap().to_string();
    assert!(error.contains("`speeds.m0` is 0; give a number above 0"), "{error}");
}

#[test]
fn the_mean_of_the_last_fifteen_answers_decides() {
    let policy = build("lmdeploy-observed", json!({})).unwrap();
    let mut hands = Hands::new(busy(&[0, 0, 0]));
    hands.first_position = 2;
    let chosen = || policy.choose(&query(None, 0.0), &hands, &mut rng()).unwrap();
    assert_eq!(chosen(), Choice::single(0, Reason::LeastLatency));
    policy.observe(&outcome(3, 0.1, 9.0, 10));
    assert_eq!(chosen().instance, 1, "the only one that answered");
    for e2e_s in [1.0, 3.0] {
        policy.observe(&outcome(4, 0.1, e2e_s, 10));
    }
    assert_eq!(believed(&*policy, &hands), [None, Some(9.0), Some(2.0)]);
    assert_eq!(chosen().instance, 2);
    // Fifteen at 1.5 push the 9 out.
    for _ in 0..15 {
        policy.observe(&outcome(3, 0.1, 1.5, 10));
    }
    assert_eq!(believed(&*policy, &hands), [None, Some(1.5), Some(2.0)]);
    assert_eq!(chosen().instance, 1);
}

#[test]
fn one_that_never_answered_is_passed_over_unless_it_is_to_be_tried() {
    for (options, then) in [(json!({}), 0), (json!({"try_unobserved": true}), 1)] {
        let policy = build("lmdeploy-observed", options).unwrap();
        policy.observe(&outcome(0, 0.1, 9.0, 10));
        let choice = policy.choose(&query(None, 0.0), &Hands::new(busy(&[0, 0])), &mut rng());
        assert_eq!(choice, Some(Choice::single(then, Reason::LeastLatency)));
    }
}

#[test]
fn a_failure_is_no_answer() {
    let policy = build("lmdeploy-observed", json!({})).unwrap();
    let hands = Hands::new(busy(&[0, 0]));
    for ending in [Ending::Failed, Ending::TimedOut, Ending::Cancelled] {
        policy.observe(&Outcome { ending, ..outcome(1, 0.1, 0.001, 10) });
    }
    assert_eq!(believed(&*policy, &hands), [None, None]);
}
