//! What-ifs on hand-made logs.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::domain::{Bounds, Ending, Endpoint, Ineligible, Named, Needs, Reason, Timestamp, Tradeoff};

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

/// A day under a policy that draws one of three instances with the given chances; answers of instance i take
/// 0.1·(i+1) s give or take, and are in time where under 0.3 s.
fn drawn_day(rows: usize, chances: [f64; 3], seed: u64) -> Vec<LoggedRow> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut day = Vec::with_capacity(rows);
    for _ in 0..rows {
        let uniform: f64 = rng.random();
        let chosen = (0..2).find(|&i| uniform < chances[..=i].iter().sum()).unwrap_or(2);
        let names = [("s0", "small"), ("s1", "small"), ("l0", "large")];
        let table = names.map(|(instance, model)| candidate(instance, model, None)).to_vec();
        let mut logged = row(table, chosen, chances[chosen]);
        let ttft_s = 0.1 * (chosen + 1) as f64 + 0.1 * (rng.random::<f64>() - 0.5);
        logged.outcome.ttft_s = Some(ttft_s);
        logged.outcome.output_tokens = Some(100 * (chosen as u32 + 1));
        day.push(logged);
    }
    day
}

fn study(change: Change, rules: Rules, day: &[LoggedRow]) -> Report {
    let mut study = Study::new(change, rules).unwrap();
    for row in day {
        study.add(row).unwrap();
    }
    study.report()
}

fn observed(report: &Report, name: &str) -> Verdict {
    report.observed.means.iter().find(|line| line.name == name).unwrap().what_if.clone()
}

#[test]
fn a_log_that_draws_tells_what_another_policy_would_have_seen() {
    // Blind to latency at λ = 500 both replicas of `small` tie: half each, 0.1 and 0.2 s, mean 0.15 s.
    let (mut inside, runs) = (0, 40);
    for seed in 0..runs {
        let day = drawn_day(1000, [0.2, 0.3, 0.5], seed);
        let report = study(policy("latency-agnostic"), Rules::default(), &day);
        let Verdict::Estimate(ttft) = observed(&report, "ttft_s") else { panic!("{report:?}") };
        assert!((ttft.mean - 0.15).abs() < 0.01, "{ttft:?}");
        inside += u32::from(ttft.low <= 0.15 && 0.15 <= ttft.high);
        // Weights 0.5/0.2 for 20% and 0.5/0.3 for 30% of the rows: (Σw)²/Σw² = n / (0.25/0.2 + 0.25/0.3).
        let expected = 1000.0 / (0.25 / 0.2 + 0.25 / 0.3);
        assert!((report.observed.effective_rows / expected - 1.0).abs() < 0.1, "{report:?}");
    }
    // 38 of 40 on average; under 33 comes about once in 500 such tests.
    assert!(inside >= 33, "{inside} of {runs} intervals hold the truth");
}

#[test]
fn a_log_that_never_draws_cannot_tell_of_changed_choices() {
    let day: Vec<LoggedRow> = (0..1000).map(|_| both()).collect();
    let cheap = Change { lambda_per_usd: Some(100.0), ..Change::default() };
    let report = study(cheap, Rules::default(), &day);
    assert_eq!((report.rows.answered, report.observed.unsupported), (1000, 1000));
    assert!(report.observed.cannot_answer.as_ref().unwrap().contains("100.0% change"), "{report:?}");
    assert!(matches!(observed(&report, "ttft_s"), Verdict::CannotAnswer(_)));
    assert_eq!(report.agreement.same_model, Some(0.0));
    assert_eq!(report.agreement.reproduced, Some(1.0));
    // Unchanged, it is its own answer.
    let same = study(Change::default(), Rules::default(), &day);
    let ttft = *observed(&same, "ttft_s").estimate().unwrap();
    assert!((ttft.mean - 0.1).abs() < 1e-9 && ttft.high - ttft.low < 1e-6, "{ttft:?}");
    assert_eq!(same.observed.mean_weight.unwrap().mean, 1.0);
}

#[test]
fn support_that_is_missing_shows_in_the_mean_weight() {
    // The log draws among the replicas of `small` and never takes `large`; a set of one does not say so.
    let day = drawn_day(2000, [0.5, 0.5, 0.0], 7);
    let cheap = Change { lambda_per_usd: Some(100.0), ..policy("latency-agnostic") };
    let report = study(cheap, Rules::default(), &day);
    assert_eq!((report.observed.unsupported, report.observed.coverage), (0, 1.0));
    assert!(report.observed.cannot_answer.unwrap().contains("hardly ever"));
}

#[test]
fn few_effective_rows_are_refused() {
    let day = drawn_day(150, [0.2, 0.3, 0.5], 1);
    let report = study(policy("latency-agnostic"), Rules::default(), &day);
    assert!(report.observed.cannot_answer.as_ref().unwrap().contains("effective rows"), "{report:?}");
    let rules = Rules { least_effective_rows: 10.0, ..Rules::default() };
    let report = study(policy("latency-agnostic"), rules, &day);
    assert!(observed(&report, "ttft_s").estimate().is_some());
}

#[test]
fn turns_count_as_draws_where_asked() {
    let mut day = drawn_day(3000, [1.0 / 3.0; 3], 3);
    for row in &mut day {
        row.decision.propensity = 1.0;
        row.decision.reason = Reason::RoundRobin;
        row.decision.policy = "round-robin".into();
    }
    let blind = policy("latency-agnostic");
    let refused = study(blind.clone(), Rules::default(), &day);
    assert!(refused.observed.cannot_answer.is_some());
    let told = study(blind, Rules { turns_as_draws: true, ..Rules::default() }, &day);
    let Verdict::Estimate(ttft) = observed(&told, "ttft_s") else { panic!("{told:?}") };
    assert!((ttft.mean - 0.15).abs() < 0.01, "{ttft:?}");
}

#[test]
fn later_attempts_and_empty_tables_are_counted_apart() {
    let mut retried = both();
    retried.decision.attempt = 2;
    let mut bare = both();
    bare.decision.candidates.clear();
    let report = study(Change::default(), Rules::default(), &[both(), retried, bare]);
    let rows = &report.rows;
    assert_eq!((rows.first_attempts, rows.later_attempts, rows.without_decision), (1, 1, 1));
}

#[test]
fn predicted_and_observed_are_told_apart() {
    let mut late = both();
    late.outcome.ttft_s = Some(0.4);
    let mut failed = both();
    failed.outcome = Outcome { ending: Ending::Failed, ttft_s: None, cost_usd: None, ..failed.outcome };
    let mut unstreamed = both();
    unstreamed.query.streamed = false;
    let day = [both(), late, failed, unstreamed];
    let report = study(Change::default(), Rules { least_effective_rows: 1.0, ..Rules::default() }, &day);
    let line = |lines: &[Line], name: &str| {
        let line = lines.iter().find(|line| line.name == name).unwrap();
        line.what_if.estimate().map(|estimate| (estimate.mean, estimate.rows))
    };
    assert_eq!(line(&report.predicted.means, "ttft_s"), Some((0.1, 4)));
    assert_eq!(line(&report.predicted.means, "attainment"), Some((1.0, 4)));
    // (0.1 + 0.4) / 2; one of three targets met; the unstreamed one shows neither.
    assert_eq!(line(&report.observed.means, "ttft_s"), Some((0.25, 2)));
    let (met, rows) = line(&report.observed.means, "attainment").unwrap();
    assert!((met - 1.0 / 3.0).abs() < 1e-12 && rows == 3);
    // On time: 0.6 − 500·1e-4 = 0.55, once in three.
    let (utility, rows) = line(&report.observed.means, "on_time_utility (predicted accuracy)").unwrap();
    assert!((utility - 0.55 / 3.0).abs() < 1e-12 && rows == 3);
    assert_eq!(line(&report.observed.means, "on_time_utility"), None);
    let ttft = report.calibration.iter().find(|line| line.name == "ttft_s").unwrap();
    assert_eq!((ttft.rows, ttft.predicted, ttft.observed), (2, 0.1, 0.25));
}

#[test]
fn a_judged_answer_has_a_utility_of_its_own() {
    let mut judged = both();
    judged.score = Some(1.0);
    let price = Price { input_usd_per_mtok: 1.0, output_usd_per_mtok: 2.0, ..Price::default() };
    let change = Change {
        prices: [("small".to_owned(), price)].into(),
        lambda_per_usd: Some(100.0),
        only: ["small".to_owned()].into(),
        ..Change::default()
    };
    let rules = Rules { least_effective_rows: 1.0, ..Rules::default() };
    let report = study(change, rules, &[judged]);
    // (1000·1 + 100·2) / 1e6 = 1.2e-3 USD; 1 − 100·1.2e-3 = 0.88.
    let utility = observed(&report, "on_time_utility").estimate().unwrap().mean;
    assert!((utility - 0.88).abs() < 1e-12, "{utility}");
}

#[test]
fn same_seed_same_report() {
    let day = drawn_day(300, [0.2, 0.3, 0.5], 1);
    let report = || study(policy("latency-agnostic"), Rules::default(), &day);
    assert_eq!(serde_json::to_string(&report()).unwrap(), serde_json::to_string(&report()).unwrap());
}
