//! The search over simulations that are formulas.

use std::collections::BTreeMap;

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
    let advice = search(&scenario(), &plan(&["lambda_per_usd=50..2000"], &[]), &mut formula).unwrap();
    let best = advice.best.unwrap();
    assert!((best.values[0] / 300.0 - 1.0).abs() < 0.05, "{best:?}");
    assert_eq!(best.effort, Effort::AllSeeds);
    // 0.6 + 1e-3·2 less what λ is off; the seeds' spread is 1e-3, t of 2 degrees of freedom 4.303.
    let utility = best.metrics["on_time_utility"];
    assert!((utility.mean - 0.602).abs() < 2e-4, "{utility:?}");
    assert!((utility.high - utility.mean - 4.303e-3 / 3.0_f64.sqrt()).abs() < 1e-9, "{utility:?}");
    let present = advice.present.unwrap();
    assert_eq!(present.values, [500.0]);
    assert!(present.metrics["on_time_utility"].mean < utility.mean);
}

#[test]
fn two_knobs_are_searched_together() {
    let ranges = ["lambda_per_usd=50..2000", "delta_per_s=0..5"];
    let advice = search(&scenario(), &plan(&ranges, &[]), &mut formula).unwrap();
    let best = advice.best.unwrap();
    assert!((best.values[0] / 300.0 - 1.0).abs() < 0.1 && (best.values[1] - 0.5).abs() < 0.1, "{best:?}");
    assert!(advice.runs < 120, "{} runs", advice.runs);
    assert!(advice.inert.is_empty());
}

#[test]
fn a_goal_holds_the_peak_back() {
    // A cost of at most 4e-5 needs λ ≥ 500: the best point lies on that edge.
    let goals = ["cost_usd<=0.00004", "attainment>=0.9"];
    let advice = search(&scenario(), &plan(&["lambda_per_usd=50..2000"], &goals), &mut formula).unwrap();
    let best = advice.best.unwrap();
    assert!(best.meets() && best.values[0] >= 500.0 && best.values[0] < 530.0, "{best:?}");
    let front = |trial: &&Trial| trial.on_front;
    assert!(advice.curve.iter().filter(front).all(|trial| trial.values[0] > 295.0), "{:?}", advice.curve);
    assert!(advice.curve.windows(2).all(|two| two[0].values[0] < two[1].values[0]));
}

#[test]
fn a_goal_out_of_reach_names_the_nearest_point() {
    let goals = ["cost_usd<=0.000005"];
    let advice = search(&scenario(), &plan(&["lambda_per_usd=50..2000"], &goals), &mut formula).unwrap();
    assert_eq!((advice.best, advice.nearest.values[0]), (None, 2000.0));
    // 0.02/2000 = 1e-5 is twice the bound.
    assert!((advice.nearest.shortfall - 1.0).abs() < 1e-9, "{:?}", advice.nearest);
}

#[test]
fn a_knob_that_changes_nothing_is_named_and_left() {
    let mut blind = |scenario: &Scenario, seed: u64| {
        let mut without_delta = scenario.clone();
        without_delta.routers[0].delta_per_s = None;
        formula(&without_delta, seed)
    };
    let ranges = ["lambda_per_usd=50..2000", "delta_per_s=0..5"];
    let advice = search(&scenario(), &plan(&ranges, &[]), &mut blind).unwrap();
    assert_eq!((advice.inert, advice.best.unwrap().values[1]), (vec!["delta_per_s".to_owned()], 0.0));
}

#[test]
fn options_are_turned_in_the_policy() {
    let mut option = |scenario: &Scenario, _: u64| {
        let window = scenario.routers[0].policy.options["window"].as_i64().unwrap();
        Ok(Metrics { on_time_utility: -((window - 40) as f64).abs(), ..Metrics::default() })
    };
    let advice = search(&scenario(), &plan(&["options.window=1..100:int"], &[]), &mut option).unwrap();
    assert!((advice.best.unwrap().values[0] - 40.0).abs() <= 2.0);
    assert_eq!(advice.present, None);
}

#[test]
fn same_seeds_same_advice_and_no_run_twice() {
    let run = || {
        let mut runs: BTreeMap<String, u32> = BTreeMap::new();
        let mut counted = |scenario: &Scenario, seed: u64| {
            *runs.entry(format!("{scenario:?} {seed}")).or_default() += 1;
            formula(scenario, seed)
        };
        let plan = plan(&["lambda_per_usd=50..2000", "delta_per_s=0..5"], &[]);
        let advice = search(&scenario(), &plan, &mut counted).unwrap();
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
    let refuse = |plan: Plan| search(&scenario(), &plan, &mut formula).unwrap_err().to_string();
    assert!(refuse(plan(&[], &[])).contains("1 to 4 knobs, not 0"));
    assert!(refuse(plan(&["a=0..1", "a=1..2"], &[])).contains("once"));
    assert!(refuse(Plan { router: 9, ..plan(&["a=0..1"], &[]) }).contains("routers"));
    assert!(refuse(Plan { seeds: vec![], ..plan(&["a=0..1"], &[]) }).contains("seeds"));
}
