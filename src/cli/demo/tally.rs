//! What the demo has seen in all, in a closing summary.

use std::{collections::BTreeMap, fmt::Write as _};

use super::client::Seen;

/// Counts over the demo's requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// The models, smallest first.
    models: Vec<String>,
    sent: u64,
    failed: u64,
    on_time: u64,
    by_model: BTreeMap<String, u64>,
    by_reason: BTreeMap<String, u64>,
    predicted_ms: Vec<f64>,
    realised_ms: Vec<f64>,
    relative_errors: Vec<f64>,
}

impl Tally {
    /// Starts at nothing, over models given smallest first.
    pub(super) fn new(models: Vec<String>) -> Self {
        Self { models, ..Self::default() }
    }

    /// Counts a request that was sent.
    pub(super) const fn sent(&mut self) {
        self.sent += 1;
    }

    /// Counts a request that ended.
    pub(super) fn ended(&mut self, seen: &Seen) {
        let (Some(model), Some(ttft_ms)) = (&seen.model, seen.ttft_ms) else {
            self.failed += 1;
            return;
        };
        *self.by_model.entry(model.clone()).or_default() += 1;
        *self.by_reason.entry(seen.reason.clone()).or_default() += 1;
        self.on_time += u64::from(seen.on_time());
        self.realised_ms.push(ttft_ms);
        if let Some(predicted_ms) = seen.predicted_ttft_ms {
            self.predicted_ms.push(predicted_ms);
            self.relative_errors.push((predicted_ms / ttft_ms - 1.0).abs());
        }
    }

    fn answered(&self) -> u64 {
        self.by_model.values().sum()
    }

    fn share(&self, count: u64) -> f64 {
        100.0 * count as f64 / (self.answered().max(1)) as f64
    }

    fn shares(&self) -> String {
        let count = |model: &String| self.by_model.get(model).copied().unwrap_or_default();
        let share = |model: &String| format!("{model} {:.0}%", self.share(count(model)));
        self.models.iter().map(share).collect::<Vec<_>>().join("  ")
    }

    /// Writes the closing summary.
    pub(super) fn summary(&self, elapsed_s: f64) -> String {
        let mut text = String::new();
        _ = writeln!(
            text,
            "\n{} requests in {elapsed_s:.0} s: {} answered, {} failed, {} cut short by the end",
            self.sent,
            self.answered(),
            self.failed,
            self.sent.saturating_sub(self.answered() + self.failed)
        );
        if self.answered() == 0 {
            return text;
        }
        _ = writeln!(text, "  share of each model          {}", self.shares());
        let reasons =
            self.by_reason.iter().map(|(reason, count)| format!("{reason} {:.0}%", self.share(*count)));
        _ = writeln!(text, "  why                          {}", reasons.collect::<Vec<_>>().join("  "));
        _ = writeln!(text, "  first token in time          {:.1}%", self.share(self.on_time));
        _ = writeln!(
            text,
            "  first token p50/p90          predicted {}, realised {} ms",
            quantiles(self.predicted_ms.iter().copied()),
            quantiles(self.realised_ms.iter().copied())
        );
        if !self.relative_errors.is_empty() {
            let mut errors = self.relative_errors.clone();
            errors.sort_by(f64::total_cmp);
            let mean = errors.iter().sum::<f64>() / errors.len() as f64;
            _ = writeln!(
                text,
                "  prediction off by            {:.0}% on average, {:.0}% in the median",
                100.0 * mean,
                100.0 * quantile(&errors, 0.5)
            );
        }
        text
    }
}

/// Writes the nearest-rank median and 90 % quantile of some values.
pub(super) fn quantiles(values: impl Iterator<Item = f64>) -> String {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    if sorted.is_empty() {
        return "-/-".to_string();
    }
    format!("{:.0}/{:.0}", quantile(&sorted, 0.5), quantile(&sorted, 0.9))
}

/// Returns the nearest-rank quantile of sorted values, 0 where there are none.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(model: &str, predicted_ttft_ms: f64, ttft_ms: f64) -> Seen {
        Seen {
            model: Some(model.to_string()),
            reason: "max-utility".to_string(),
            predicted_ttft_ms: Some(predicted_ttft_ms),
            ttft_ms: Some(ttft_ms),
            target_ms: 150.0,
            ..Seen::default()
        }
    }

    #[test]
    fn counts_shares_attainment_and_quantiles() {
        let mut tally = Tally::new(vec!["b".into(), "a".into()]);
        for ended in [seen("a", 50.0, 40.0), seen("a", 90.0, 100.0), seen("b", 100.0, 200.0), Seen::default()]
        {
            tally.sent();
            tally.ended(&ended);
        }
        tally.sent();
        let summary = tally.summary(12.0);
        for part in [
            "5 requests in 12 s: 3 answered, 1 failed, 1 cut short",
            "b 33%  a 67%",
            "in time          66.7%",
            "predicted 90/100, realised 100/200 ms",
            // |50/40 - 1|, |90/100 - 1|, |100/200 - 1|
            "28% on average, 25% in the median",
        ] {
            assert!(summary.contains(part), "{part} not in {summary}");
        }
    }

    #[test]
    fn nothing_answered_is_said_without_numbers() {
        assert_eq!(Tally::default().summary(1.0).lines().count(), 2);
    }
}
