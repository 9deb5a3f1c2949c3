//! The search over simulations that are formulas.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

const SCENARIO: &str = "
name: formula
pool: [{profile: x, price: {input_usd_per_mtok: 1, output_usd_per_mtok: 1}}]
workload: {name: none}
arrivals: {name: none}
lambda_per_usd: 500
duration_s: 1200
axes: {lambda_per_usd: [1, 2]}
routers:
  - {label: other, policy: {name: round-robin}}
  - {label: bear, policy: {name: bear}}
";

fn scenario() -> Scenario {
    Scenario::parse(SCENARIO, "formula").unwrap()
}

fn plan(ranges: &[&str], goals: &[&str]) -> Plan {
    Plan {
        router: 1,
        objective: Objective::new("on_time_utility", true).unwrap(),
        goals: goals.iter().map(|goal| Goal::parse(goal).unwrap()).collect(),
        ranges: ranges.iter().map(|range| Range::parse(range).unwrap()).collect(),
        seeds: vec![1, 2, 3],
    }
}

/// Plays every run by a formula.
fn each(
    mut play: impl FnMut(&Scenario, u64) -> Result<Metrics, LabError>,
) -> impl FnMut(&[Run]) -> Result<Vec<Metrics>, LabError> {
    move |runs| runs.iter().map(|run| play(&run.scenario, run.seed)).collect()
}

/// OnTimeUtility peaks at λ = 300 (even in ratios) and at δ = 0.5; cost is 0.02/λ; seeds shift the level only.
fn formula(scenario: &Scenario, seed: u64) -> Result<Metrics, LabError> {
    assert!(scenario.axes.is_empty() && scenario.routers.len() == 1 && scenario.lambda_per_usd == 500.0);
    let router = &scenario.routers[0];
    let lambda = router.lambda_per_usd.unwrap_or(scenario.lambda_per_usd);
    let delta = router.delta_per_s.unwrap_or(0.5);
    let off = (lambda / 300.0).ln();
    Ok(Metrics {
        on_time_utility: 0.6 - 0.05 * off * off - 0.1 * (delta - 0.5) * (delta - 0.5) + 1e-3 * seed as f64,
        attainment: 0.9,
        mean_cost_usd: 0.02 / lambda,
        ..Metrics::default()
    })
}

#[test]
fn the_peak_is_found() {
    let advice = search(&scenario(), &plan(&["lambda_per_usd=50..2000"], &[]), &mut each(formula)).unwrap();
    let best = advice.best.unwrap();
    assert!((best.values[0] / 300.0 - 1.0).abs() < 0.05, "{best:?}");
    assert_eq!((best.effort, advice.found.effort), (Effort::Fresh, Effort::AllSeeds));
    // 0.6 + 1e-3·2 less what λ is off; the seeds' spread is 1e-3, t of 2 degrees of freedom 4.303.
    let utility = advice.found.metrics["on_time_utility"];
    assert!((utility.mean - 0.602).abs() < 2e-4, "{utility:?}");
    assert!((utility.high - utility.mean - 4.303e-3 / 3.0_f64.sqrt()).abs() < 1e-9, "{utility:?}");
    let present = advice.present.unwrap();
    assert_eq!(present.values, [500.0]);
    assert!(present.metrics["on_time_utility"].mean < best.metrics["on_time_utility"].mean);
}

#[test]
fn two_knobs_are_searched_together() {
    let ranges = ["lambda_per_usd=50..2000", "delta_per_s=0..5"];
    let advice = search(&scenario(), &plan(&ranges, &[]), &mut each(formula)).unwrap();
    let best = advice.best.unwrap();
    assert!((best.values[0] / 300.0 - 1.0).abs() < 0.1 && (best.values[1] - 0.5).abs() < 0.1, "{best:?}");
    assert!(advice.runs < 120, "{} runs", advice.runs);
    assert!(advice.inert.is_empty());
}

#[test]
fn a_goal_holds_the_peak_back() {
    // A cost of at most 4e-5 needs λ ≥ 500: the best point lies on that edge.
    let goals = ["cost_usd<=0.00004", "attainment>=0.9"];
    let advice =
        search(&scenario(), &plan(&["lambda_per_usd=50..2000"], &goals), &mut each(formula)).unwrap();
    let best = advice.best.unwrap();
    assert!(best.meets() && best.values[0] >= 500.0 && best.values[0] < 530.0, "{best:?}");
    let front = |trial: &&Trial| trial.on_front;
    assert!(advice.curve.iter().filter(front).all(|trial| trial.values[0] > 295.0), "{:?}", advice.curve);
    for trials in [&advice.curve, &advice.scouted] {
        assert!(trials.windows(2).all(|two| two[0].values[0] < two[1].values[0]));
    }
}

#[test]
fn a_goal_out_of_reach_names_the_nearest_point() {
    let goals = ["cost_usd<=0.000005"];
    let advice =
        search(&scenario(), &plan(&["lambda_per_usd=50..2000"], &goals), &mut each(formula)).unwrap();
    assert_eq!((advice.best, advice.judged.values[0]), (None, 2000.0));
    // 0.02/2000 = 1e-5 is twice the bound.
    assert!((advice.judged.shortfall - 1.0).abs() < 1e-9, "{:?}", advice.judged);
    assert_eq!(advice.judged.goals, [Met::Not]);
}

#[test]
fn a_knob_that_changes_nothing_is_named_and_stays() {
    // A metric that is no number is no difference.
    let blind = |scenario: &Scenario, seed: u64| {
        let mut without_delta = scenario.clone();
        without_delta.routers[0].delta_per_s = None;
        Ok(Metrics { share_variation: f64::NAN, ..formula(&without_delta, seed)? })
    };
    let mut scenario = scenario();
    scenario.routers[1].delta_per_s = Some(0.7);
    let mut tried = Vec::new();
    let mut noted = |runs: &[Run]| {
        tried.extend(runs.iter().map(|run| (run.scenario.duration_s, run.scenario.routers[0].delta_per_s)));
        each(blind)(runs)
    };
    let plan = plan(&["delta_per_s=0..5", "lambda_per_usd=50..2000", "unused=1..3:int"], &[]);
    let advice = search(&scenario, &plan, &mut noted).unwrap();
    assert_eq!(
        (advice.inert.clone(), advice.keys),
        (vec!["delta_per_s".into(), "unused".into()], vec!["lambda_per_usd".to_owned()])
    );
    let best = advice.best.unwrap();
    assert!((best.values[0] / 300.0 - 1.0).abs() < 0.1 && best.values.len() == 1, "{best:?}");
    // Longer runs, but those that show δ to be inert, have it as it is; so has what comes out, and no option.
    let other = tried.iter().filter(|&&(duration_s, delta)| duration_s == 1200.0 && delta != Some(0.7));
    assert!(other.count() <= 4, "{tried:?}");
    let turned = turned(&scenario, &plan.without(&advice.inert), &best.values).routers.remove(0);
    assert_eq!((turned.delta_per_s, turned.policy.options.get("unused")), (Some(0.7), None));
}

#[test]
fn a_knob_that_matters_in_full_runs_only_is_searched() {
    let slow = |scenario: &Scenario, seed: u64| match scenario.duration_s {
        1200.0 => formula(scenario, seed),
        _ => Ok(Metrics::default()),
    };
    let advice = search(&scenario(), &plan(&["lambda_per_usd=50..2000"], &[]), &mut each(slow)).unwrap();
    assert_eq!(advice.keys, ["lambda_per_usd"]);
}

#[test]
fn of_equal_points_the_present_one_stays() {
    // Anything from λ = 400 up is as good.
    let plateau = |scenario: &Scenario, _: u64| {
        let lambda = scenario.routers[0].lambda_per_usd.unwrap_or(scenario.lambda_per_usd);
        Ok(Metrics { on_time_utility: lambda.min(400.0), ..Metrics::default() })
    };
    let advice = search(&scenario(), &plan(&["lambda_per_usd=50..2000"], &[]), &mut each(plateau)).unwrap();
    assert_eq!((advice.best.unwrap().values, advice.gain.unwrap().mean), (vec![500.0], 0.0));
}

#[test]
fn where_nothing_changes_anything_the_scenario_stays() {
    let same = |_: &Scenario, seed: u64| Ok(Metrics { attainment: seed as f64, ..Metrics::default() });
    let advice = search(&scenario(), &plan(&["lambda_per_usd=50..2000"], &[]), &mut each(same)).unwrap();
    assert_eq!((advice.keys.len(), advice.judged.values.len(), advice.curve.len()), (0, 0, 1));
    assert_eq!(advice.gain.unwrap().mean, 0.0);
}

#[test]
fn only_points_that_ran_in_full_are_on_the_curve() {
    // Short runs flatter every point, and λ above 1000 has no TTFT.
    let flattering = |scenario: &Scenario, seed: u64| {
        let metrics = formula(scenario, seed)?;
        let short = scenario.duration_s < 1200.0;
        let ttft_mape = (scenario.routers[0].lambda_per_usd < Some(1000.0)).then_some(0.1);
        Ok(Metrics {
            on_time_utility: metrics.on_time_utility + f64::from(u8::from(short)),
            ttft_mape,
            ..metrics
        })
    };
    let plan = plan(&["lambda_per_usd=50..2000"], &["ttft_mape<=0.2"]);
    let advice = search(&scenario(), &plan, &mut each(flattering)).unwrap();
    assert!(advice.curve.iter().all(|trial| trial.effort == Effort::AllSeeds && trial.merit < 1.0));
    assert!(advice.curve.iter().any(|trial| trial.on_front));
    assert!(advice.scouted.iter().all(|trial| trial.effort < Effort::AllSeeds && !trial.on_front));
    assert!(advice.scouted.iter().any(|trial| trial.merit > 1.0));
    // Where all goals are out of sight nothing is on the front.
    let unseen = |scenario: &Scenario, seed: u64| formula(scenario, seed);
    let advice = search(&self::scenario(), &plan, &mut each(unseen)).unwrap();
    assert!(advice.best.is_none() && advice.curve.iter().all(|trial| !trial.on_front));
}

#[test]
fn what_is_found_is_judged_on_fresh_seeds() {
    // Utilities are noise, a function of λ and the seed, of standard deviation 0.1 about 0.5: the best of many
    // lies above 0.5 on the seeds of the search.
    let noise = |scenario: &Scenario, seed: u64| {
        let lambda = scenario.routers[0].lambda_per_usd.unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(lambda.to_bits() ^ seed.rotate_left(32));
        let sum: f64 = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
        Ok(Metrics { on_time_utility: 0.5 + 0.1 * sum, attainment: 0.9, ..Metrics::default() })
    };
    let (mut found, mut judged, mut gains) = (0.0, 0.0, 0);
    for trial in 0..30 {
        let mut plan = plan(&["lambda_per_usd=50..2000"], &[]);
        plan.seeds = (0..3).map(|seed| 100 * trial + seed).collect();
        let advice = search(&scenario(), &plan, &mut each(noise)).unwrap();
        assert!(advice.fresh_seeds.len() == 5 && advice.fresh_seeds.iter().all(|s| !plan.seeds.contains(s)));
        found += advice.found.metrics["on_time_utility"].mean / 30.0;
        judged += advice.judged.metrics["on_time_utility"].mean / 30.0;
        let gain = advice.gain.unwrap();
        gains += u32::from(gain.low > 0.0 || gain.high < 0.0);
    }
    // 0.1/√(5·30) is 0.008; one interval in twenty misses 0.
    assert!(found > 0.55 && (judged - 0.5).abs() < 0.03, "{found} {judged}");
    assert!(gains <= 6, "{gains}");
}

#[test]
fn a_point_that_misses_a_goal_on_fresh_seeds_gives_way_to_the_next() {
    // Answers cost 1% more on seeds that the search does not see: λ must be 505, not 500.
    let dearer = |scenario: &Scenario, seed: u64| {
        let metrics = formula(scenario, seed)?;
        let factor = if seed > 3 { 1.01 } else { 1.0 };
        Ok(Metrics { mean_cost_usd: metrics.mean_cost_usd * factor, ..metrics })
    };
    let plan = plan(&["lambda_per_usd=50..2000"], &["cost_usd<=0.00004"]);
    let advice = search(&scenario(), &plan, &mut each(dearer)).unwrap();
    let best = advice.best.unwrap();
    assert!(best.values[0] >= 505.0 && best.goals == [Met::Surely], "{best:?}");
    let at_the_edge = advice.curve.iter().filter(|trial| trial.meets() && trial.values[0] < 505.0);
    assert!(at_the_edge.count() > 0, "{:?}", advice.curve);
}

#[test]
fn a_goal_is_met_surely_on_average_or_not() {
    let goal = Goal::parse("attainment>=0.9").unwrap();
    let judge = |low: f64, mean: f64, runs: usize| goal.judge(&Interval { mean, low, high: 1.0 }, runs);
    assert_eq!(judge(0.91, 0.95, 5), Met::Surely);
    assert_eq!(judge(0.89, 0.95, 5), Met::OnAverage);
    assert_eq!(judge(0.95, 0.95, 1), Met::OnAverage);
    assert_eq!(judge(0.8, 0.89, 5), Met::Not);
}

#[test]
fn a_bound_of_zero_is_missed_by_what_it_is_missed() {
    let goal = Goal::parse("failed<=0").unwrap();
    assert_eq!((goal.shortfall(0.0), goal.shortfall(3.0)), (0.0, 3.0));
    assert_eq!(Goal::parse("cost_usd<=-2").unwrap().shortfall(1.0), 1.5);
}

#[test]
fn options_are_turned_in_the_policy() {
    let option = |scenario: &Scenario, _: u64| {
        let window = scenario.routers[0].policy.options["window"].as_i64().unwrap();
        Ok(Metrics { on_time_utility: -((window - 40) as f64).abs(), ..Metrics::default() })
    };
    let advice = search(&scenario(), &plan(&["options.window=1..100:int"], &[]), &mut each(option)).unwrap();
    assert!((advice.best.unwrap().values[0] - 40.0).abs() <= 2.0);
    assert_eq!(advice.present, None);
}

#[test]
fn same_seeds_same_advice_and_no_run_twice() {
    let run = || {
        let mut runs: BTreeMap<String, u32> = BTreeMap::new();
        let mut counted = each(|scenario: &Scenario, seed: u64| {
            *runs.entry(format!("{scenario:?} {seed}")).or_default() += 1;
            formula(scenario, seed)
        });
        let plan = plan(&["lambda_per_usd=50..2000", "delta_per_s=0..5"], &[]);
        let advice = search(&scenario(), &plan, &mut counted).unwrap();
        drop(counted);
        assert!(runs.values().all(|&count| count == 1));
        assert_eq!(advice.runs, runs.len() as u64);
        serde_json::to_string(&advice).unwrap()
    };
    assert_eq!(run(), run());
}

#[test]
fn goals_name_metrics() {
    assert_eq!(Goal::parse("cost_usd <= 5e-4").unwrap().metric, "mean_cost_usd");
    assert_eq!(Goal::parse("ttft_s.p95<=0.5").unwrap().metric, "ttft_s.p95");
    assert_eq!(Goal::parse("model_share.qwen3-8b>=0.1").unwrap().metric, "model_share.qwen3-8b");
    let unknown = Goal::parse("atainment>=0.9").unwrap_err().to_string();
    assert!(unknown.contains("`atainment`") && unknown.contains("attainment"), "{unknown}");
    for wrong in ["attainment", "attainment>=x", "attainment=0.9", "attainment>=inf"] {
        assert!(matches!(Goal::parse(wrong), Err(LabError::Invalid { .. })), "{wrong}");
    }
}

#[test]
fn a_plan_that_cannot_be_searched_is_refused() {
    let refuse = |plan: Plan| search(&scenario(), &plan, &mut each(formula)).unwrap_err().to_string();
    assert!(refuse(plan(&[], &[])).contains("1 to 4 knobs, not 0"));
    assert!(refuse(plan(&["a=0..1", "a=1..2"], &[])).contains("once"));
    assert!(refuse(Plan { router: 9, ..plan(&["a=0..1"], &[]) }).contains("routers"));
    assert!(refuse(Plan { seeds: vec![], ..plan(&["a=0..1"], &[]) }).contains("seeds"));
}
