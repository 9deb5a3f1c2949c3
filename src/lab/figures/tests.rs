//! Figures' numbers on small hand-computed cases.

use serde_json::json;

use super::{made, *};
use crate::lab::{Metrics, RunKey, RunLine};

const RATE: &str = "arrivals.options.rate_qps";

fn run(router: &str, seed: u64, rate: f64, utility: f64) -> RunLine {
    let key = RunKey {
        scenario: "poisson".into(),
        point: [(RATE.to_owned(), json!(rate))].into(),
        router: router.into(),
        options: serde_json::Map::new(),
        seed,
        digest: String::new(),
        world: String::new(),
    };
    let metrics = Metrics {
        on_time_utility: utility,
        attainment: 0.75,
        model_share: [("a".to_owned(), 0.6), ("b".to_owned(), 0.4)].into(),
        model_attainment: [("a".to_owned(), 1.0), ("b".to_owned(), 0.375)].into(),
        ..Metrics::default()
    };
    RunLine { key, setting: made::setting(), metrics, requests: Vec::new() }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-3
}

#[test]
fn intervals_are_students() {
    // Of 1, 2, 3: mean 2, variance 1, standard error 1/√3 = 0.5774, t(2) = 4.303, half-width 2.484.
    let of_three = interval(&[1.0, 2.0, 3.0]).unwrap();
    assert!(close(of_three.mean, 2.0) && close(of_three.low, -0.484) && close(of_three.high, 4.484));
    let of_one = interval(&[5.0]).unwrap();
    assert_eq!((of_one.low, of_one.mean, of_one.high), (5.0, 5.0, 5.0));
    assert_eq!(interval(&[]), None);
    // Of 40 values half of them 0, half 1: variance 40·0.25/39 = 0.2564, error 0.0801, times 1.96 = 0.1569.
    let many: Vec<f64> = (0..40).map(|i| f64::from(i % 2)).collect();
    assert!(close(interval(&many).unwrap().high, 0.6569));
}

#[test]
fn margins_are_ratios_seed_by_seed() {
    let lines = [
        run("bear", 1, 8.0, 0.6),
        run("bear", 2, 8.0, 0.3),
        run("old", 1, 8.0, 0.4),
        run("old", 2, 8.0, 0.25),
        run("poor", 1, 8.0, 0.3),
        run("poor", 2, 8.0, 0.15),
        run("bear", 3, 8.0, 0.9),
    ];
    let runs = Runs::of(&lines, "poisson");
    // Over old: 0.6/0.4 − 1 = 0.5 and 0.3/0.25 − 1 = 0.2, mean 0.35; seed 3 has no rival.
    let best = ["poor".to_owned(), "old".to_owned()];
    let margin = &margins(&runs, RATE, "bear", Rivals::BestOf(&best))[0];
    assert_eq!((margin.over.as_str(), margin.by_seed.len()), ("old", 2));
    assert!(close(margin.lead.unwrap().mean, 0.35) && close(margin.difference.mean, 0.125), "{margin:?}");
    // Over each: poor is 1.0 and 1.0, so (0.5 + 1)/2 and (0.2 + 1)/2: mean 0.675.
    let both = margins(&runs, RATE, "bear", Rivals::Each(&["old", "poor"]));
    assert!(close(both[0].lead.unwrap().mean, 0.675) && both[0].over == "old + poor");
    let mean = mean_margin(&both).unwrap();
    assert!(close(mean.mean, 0.675) && mean.low < mean.mean);
    assert_eq!(mean_margin(&[]), None);
    assert!(margins(&runs, RATE, "bear", Rivals::Each(&["absent"])).is_empty());
    // One rival below 0 under one seed: a ratio would drop that seed, so there is none, only the difference.
    let lines = [
        run("bear", 1, 8.0, 0.6),
        run("bear", 2, 8.0, 0.4),
        run("old", 1, 8.0, -0.1),
        run("old", 2, 8.0, 0.3),
    ];
    let margin = &margins(&Runs::of(&lines, "poisson"), RATE, "bear", Rivals::Each(&["old"]))[0];
    assert!(margin.lead.is_none() && close(margin.difference.mean, 0.4), "{margin:?}");
    assert_eq!(mean_margin(std::slice::from_ref(margin)), None);
}

#[test]
fn what_staleness_costs_is_told_against_the_same_seed() {
    let lines = [
        run("bear", 1, 0.0, 0.5),
        run("bear", 2, 0.0, 0.8),
        run("bear", 1, 9.0, 0.4),
        run("bear", 2, 9.0, 0.72),
    ];
    // 0.4/0.5 = 0.8 and 0.72/0.8 = 0.9: mean 0.85.
    let found = relative(&Runs::of(&lines, "poisson"), RATE, 0.0, |m| m.on_time_utility);
    assert!(close(found[0].y.mean, 1.0) && close(found[1].y.mean, 0.85), "{found:?}");
}

#[test]
fn a_later_line_of_the_same_run_counts() {
    let lines = [run("bear", 1, 8.0, 0.1), run("bear", 1, 8.0, 0.5), run("bear", 1, 6.0, 0.7)];
    let series = Runs::of(&lines, "poisson").series(RATE, |m| m.on_time_utility);
    let found: Vec<(f64, f64)> = series[0].points.iter().map(|p| (p.x, p.y.mean)).collect();
    assert_eq!(found, [(6.0, 0.7), (8.0, 0.5)]);
    assert!(Runs::of(&lines, "other").is_empty());
}

#[test]
fn composition_parts_add_up() {
    let lines = [run("bear", 1, 8.0, 0.1)];
    let found = &Runs::of(&lines, "poisson").composition(RATE, "bear")[0];
    // a: 0.6 all met. b: 0.4·0.375 = 0.15 met, 0.25 missed.
    let parts: Vec<(&str, f64, f64)> = found.parts.iter().map(|p| (p.0.as_str(), p.1, p.2)).collect();
    assert!(parts[0] == ("a", 0.6, 0.0) && close(parts[1].1, 0.15) && close(parts[1].2, 0.25), "{parts:?}");
    assert!(close(found.attainment.mean, 0.75));
}

#[test]
fn errors_are_relative_to_what_came() {
    // |0.5/1 − 1| = 0.5, |3/2 − 1| = 0.5, |4/4 − 1| = 0: mean 1/3, median 0.5.
    let pairs = Pairs { points: vec![(1.0, 0.5), (2.0, 3.0), (4.0, 4.0)] };
    assert!(close(pairs.mape().unwrap(), 1.0 / 3.0) && close(pairs.median_error().unwrap(), 0.5));
    assert_eq!(Pairs::default().mape(), None);
    assert_eq!(pairs.thinned(2), [(1.0, 0.5), (4.0, 4.0)]);
}

#[test]
fn requests_give_estimates_beliefs_and_lengths() {
    let lines = made::lines();
    let runs = Runs::of(&lines, "requests");
    let bea = estimates(&runs, "bea", "qwen3-0.6b");
    assert!(bea.points.len() > 1_000 && bea.mape().unwrap() < 0.1, "{:?}", bea.mape());
    let kinds = [("bear", RealisedKind::FirstToken), ("score", RealisedKind::WholeAnswer)];
    let found = beliefs(&runs, &kinds);
    assert_eq!(found.len(), 2);
    assert!(found[0].models["qwen3-8b"].mape() < found[1].models["qwen3-8b"].mape());
    let (prompts, answers) = lengths(&runs);
    assert_eq!((prompts.len(), answers.len()), (4, 12));
    let [p5, p25, p50, p75, p95] = prompts[3].quartiles();
    assert!(prompts[3].task == "summarisation" && p5 < p25 && p25 < p50 && p50 < p75 && p75 < p95);
    let edges: Vec<f64> = (0..=60).map(|i| 10f64.powf(f64::from(i) / 12.0)).collect();
    assert!(close(prompts[3].shares(&edges).iter().sum(), 1.0));
}
