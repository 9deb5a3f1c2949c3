//! What every process promises: order, rate, repeatability; and what each is named and refused for.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use super::*;

fn made(name: &str, options: Value) -> Result<Box<dyn Arrivals>, LabError> {
    let Value::Object(options) = options else { panic!("options are an object") };
    build(name, &options, &Files::new())
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
    ] {
        let error = made(name, options).err().unwrap().to_string();
        assert!(error.contains(what) && error.contains(name), "{error}");
    }
}
