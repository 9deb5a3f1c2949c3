//! What-ifs on hand-made logs.

mod outcomes;

use std::time::Duration;

use rand::RngCore;

use super::{
    candidates::Kept,
    world::{HYPOTHESES, World},
    *,
};
use crate::{
    domain::{Bounds, Ending, Endpoint, Ineligible, Named, Needs, Reason, Timestamp, Tradeoff},
    policy::{Candidates, Choice, RoutingPolicy},
};

/// Accuracy, output tokens and cost of the two models of these logs: at λ = 500 `small` is worth
/// 0.6 − 500·1e-4 = 0.55 and `large` 0.8 − 500·6e-4 = 0.5.
const SMALL: (f64, f64, f64) = (0.6, 100.0, 1e-4);
const LARGE: (f64, f64, f64) = (0.8, 200.0, 6e-4);

fn candidate(instance: &str, model: &str, ttft_s: Option<f64>) -> Candidate {
    let (accuracy, output_tokens, cost_usd) = if model == "small" { SMALL } else { LARGE };
    Candidate {
        instance: instance.into(),
        model: model.into(),
        prompt_tokens: 1000,
        count_source: "tokenizer".into(),
        accuracy: Some(accuracy),
        output_tokens: Some(output_tokens),
        cost_usd: Some(cost_usd),
        utility: Some(accuracy - 500.0 * cost_usd),
        predictor: "bundle".into(),
        wait_s: ttft_s.map(|_| 0.0),
        prefill_s: ttft_s,
        ttft_s,
        spread_s: None,
        least_ttft_s: None,
        source: ttft_s.map(|_| "bea".into()),
        no_estimate: None,
        age_s: None,
        ineligible: None,
        feasible: ttft_s.map(|s| s <= 0.3),
        interchangeable: false,
        chosen: false,
    }
}

/// A row under `bear` with a target of 300 ms that chose the candidate at `chosen`.
fn row(mut candidates: Vec<Candidate>, chosen: usize, propensity: f64) -> LoggedRow {
    candidates[chosen].chosen = true;
    candidates[chosen].interchangeable = true;
    LoggedRow {
        decision: Decision {
            request_id: "r".into(),
            attempt: 1,
            requested_model: Some("auto".into()),
            predictor_version: Some("demo@1".into()),
            policy: "bear".into(),
            reason: Reason::MaxUtility,
            lambda_per_usd: 500.0,
            delta_per_s: 0.0,
            ttft_target_ms: Some(300.0),
            propensity,
            believed_latency_s: None,
            candidates,
        },
        query: Query {
            id: "r".into(),
            arrived: Timestamp::from_unix_us(0),
            tenant: None,
            priority: 0,
            adapter: None,
            endpoint: Endpoint::Chat,
            named: Named::Virtual,
            requested_model: "auto".into(),
            needs: Needs::default(),
            streamed: true,
            max_output_tokens: None,
            choices: 1,
            ttft_target: Some(Duration::from_millis(300)),
            tpot_target: None,
            bounds: Bounds::default(),
            tradeoff: Tradeoff { lambda_per_usd: 500.0, delta_per_s: 0.0 },
            prompts: Vec::new(),
            prefix: [].into(),
        },
        outcome: Outcome {
            attempt_id: "a".into(),
            instance: chosen,
            ending: Ending::Complete,
            ttft_s: Some(0.1),
            e2e_s: 1.0,
            prompt_tokens: Some(1000),
            cached_tokens: Some(0),
            output_tokens: Some(100),
            cost_usd: Some(1e-4),
        },
        score: None,
    }
}

/// Both models estimated in time; `small` chosen.
fn both() -> LoggedRow {
    row(vec![candidate("s0", "small", Some(0.1)), candidate("l0", "large", Some(0.2))], 0, 1.0)
}

fn policy(name: &str) -> Change {
    let config = PolicyConfig { name: name.into(), ..PolicyConfig::default() };
    Change { policy: Some(config), ..Change::default() }
}

fn answer(change: &Change, row: &LoggedRow) -> Answer {
    Replayer::new(change.clone(), 1).unwrap().answer(row).unwrap()
}

fn instance(answer: &Answer, row: &LoggedRow) -> String {
    match answer.chosen {
        Chosen::Instance { candidate, .. } => row.decision.candidates[candidate].instance.to_string(),
        other => format!("{other:?}"),
    }
}

#[test]
fn lambda_is_weighed_anew() {
    let same = answer(&Change::default(), &both());
    assert_eq!((instance(&same, &both()), same.of_logged), ("s0".into(), Some(1.0)));
    // At λ = 100: 0.6 − 0.01 = 0.59 against 0.8 − 0.06 = 0.74.
    let cheap = answer(&Change { lambda_per_usd: Some(100.0), ..Change::default() }, &both());
    assert_eq!(instance(&cheap, &both()), "l0");
    assert_eq!((cheap.of_logged, cheap.unsupported), (Some(0.0), true));
    assert!((cheap.prediction.unwrap().utility.unwrap() - 0.74).abs() < 1e-12);
}

#[test]
fn a_price_changes_cost_utility_and_choice() {
    let price = Price { input_usd_per_mtok: 0.1, output_usd_per_mtok: 0.5, ..Price::default() };
    let change = Change { prices: [("large".to_owned(), price)].into(), ..Change::default() };
    // (1000·0.1 + 200·0.5) / 1e6 = 2e-4 USD, U = 0.8 − 500·2e-4 = 0.7 > 0.55.
    let answer = answer(&change, &both());
    let prediction = answer.prediction.unwrap();
    assert_eq!(instance(&answer, &both()), "l0");
    assert!((prediction.cost_usd.unwrap() - 2e-4).abs() < 1e-15);
    assert!((prediction.utility.unwrap() - 0.7).abs() < 1e-12);
}

#[test]
fn a_price_moves_what_a_cost_bound_lets_in() {
    let mut bounded = both();
    bounded.query.bounds.max_cost_usd = Some(3e-4);
    bounded.decision.candidates[1].ineligible =
        Some(Ineligible::MaxCost { cost_usd: 6e-4, max_cost_usd: 3e-4 });
    let at = |usd: f64, model: &str| Change {
        prices: [(model.to_owned(), Price { output_usd_per_mtok: usd, ..Price::default() })].into(),
        ..Change::default()
    };
    // 200 tokens at 1 USD per million are 2e-4 USD, at 2 they are 4e-4.
    assert_eq!(answer(&at(1.0, "large"), &bounded).chosen, Chosen::Nothing(Why::NoEligibility));
    assert_eq!(instance(&answer(&at(2.0, "large"), &bounded), &bounded), "s0");
    // 100 tokens at 4 USD per million are 4e-4 USD: over the bound.
    assert_eq!(answer(&at(4.0, "small"), &bounded).chosen, Chosen::Nothing(Why::NoneLeft));
}

#[test]
fn an_estimate_never_made_is_not_made_up() {
    let unseen = row(vec![candidate("s0", "small", Some(0.1)), candidate("l0", "large", None)], 0, 1.0);
    let cheap = Change { lambda_per_usd: Some(100.0), ..Change::default() };
    assert_eq!(answer(&cheap, &unseen).chosen, Chosen::Nothing(Why::NoEstimate));
    // Nothing hangs on it where the best one is known, nor for a policy blind to latency.
    assert_eq!(instance(&answer(&Change::default(), &unseen), &unseen), "s0");
    let blind = Change { lambda_per_usd: Some(100.0), ..policy("latency-agnostic") };
    assert_eq!(instance(&answer(&blind, &unseen), &unseen), "l0");
    // Without a target any time will do.
    let mut patient = unseen.clone();
    patient.decision.ttft_target_ms = None;
    assert_eq!(instance(&answer(&cheap, &patient), &patient), "l0");
    // At δ the time counts again, unless no time could make up for the utility.
    let lagrangian = Change { delta_per_s: Some(0.5), ..policy("bear-lagrangian") };
    assert_eq!(answer(&lagrangian, &unseen).chosen, Chosen::Nothing(Why::NoEstimate));
    let dear = Change { lambda_per_usd: Some(5000.0), ..lagrangian };
    // s0: 0.6 − 0.5 − 0.5·0.1 = 0.05; l0 at best: 0.8 − 3 = −2.2.
    assert_eq!(instance(&answer(&dear, &unseen), &unseen), "s0");
}

#[test]
fn an_assumption_shows_both_ends_and_no_outcome_follows_from_it() {
    let unseen = row(vec![candidate("s0", "small", Some(0.1)), candidate("l0", "large", None)], 0, 1.0);
    let cheap = |unestimated| Change { lambda_per_usd: Some(100.0), unestimated, ..Change::default() };
    let soon = answer(&cheap(Unestimated::InTime), &unseen);
    let late = answer(&cheap(Unestimated::Late), &unseen);
    assert_eq!((instance(&soon, &unseen), instance(&late, &unseen)), ("l0".into(), "s0".into()));
    assert!([soon, late].iter().all(|answer| answer.assumed && answer.of_logged.is_none()));
    // Where the log itself answers, nothing is assumed.
    let known = answer(&cheap(Unestimated::Late), &both());
    assert!(!known.assumed && known.of_logged == Some(0.0));
}

#[test]
fn a_choice_in_the_middle_is_tested_against_itself() {
    // Whichever end is favoured, m0 would win by its utility; late, it would not.
    let mut middle = candidate("m0", "large", None);
    middle.cost_usd = Some(1e-4);
    let table = vec![candidate("s0", "small", Some(0.1)), middle, candidate("s1", "small", Some(0.1))];
    let row = row(table, 0, 1.0);
    let lagrangian = Change { delta_per_s: Some(0.5), ..policy("bear-lagrangian") };
    assert_eq!(answer(&lagrangian, &row).chosen, Chosen::Nothing(Why::NoEstimate));
    let free = Change { delta_per_s: Some(0.0), ..policy("bear-lagrangian") };
    assert_eq!(instance(&answer(&free, &row), &row), "m0");
}

#[test]
fn a_queue_that_no_row_holds_is_not_an_empty_one() {
    let shortest = policy("shortest-queue");
    assert_eq!(answer(&shortest, &both()).chosen, Chosen::Nothing(Why::NoState));
    assert_eq!(answer(&shortest, &both()).of_logged, None);
    let only = Change { only: ["l0".to_owned()].into(), ..shortest };
    assert_eq!(instance(&answer(&only, &both()), &both()), "l0", "one instance is the shortest queue");
}

/// Takes the instance with the least mean latency of those it heard of, else the first.
#[derive(Default)]
struct Learner(std::sync::Mutex<BTreeMap<usize, f64>>);

impl RoutingPolicy for Learner {
    fn name(&self) -> &'static str {
        "learner"
    }

    fn choose(&self, _: &Query, candidates: &dyn Candidates, _: &mut dyn RngCore) -> Option<Choice> {
        let heard = self.0.lock().unwrap();
        let seconds = |i: &usize| heard.get(&candidates.position(*i)).copied().unwrap_or(f64::INFINITY);
        let least = (0..candidates.len()).min_by(|a, b| seconds(a).total_cmp(&seconds(b)))?;
        Some(Choice::single(least, Reason::RoundRobin))
    }

    fn observe(&self, outcome: &Outcome) {
        self.0.lock().unwrap().insert(outcome.instance, outcome.e2e_s);
    }
}

#[test]
fn what_a_policy_learned_differs_from_world_to_world() {
    let kept: Vec<Kept> =
        (0..2).map(|i| Kept { row: i, seat: i, prediction: Prediction::default() }).collect();
    let fastest = HYPOTHESES.iter().map(|hypothesis| {
        let learner = Learner::default();
        // Nothing is known yet, so all worlds begin with the first.
        World::new(hypothesis).carry_out(&learner, &both().query, &kept, (0, 0), &both());
        let heard = learner.0.into_inner().unwrap();
        heard.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).map(|(seat, _)| seat)
    });
    assert_eq!(fastest.collect::<Vec<_>>(), [None, Some(0), Some(0), Some(1), Some(1)]);
}

#[test]
fn turns_go_on_from_row_to_row() {
    let mut replayer = Replayer::new(policy("round-robin"), 1).unwrap();
    let turns: Vec<String> = (0..3).map(|_| instance(&replayer.answer(&both()).unwrap(), &both())).collect();
    assert_eq!(turns, ["s0", "l0", "s0"]);
}

#[test]
fn a_pool_is_narrowed_by_instance_or_model() {
    for name in ["s0", "small"] {
        let without = Change { without: [name.to_owned()].into(), ..Change::default() };
        let answer = answer(&without, &both());
        assert_eq!((instance(&answer, &both()), answer.of_logged), ("l0".into(), Some(0.0)));
    }
    let nobody = Change { without: ["s0".to_owned(), "large".to_owned()].into(), ..Change::default() };
    assert_eq!(answer(&nobody, &both()).chosen, Chosen::Nothing(Why::NoneLeft));
    let new = Change { only: ["s0".to_owned(), "s9".to_owned()].into(), ..Change::default() };
    assert_eq!(answer(&new, &both()).chosen, Chosen::Nothing(Why::NotInPool));
    let mut replayer = Replayer::new(new, 1).unwrap();
    replayer.answer(&both()).unwrap();
    assert_eq!(replayer.unseen().collect::<Vec<_>>(), ["s9"]);
}

/// Two replicas of `small` that tied for the choice, and one of `large` that nobody looked at.
fn replicas() -> LoggedRow {
    let mut row = row(
        vec![
            candidate("s0", "small", Some(0.1)),
            candidate("s1", "small", Some(0.2)),
            candidate("l0", "large", None),
            candidate("l1", "large", None),
        ],
        1,
        0.5,
    );
    row.decision.candidates[0].interchangeable = true;
    row
}

#[test]
fn the_logged_ranking_is_drawn_again() {
    let mut taken = [0_u32; 2];
    let mut replayer = Replayer::new(Change::default(), 1).unwrap();
    for _ in 0..400 {
        let answer = replayer.answer(&replicas()).unwrap();
        let Chosen::Instance { candidate, propensity } = answer.chosen else { panic!("{answer:?}") };
        taken[candidate] += 1;
        assert!((propensity - 0.5).abs() < 1e-12);
        assert!((answer.of_logged.unwrap() - 0.5).abs() < 1e-12, "{answer:?}");
    }
    assert!(taken.iter().all(|&count| count.abs_diff(200) < 40), "4 standard deviations of 10: {taken:?}");
    let alone = Change { without: ["s1".to_owned()].into(), ..Change::default() };
    let answer = answer(&alone, &replicas());
    assert_eq!((instance(&answer, &replicas()), answer.of_logged), ("s0".into(), Some(0.0)));
    assert!(!answer.unsupported, "the log took s0 as often");
}

#[test]
fn a_choice_among_many_replicas_is_as_likely_as_the_log_says() {
    // Of fifty replicas the first six were looked at: all in time, and one of fifty taken.
    let table: Vec<Candidate> =
        (0..50).map(|i| candidate(&format!("s{i}"), "small", (i < 6).then_some(0.1))).collect();
    let mut many = row(table, 1, 0.02);
    for candidate in &mut many.decision.candidates {
        candidate.interchangeable = true;
    }
    let mut replayer = Replayer::new(Change::default(), 1).unwrap();
    for _ in 0..40 {
        let answer = replayer.answer(&many).unwrap();
        assert!((answer.of_logged.unwrap() - 0.02).abs() < 1e-12, "{answer:?}");
    }
}

#[test]
fn what_a_prompt_takes_alone_holds_in_every_world() {
    // Nobody asked for an estimate of `large`: its first token comes no sooner than in 0.5 s.
    let mut ruled_out = candidate("l0", "large", None);
    (ruled_out.least_ttft_s, ruled_out.feasible) = (Some(0.5), Some(false));
    ruled_out.source = Some("prompt-bound".into());
    let row = row(vec![candidate("s0", "small", Some(0.1)), ruled_out], 0, 1.0);
    let cheap = Change { lambda_per_usd: Some(100.0), ..Change::default() };
    for unestimated in [Unestimated::Refuse, Unestimated::InTime, Unestimated::Late] {
        let answer = answer(&Change { unestimated, ..cheap.clone() }, &row);
        assert_eq!((instance(&answer, &row), answer.assumed), ("s0".into(), false));
    }
    // At δ = 2, λ = 100 `large` has at best 0.74 − 2·0.5 against 0.59 − 2·0.1; at δ = 0.1 it may have more, or less.
    let lagrangian = |delta| Change { delta_per_s: Some(delta), ..policy("bear-lagrangian") };
    let change = |delta| Change { lambda_per_usd: Some(100.0), ..lagrangian(delta) };
    assert_eq!(instance(&answer(&change(2.0), &row), &row), "s0");
    assert_eq!(answer(&change(0.1), &row).chosen, Chosen::Nothing(Why::NoEstimate));
    // Without `small` nothing is in time, and `large` is all there is.
    let without = Change { without: ["small".to_owned()].into(), ..Change::default() };
    assert_eq!(instance(&answer(&without, &row), &row), "l0");
}

#[test]
fn of_replicas_nobody_ranked_only_the_model_is_known() {
    let mut patient = replicas();
    patient.decision.ttft_target_ms = None;
    let cheap = Change { lambda_per_usd: Some(100.0), ..Change::default() };
    let answer = answer(&cheap, &patient);
    assert!(matches!(answer.chosen, Chosen::Model { candidate: 2 | 3 }), "{answer:?}");
    assert_eq!((answer.of_logged, answer.unsupported), (Some(0.0), true));
}

#[test]
fn replicas_that_cost_differently_stay_apart() {
    let mut dear = candidate("s1", "small", Some(0.1));
    dear.cost_usd = Some(2e-4);
    // 0.6 − 500·1e-4 = 0.55 in time comes before 0.6 − 500·2e-4 = 0.5.
    let row = row(vec![dear, candidate("s0", "small", Some(0.2))], 1, 1.0);
    assert_eq!(instance(&answer(&Change::default(), &row), &row), "s0");
}

#[test]
fn a_named_model_stays_named() {
    let mut pinned = both();
    pinned.decision.reason = Reason::Pinned;
    pinned.decision.candidates[1].ineligible = Some(Ineligible::OtherModel);
    let cheap = Change { lambda_per_usd: Some(100.0), ..policy("shortest-queue") };
    assert_eq!(instance(&answer(&cheap, &pinned), &pinned), "s0");
}
