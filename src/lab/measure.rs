//! From the requests of a run to its metrics.

use std::collections::BTreeMap;

use super::{Metrics, Quantiles, RequestRecord, Share};

/// Windows over which an instance's share is followed, microseconds.
const WINDOW_US: u64 = 5_000_000;

/// What metrics need beside the requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Where the measured time begins, microseconds.
    pub(super) warmup_us: u64,
    pub(super) answers_per_s: f64,
    pub(super) output_tokens_per_s: f64,
    pub(super) cache_hit_rate: f64,
    pub(super) preemptions: u64,
    pub(super) mean_running: Share,
    pub(super) estimates_per_decision: f64,
    pub(super) best_utility: f64,
}

/// Measures a run.
pub(super) fn measure(records: &[RequestRecord], facts: &Facts) -> Metrics {
    let mean = |of: &dyn Fn(&RequestRecord) -> f64| mean(records.iter().map(of));
    // Nobody can say what an answer was worth that nobody judged.
    let judged: Vec<&RequestRecord> = records.iter().filter(|r| r.judged).collect();
    let valued = |of: &dyn Fn(&RequestRecord) -> f64| self::mean(judged.iter().map(|r| of(r)));
    let utilities: Vec<f64> = records.iter().filter_map(|r| r.utility).collect();
    Metrics {
        requests: records.len() as u64,
        failed: records.iter().filter(|r| r.e2e_s.is_none()).count() as u64,
        judged: judged.len() as u64,
        on_time_utility: valued(&|r| if on_time(r) { r.utility.unwrap_or(0.0) } else { 0.0 }),
        attainment: mean(&|r| f64::from(u8::from(on_time(r)))),
        mean_utility: valued(&|r| r.utility.unwrap_or(0.0)),
        mean_score: valued(&|r| r.score.unwrap_or(0.0)),
        mean_cost_usd: mean(&|r| r.cost_usd),
        negative_utility_share: share(&utilities, |u| u < 0.0),
        ttft_s: quantiles(records.iter().filter_map(|r| r.ttft_s).collect()),
        tpot_s: quantiles(records.iter().filter_map(tpot_s).collect()),
        e2e_s: quantiles(records.iter().filter_map(|r| r.e2e_s).collect()),
        answers_per_s: facts.answers_per_s,
        output_tokens_per_s: facts.output_tokens_per_s,
        cache_hit_rate: facts.cache_hit_rate,
        preemptions: facts.preemptions,
        model_share: shares(records, |r| routed(r).then(|| r.model.clone())),
        model_attainment: attainments(records),
        instance_share: shares(records, |r| routed(r).then(|| r.instance.clone())),
        task_model_share: shares(records, |r| routed(r).then(|| format!("{}/{}", r.task, r.model))),
        mean_running: facts.mean_running.clone(),
        estimates_per_decision: facts.estimates_per_decision,
        ttft_mape: ttft_mape(records),
        best_utility: facts.best_utility,
        share_variation: share_variation(records, facts.warmup_us),
    }
}

/// Returns whether a router found an instance for it.
fn routed(record: &RequestRecord) -> bool {
    !record.instance.is_empty()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / f64::max(count, 1.0)
}

/// Returns whether an answer came and its first token met the target, where there was one.
pub(super) fn on_time(record: &RequestRecord) -> bool {
    match (record.ttft_s, record.target_s) {
        (Some(ttft_s), Some(target_s)) => ttft_s <= target_s,
        (Some(_), None) => true,
        (None, _) => false,
    }
}

fn tpot_s(record: &RequestRecord) -> Option<f64> {
    let after_first = record.output_tokens.checked_sub(1).filter(|tokens| *tokens > 0)?;
    Some((record.e2e_s? - record.ttft_s?) / f64::from(after_first))
}

fn share(values: &[f64], of: impl Fn(f64) -> bool) -> f64 {
    values.iter().filter(|value| of(**value)).count() as f64 / values.len().max(1) as f64
}

/// Summarises a distribution; all zeros of nothing. Quantiles interpolate linearly.
pub(super) fn quantiles(mut values: Vec<f64>) -> Quantiles {
    values.sort_by(f64::total_cmp);
    let Some(&max) = values.last() else { return Quantiles::default() };
    let at = |q: f64| {
        let place = q * (values.len() - 1) as f64;
        let (low, high) = (place.floor() as usize, place.ceil() as usize);
        values[low] + (values[high] - values[low]) * (place - low as f64)
    };
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    Quantiles { mean, p50: at(0.5), p90: at(0.9), p95: at(0.95), p99: at(0.99), max }
}

fn shares(records: &[RequestRecord], name: impl Fn(&RequestRecord) -> Option<String>) -> Share {
    let mut counts = Share::new();
    for name in records.iter().filter_map(name) {
        *counts.entry(name).or_default() += 1.0;
    }
    counts.values_mut().for_each(|count| *count /= records.len().max(1) as f64);
    counts
}

fn attainments(records: &[RequestRecord]) -> Share {
    let mut counts: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for record in records.iter().filter(|r| routed(r)) {
        let (met, all) = counts.entry(record.model.clone()).or_default();
        *met += f64::from(u8::from(on_time(record)));
        *all += 1.0;
    }
    counts.into_iter().map(|(model, (met, all))| (model, met / all)).collect()
}

fn ttft_mape(records: &[RequestRecord]) -> Option<f64> {
    let errors: Vec<f64> = records
        .iter()
        .filter_map(|r| Some((r.predicted_ttft_s? / r.ttft_s.filter(|s| *s > 0.0)? - 1.0).abs()))
        .filter(|error| error.is_finite())
        .collect();
    (!errors.is_empty()).then(|| errors.iter().sum::<f64>() / errors.len() as f64)
}

/// Returns the coefficient of variation of each instance's share over windows, mean over instances.
fn share_variation(records: &[RequestRecord], warmup_us: u64) -> f64 {
    let mut windows: BTreeMap<u64, BTreeMap<&str, f64>> = BTreeMap::new();
    for record in records.iter().filter(|r| routed(r)) {
        let window = windows.entry((record.at_us - warmup_us) / WINDOW_US).or_default();
        *window.entry(&record.instance).or_default() += 1.0;
    }
    let instances: std::collections::BTreeSet<&str> =
        records.iter().filter(|r| routed(r)).map(|r| r.instance.as_str()).collect();
    let variation = |instance: &&str| {
        let share = |window: &BTreeMap<&str, f64>| {
            window.get(instance).copied().unwrap_or(0.0) / window.values().sum::<f64>()
        };
        let shares: Vec<f64> = windows.values().map(share).collect();
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        let variance = shares.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / shares.len() as f64;
        variance.sqrt() / mean
    };
    instances.iter().map(variation).sum::<f64>() / instances.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(at_s: u64, instance: &str, ttft_s: f64, utility: f64) -> RequestRecord {
        RequestRecord {
            at_us: at_s * 1_000_000,
            task: String::from("t"),
            model: String::from("m"),
            instance: instance.to_owned(),
            reason: String::new(),
            prompt_tokens: 10,
            output_tokens: 11,
            predicted_output_tokens: None,
            target_s: Some(0.2),
            predicted_ttft_s: Some(0.1),
            other_ttft_s: BTreeMap::new(),
            believed_latency_s: None,
            ttft_s: Some(ttft_s),
            e2e_s: Some(ttft_s + 1.0),
            judged: true,
            score: Some(utility),
            cost_usd: 0.0,
            utility: Some(utility),
        }
    }

    #[test]
    fn late_answers_count_nothing_on_time_and_fully_in_the_mean() {
        // On time 0.5 and -0.1, late 0.9: (0.5 - 0.1 + 0) / 3 on time, 1.3 / 3 in the mean.
        let records = [record(0, "a", 0.1, 0.5), record(1, "b", 0.2, -0.1), record(2, "b", 0.3, 0.9)];
        let metrics = measure(&records, &Facts::default());
        assert!((metrics.on_time_utility - 0.4 / 3.0).abs() < 1e-12);
        assert!((metrics.mean_utility - 1.3 / 3.0).abs() < 1e-12);
        assert!((metrics.attainment - 2.0 / 3.0).abs() < 1e-12);
        assert!((metrics.negative_utility_share - 1.0 / 3.0).abs() < 1e-12);
        assert!((metrics.tpot_s.mean - 0.1).abs() < 1e-12);
        assert_eq!(metrics.instance_share["a"], 1.0 / 3.0);
        // |0.1/0.1 - 1|, |0.1/0.2 - 1|, |0.1/0.3 - 1|: 0, 1/2, 2/3.
        assert!((metrics.ttft_mape.unwrap() - (0.5 + 2.0 / 3.0) / 3.0).abs() < 1e-12);
    }

    #[test]
    fn a_request_without_an_answer_failed_and_was_not_on_time() {
        let lost = RequestRecord {
            ttft_s: None,
            e2e_s: None,
            score: None,
            utility: None,
            ..record(0, "a", 0.1, 0.5)
        };
        let metrics = measure(&[lost, record(1, "a", 0.1, 0.5)], &Facts::default());
        assert_eq!((metrics.requests, metrics.failed, metrics.attainment), (2, 1, 0.5));
        assert_eq!(metrics.on_time_utility, 0.25);
    }

    #[test]
    fn an_answer_that_nobody_judged_counts_in_latencies_alone() {
        let unjudged =
            RequestRecord { judged: false, score: None, utility: None, ..record(0, "a", 0.3, 0.5) };
        let metrics = measure(&[unjudged, record(1, "a", 0.1, 0.5)], &Facts::default());
        assert_eq!((metrics.requests, metrics.judged, metrics.attainment), (2, 1, 0.5));
        assert_eq!((metrics.on_time_utility, metrics.mean_score, metrics.ttft_s.max), (0.5, 0.5, 0.3));
    }

    #[test]
    fn a_request_that_no_router_could_place_is_nobodys_share() {
        let unplaced = RequestRecord {
            model: String::new(),
            instance: String::new(),
            ttft_s: None,
            e2e_s: None,
            ..record(0, "a", 0.1, 0.5)
        };
        let metrics = measure(&[unplaced, record(1, "a", 0.1, 0.5)], &Facts::default());
        assert_eq!((metrics.failed, metrics.model_attainment["m"]), (1, 1.0));
        assert_eq!(metrics.instance_share, Share::from([(String::from("a"), 0.5)]));
        assert_eq!(metrics.model_share.len(), 1);
    }

    #[test]
    fn quantiles_interpolate() {
        let q = quantiles(vec![4.0, 1.0, 3.0, 2.0, 5.0]);
        assert_eq!((q.mean, q.p50, q.max), (3.0, 3.0, 5.0));
        assert!((q.p90 - 4.6).abs() < 1e-12);
    }

    #[test]
    fn an_even_share_does_not_vary_and_a_swinging_one_does() {
        let even: Vec<_> =
            (0..20).flat_map(|s| [record(s, "a", 0.1, 0.5), record(s, "b", 0.1, 0.5)]).collect();
        assert!(share_variation(&even, 0) < 1e-12);
        // Windows of five seconds go wholly to one and then wholly to the other: mean 1/2, deviation 1/2.
        let swinging: Vec<_> =
            (0..20).map(|s| record(s, if s / 5 % 2 == 0 { "a" } else { "b" }, 0.1, 0.5)).collect();
        assert!((share_variation(&swinging, 0) - 1.0).abs() < 1e-12);
    }
}
