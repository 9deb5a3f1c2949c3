//! What every process promises: order, rate, repeatability; and what each is named and refused for.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use super::*;

fn made(name: &str, options: Value) -> Result<Box<dyn Arrivals>, LabError> {
    let Value::Object(options) = options else { panic!("options are an object") };
    let files = [("four", "10\n11\n15\n16\n"), ("one", "10\n")];
    let files = files.map(|(name, text)| (name.to_owned(), text.as_bytes().into()));
    build(name, &options, &Files::from(files))
}

fn times(name: &str, options: Value, seed: u64, count: usize) -> Vec<u64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut process = made(name, options).unwrap();
    let times: Vec<u64> = std::iter::from_fn(|| process.next_us(&mut rng)).take(count).collect();
    assert!(times.is_sorted(), "{name}");
    times
}

/// Variance over mean of the counts in windows of one second.
fn dispersion(times: &[u64]) -> f64 {
    let windows = (times.last().unwrap() / 1_000_000) as usize;
    let mut counts = vec![0.0; windows];
    times.iter().filter_map(|at| usize::try_from(at / 1_000_000).ok()).for_each(|window| {
        if let Some(count) = counts.get_mut(window) {
            *count += 1.0;
        }
    });
    let mean = counts.iter().sum::<f64>() / windows as f64;
    counts.iter().map(|count: &f64| (count - mean).powi(2)).sum::<f64>() / windows as f64 / mean
}

#[test]
fn names_are_sorted_and_summarised() {
    assert!(ARRIVALS.is_sorted_by(|a, b| a.name < b.name));
    assert!(ARRIVALS.iter().all(|entry| !entry.summary.is_empty()));
}

#[test]
fn the_mean_rate_is_the_asked_one_and_only_bursts_are_overdispersed() {
    let count = 80_000;
    let poisson = times("poisson", json!({"rate_qps": 8}), 1, count);
    let rate = count as f64 / (*poisson.last().unwrap() as f64 / 1e6);
    assert!((rate - 8.0).abs() < 0.1, "{rate}");
    assert!((dispersion(&poisson) - 1.0).abs() < 0.05, "{}", dispersion(&poisson));
    // Windows of T = 1 s at r = 6: rates 4 and 24, variance of the rate 0.16·20² = 64; with correlation e^(-t/2)
    // the variance of its integral is 64·2·2·(1 − 2·(1 − e^(-1/2))) = 54.5, so dispersion is 1 + 54.5/8 = 7.8.
    let bursts = times("mmpp2", json!({"rate_qps": 8, "ratio": 6}), 1, count);
    let rate = count as f64 / (*bursts.last().unwrap() as f64 / 1e6);
    assert!((rate - 8.0).abs() < 0.25, "{rate}");
    assert!((dispersion(&bursts) - 7.8).abs() < 0.5, "{}", dispersion(&bursts));
}

#[test]
fn the_same_seed_gives_the_same_arrivals() {
    for (name, options) in
        [("poisson", json!({"rate_qps": 3})), ("mmpp2", json!({"rate_qps": 3, "ratio": 3}))]
    {
        assert_eq!(times(name, options.clone(), 7, 100), times(name, options.clone(), 7, 100));
        assert_ne!(times(name, options.clone(), 7, 100), times(name, options, 8, 100));
    }
}

#[test]
fn what_does_not_fit_is_named() {
    for (name, options, what) in [
        ("poison", json!({}), "mmpp2, "),
        ("poisson", json!({"rate": 1}), "`rate`"),
        ("poisson", json!({"rate_qps": 0}), "`rate_qps`"),
        ("mmpp2", json!({"rate_qps": 8}), "`ratio`"),
        ("mmpp2", json!({"rate_qps": 8, "ratio": 0.5}), "`ratio`"),
        ("mmpp2", json!({"rate_qps": 8, "ratio": 3, "high_share": 1}), "`high_share`"),
        ("mmpp2", json!({"rate_qps": 8, "ratio": 3, "correlation_s": 0}), "`correlation_s`"),
        ("closed-loop", json!({"concurrency": 0}), "`concurrency`"),
        ("closed-loop", json!({"concurrency": 1, "think_s": -1}), "`think_s`"),
        ("trace", json!({}), "`file`"),
    ] {
        let error = made(name, options).err().unwrap().to_string();
        assert!(error.contains(what) && error.contains(name), "{error}");
    }
}

#[test]
fn a_trace_is_scaled_and_begins_anew_after_one_mean_gap() {
    assert_eq!(times("trace", json!({"file": "four"}), 1, 9), [0, 1_000_000, 5_000_000, 6_000_000]);
    assert_eq!(times("trace", json!({"file": "four", "speed": 2}), 1, 9), [0, 500_000, 2_500_000, 3_000_000]);
    // Three gaps span 6 s, so the mean gap is 2 s and the period 8 s; at 1 a second it is 4 s, twice as fast.
    let options = json!({"file": "four", "rate_qps": 1, "loop": true});
    let expected = [0, 500_000, 2_500_000, 3_000_000, 4_000_000, 4_500_000];
    assert_eq!(times("trace", options, 1, 6), expected);
    for (options, what) in [
        (json!({"file": "one", "loop": true}), "no period"),
        (json!({"file": "four", "rate_qps": 1, "speed": 1}), "one decides"),
        (json!({"file": "four", "rate_qps": 0}), "`rate_qps`"),
        (json!({"file": "five"}), "`five`"),
    ] {
        let error = made("trace", options).err().unwrap().to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn clients_of_a_closed_loop_ask_again_after_their_answer() {
    let options = json!({"concurrency": 4, "think_s": 2, "ramp_s": 1});
    assert_eq!(times("closed-loop", options.clone(), 1, 9), [0, 250_000, 500_000, 750_000]);
    let mut process = made("closed-loop", options).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let thought: Vec<u64> =
        (0..4_000).map(|_| process.ended(7_000_000, &mut rng).unwrap() - 7_000_000).collect();
    let mean_s = thought.iter().sum::<u64>() as f64 / 4_000.0 / 1e6;
    assert!((mean_s - 2.0).abs() < 0.1, "{mean_s}");
    let mut at_once = made("closed-loop", json!({"concurrency": 1})).unwrap();
    assert_eq!(at_once.ended(7, &mut rng), Some(7));
    // An open process hears of ends and adds nothing.
    assert_eq!(made("poisson", json!({"rate_qps": 1})).unwrap().ended(7, &mut rng), None);
}
