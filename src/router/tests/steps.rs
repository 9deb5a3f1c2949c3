//! What the steps hand on: predictions, targets, reasons, the table.

use std::cell::RefCell;

use super::*;
use crate::domain::Reason;

#[test]
fn utility_is_accuracy_less_lambda_times_the_cost_of_all_answers() {
    let rig = Rig::new();
    let routed = rig.route(&described(|query| query.choices = 3)).unwrap();
    let rows = &routed.decision.candidates;
    // Large: (1000·1 + 3·200·2) USD a million; 0.9 − 100·2200e-6 = 0.68. Small: 0.4 − 100·160e-6 = 0.384.
    assert!((rows[2].cost_usd.unwrap() - 2200e-6).abs() < 1e-12);
    assert!((rows[2].utility.unwrap() - 0.68).abs() < 1e-12);
    assert!((rows[0].utility.unwrap() - 0.384).abs() < 1e-12);
    assert_eq!((routed.instance, routed.decision.reason), (2, Reason::MaxUtility));
    assert_eq!(rows[2].predictor, "prior");
}

#[test]
fn a_length_is_clamped_to_the_cap_and_to_the_context() {
    let rig = Rig::new();
    let length = |prompt_tokens, cap| {
        let decision = rig
            .dry_run(&described(|query| {
                query.prompts[1] = PromptCount::one(prompt_tokens, CountSource::Tokenizer);
                query.max_output_tokens = cap;
            }))
            .unwrap();
        decision.candidates[2].output_tokens
    };
    assert_eq!(length(1000, None), Some(200.0));
    assert_eq!(length(1000, Some(50)), Some(50.0));
    assert_eq!(length(4000, None), Some(96.0));
}

#[test]
fn a_decision_says_which_attempt_it_is_for_which_model_by_which_predictor() {
    let rig = Rig::new();
    let query = described(|query| query.requested_model = String::from("best"));
    let decision = rig.attempt(&query, &[2], 2).unwrap().decision;
    let said = (decision.attempt, decision.requested_model.as_deref(), decision.predictor_version.as_deref());
    assert_eq!(said, (2, Some("best"), Some("prior")));
    assert_eq!(rig.dry_run(&query).unwrap().attempt, 1);
    let mut old = serde_json::to_value(&decision).unwrap();
    for member in ["attempt", "requested_model", "predictor_version"] {
        old.as_object_mut().unwrap().remove(member).unwrap();
    }
    // The least TTFT is written only where it stands for an estimate; rows without it are read.
    assert!(old["candidates"][0].get("least_ttft_s").is_none());
    let old: Decision = serde_json::from_value(old).unwrap();
    assert_eq!((old.attempt, old.requested_model, old.predictor_version), (1, None, None));
}

#[test]
fn the_target_decides_and_least_ttft_is_the_way_out() {
    let rig = Rig::new();
    rig.ttfts_ms([Some(50), Some(50), Some(300)]);
    let routed = rig.route(&described(target(200))).unwrap();
    assert_eq!(routed.decision.chosen().unwrap().model, "small");
    assert_eq!(routed.decision.candidates[2].feasible, Some(false));
    assert_eq!(routed.decision.ttft_target_ms, Some(200.0));
    rig.ttfts_ms([Some(90), Some(50), Some(300)]);
    let routed = rig.route(&described(target(10))).unwrap();
    assert_eq!((routed.instance, routed.decision.reason), (1, Reason::LeastTtft));
}

#[test]
fn time_spent_at_the_router_counts_against_the_target() {
    let rig = Rig::new();
    let query = described(target(60));
    assert_eq!(rig.route(&query).unwrap().instance, 2);
    rig.clock.advance_ms(20);
    let late = rig.route(&query).unwrap();
    assert_eq!(late.decision.reason, Reason::LeastTtft);
    assert!((late.decision.chosen().unwrap().ttft_s.unwrap() - 0.07).abs() < 1e-9);
    assert!((late.decision.chosen().unwrap().wait_s.unwrap() - 0.02).abs() < 1e-9);
}

#[test]
fn replicas_are_interchangeable_and_the_less_loaded_goes_first() {
    let rig = Rig::new();
    rig.router.pool().set_draining(2, true);
    let first = rig.route(&described(|_| {})).unwrap();
    assert_eq!(first.decision.propensity, 0.5, "both idle");
    let second = rig.route(&described(|_| {})).unwrap();
    assert_eq!(first.instance + second.instance, 1, "the first one counts where it went");
    assert_eq!(second.decision.propensity, 1.0);
    let alike: Vec<bool> = second.decision.candidates.iter().map(|row| row.interchangeable).collect();
    assert_eq!(alike, [true, true, false]);
}

#[test]
fn a_named_model_is_served_by_its_replicas_whatever_the_policy() {
    for policy in ["bear", "round-robin", "latency-agnostic"] {
        let rig = Rig::with(models(), policy);
        rig.ttfts_ms([Some(300), Some(50), Some(1)]);
        let query = described(|query| {
            query.named = Named::Model(SMALL);
            query.ttft_target = Some(Duration::from_millis(100));
        });
        let routed = rig.route(&query).unwrap();
        assert_eq!((routed.instance, routed.decision.reason), (1, Reason::Pinned));
        assert!(routed.decision.candidates[1].output_tokens.is_some(), "it will be a resident");
    }
}

#[test]
fn without_any_accuracy_the_cheapest_model_serves_and_the_table_says_unknown() {
    let mut models = models();
    for model in &mut models {
        model.prior_accuracy = None;
    }
    let rig = Rig::with(models, "bear");
    let routed = rig.route(&described(|_| {})).unwrap();
    let chosen = routed.decision.chosen().unwrap();
    assert_eq!((chosen.model.as_str(), chosen.accuracy, chosen.utility), ("small", None, None));
    assert_eq!(routed.decision.reason, Reason::LeastCost);
}

#[test]
fn without_any_length_the_work_has_an_assumed_one_and_the_prediction_stays_unknown() {
    let mut models = models();
    for model in &mut models {
        model.prior_output_tokens = None;
        model.prior_accuracy = None;
    }
    let rig = Rig::with(models, "bear");
    let routed = rig.route(&described(|_| {})).unwrap();
    let chosen = routed.decision.chosen().unwrap();
    assert_eq!((chosen.output_tokens, chosen.cost_usd, chosen.predictor.as_str()), (None, None, "unknown"));
    let view = rig.router.pool().view(routed.instance, rig.clock.now());
    assert_eq!(view.basis.unwrap().dispatched[0].output_tokens, 256);
}

#[test]
fn the_first_token_of_what_is_not_asked_about_is_still_shown_for_the_pick() {
    let rig = Rig::with(models(), "round-robin");
    let routed = rig.route(&described(|_| {})).unwrap();
    let estimated: Vec<bool> = routed.decision.candidates.iter().map(|row| row.ttft_s.is_some()).collect();
    assert_eq!(estimated, [true, false, false]);
}

#[derive(Default)]
struct Heard(RefCell<Vec<(bool, Stage)>>);

impl StageObserver for Heard {
    fn enter(&self, stage: Stage) {
        self.0.borrow_mut().push((true, stage));
    }

    fn leave(&self, stage: Stage) {
        self.0.borrow_mut().push((false, stage));
    }
}

#[test]
fn the_steps_are_announced_in_order_and_each_ends() {
    let rig = Rig::new();
    rig.router.pool().set_draining(2, true);
    let heard = Heard::default();
    let attempt = Attempt { id: String::from("a"), exclude: &[], number: 1, sink: Arc::new(NoSink) };
    let now: Arc<dyn Now> = Arc::clone(&rig.clock) as Arc<dyn Now>;
    let routed = rig.router.route(&described(|_| {}), attempt, &now, &mut rng(), &heard).unwrap();
    drop(routed);
    let heard = heard.0.into_inner();
    let mut open = Vec::new();
    for (enters, stage) in &heard {
        if *enters {
            open.push(*stage);
        } else {
            assert_eq!(open.pop(), Some(*stage), "{heard:?}");
        }
    }
    assert!(open.is_empty());
    let mut entered: Vec<Stage> = heard.iter().filter(|(enters, _)| *enters).map(|(_, s)| *s).collect();
    entered.dedup();
    let order =
        [Stage::Eligible, Stage::Predict, Stage::Observe, Stage::Decide, Stage::Affinity, Stage::Estimate];
    assert_eq!(entered[..6], order);
    assert_eq!(entered.last(), Some(&Stage::Reserve));
}

#[test]
fn an_end_reaches_whoever_asked() {
    let rig = Rig::new();
    let ends = Arc::new(Ends::default());
    let attempt = Attempt { id: String::from("a"), exclude: &[], number: 1, sink: ends.clone() };
    let now: Arc<dyn Now> = Arc::clone(&rig.clock) as Arc<dyn Now>;
    let routed = rig.router.route(&described(|_| {}), attempt, &now, &mut rng(), &Silent).unwrap();
    drop(routed.reservation);
    let ends = ends.0.lock().unwrap();
    assert_eq!((ends.len(), ends[0].attempt_id.as_str(), ends[0].instance), (1, "a", routed.instance));
}

#[test]
fn the_routing_section_names_what_makes_no_sense() {
    let base = RouterConfig::default();
    assert!(base.check().is_ok());
    let negative = RouterConfig { lambda_per_usd: -1.0, ..base.clone() };
    assert!(negative.check().unwrap_err().to_string().contains("routing.lambda_per_usd is -1"));
    let zero = RouterConfig { default_ttft_target_ms: Some(0.0), ..base.clone() };
    assert!(zero.check().unwrap_err().to_string().contains("default_ttft_target_ms is 0"));
    let set = RouterConfig { default_ttft_target_ms: Some(250.0), ..base };
    assert_eq!(set.default_ttft_target(), Some(Duration::from_millis(250)));
}
