//! Whole logs: what outcomes tell, and when they tell nothing.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{
    super::{Line, LoggedRow, Report, Rules, Study, Verdict},
    Change, Ending, Outcome, Price, Reason, both, candidate, policy, row,
};

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
fn propensities_that_are_too_small_show_in_the_mean_weight() {
    // Two replicas that the log says it drew a quarter of the time, and there is no third: weights of 0.5/0.25.
    let mut day = drawn_day(2000, [0.5, 0.5, 0.0], 7);
    for row in &mut day {
        row.decision.propensity = 0.25;
    }
    let report = study(policy("latency-agnostic"), Rules::default(), &day);
    assert_eq!(report.observed.coverage, 1.0);
    assert!(report.observed.cannot_answer.unwrap().contains("average 2.0"));
}

#[test]
fn what_cannot_be_replayed_is_not_left_out_of_what_is_reproduced() {
    let mut queued = both();
    queued.decision.policy = "shortest-queue".into();
    let report = study(Change::default(), Rules::default(), &[both(), both(), queued, both()]);
    assert_eq!((report.agreement.reproduced, report.agreement.not_replayed), (Some(0.75), Some(0.25)));
}

#[test]
fn an_answer_that_failed_or_came_late_counts_though_nobody_judged_it() {
    let judged = || LoggedRow { score: Some(1.0), ..both() };
    let mut late = both();
    late.outcome.ttft_s = Some(0.4);
    let mut broken = both();
    broken.outcome.ending = Ending::Failed;
    let rules = Rules { least_effective_rows: 1.0, ..Rules::default() };
    let utility = |day: &[LoggedRow]| {
        let report = study(Change::default(), rules, day);
        let line = report.observed.means.into_iter().find(|line| line.name == "on_time_utility").unwrap();
        let estimate = *line.what_if.estimate().unwrap();
        (estimate.mean, estimate.rows, line.known.unwrap().what_if)
    };
    // In time 1 − 500·1e-4 = 0.95, twice in four.
    let (mean, rows, known) = utility(&[judged(), judged(), late.clone(), broken.clone()]);
    assert!((mean - 0.475).abs() < 1e-12, "{mean}");
    assert_eq!((rows, known), (4, 1.0));
    // One more in time that nobody judged is taken to be like those judged: 0.95 for three in five.
    let (mean, rows, known) = utility(&[judged(), judged(), late.clone(), broken.clone(), both()]);
    assert!((mean - 0.57).abs() < 1e-12, "{mean}");
    assert_eq!((rows, known), (4, 0.8));
    // Scores only where they count for nothing tell nothing.
    let report = study(Change::default(), rules, &[late, broken, both()]);
    assert!(matches!(observed(&report, "on_time_utility"), Verdict::CannotAnswer(_)));
}

#[test]
fn a_share_of_one_has_an_interval() {
    let day: Vec<LoggedRow> = (0..200).map(|_| both()).collect();
    let report = study(Change::default(), Rules::default(), &day);
    let lines = report.predicted.models.iter().chain(&report.predicted.means).chain(&report.observed.means);
    for line in lines.filter(|line| ["small", "attainment", "failed"].contains(&line.name.as_str())) {
        let share = line.what_if.estimate().unwrap();
        assert!((0.01..0.03).contains(&(share.high - share.low)), "{line:?}");
    }
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
