//! What the demo's last seconds were like, in one line: old requests leave, so that a change shows at once.

use std::collections::VecDeque;

use super::{client::Seen, tally::quantiles};

/// How far back the window reaches, seconds.
const REACH_S: f64 = 10.0;

/// The requests of the last seconds, by when they were sent, had their first token, or failed.
pub(super) struct Window {
    /// The models, smallest first.
    models: Vec<String>,
    sent_s: VecDeque<f64>,
    first_tokens: VecDeque<(f64, Seen)>,
    failed_s: VecDeque<f64>,
}

impl Window {
    /// Starts an empty window over models given smallest first.
    pub(super) const fn new(models: Vec<String>) -> Self {
        Self { models, sent_s: VecDeque::new(), first_tokens: VecDeque::new(), failed_s: VecDeque::new() }
    }

    /// Notes a request sent at a time, seconds after the start.
    pub(super) fn sent(&mut self, at_s: f64) {
        self.sent_s.push_back(at_s);
    }

    /// Notes a first token.
    pub(super) fn first_token(&mut self, at_s: f64, seen: Seen) {
        self.first_tokens.push_back((at_s, seen));
    }

    /// Notes a request that failed.
    pub(super) fn failed(&mut self, at_s: f64) {
        self.failed_s.push_back(at_s);
    }

    /// Forgets what is older than the window.
    fn forget(&mut self, now_s: f64) {
        let from_s = now_s - REACH_S;
        for times in [&mut self.sent_s, &mut self.failed_s] {
            while times.front().is_some_and(|at_s| *at_s < from_s) {
                times.pop_front();
            }
        }
        while self.first_tokens.front().is_some_and(|(at_s, _)| *at_s < from_s) {
            self.first_tokens.pop_front();
        }
    }

    /// Writes the window in one line.
    pub(super) fn line(&mut self, now_s: f64) -> String {
        self.forget(now_s);
        let seen = || self.first_tokens.iter().map(|(_, seen)| seen);
        let share = |count: usize| 100.0 * count as f64 / self.first_tokens.len().max(1) as f64;
        let shares = self.models.iter().map(|model| {
            let count = seen().filter(|seen| seen.model.as_ref() == Some(model)).count();
            format!("{} {:.0}%", short(model), share(count))
        });
        let failed = if self.failed_s.is_empty() {
            String::new()
        } else {
            format!(" | {} failed", self.failed_s.len())
        };
        format!(
            "{now_s:>4.0} s | {:>4.1} req/s | {} | on time {:.0}% | TTFT {} ms, predicted {}{failed}",
            self.sent_s.len() as f64 / now_s.clamp(1.0, REACH_S),
            shares.collect::<Vec<_>>().join("  "),
            share(seen().filter(|seen| seen.on_time()).count()),
            quantiles(seen().filter_map(|seen| seen.ttft_ms)),
            quantiles(seen().filter_map(|seen| seen.predicted_ttft_ms)),
        )
    }
}

/// Returns a model's size as its name says it.
fn short(model: &str) -> &str {
    model.rsplit('-').next().unwrap_or(model)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(model: &str, predicted_ttft_ms: f64, ttft_ms: f64) -> Seen {
        Seen {
            model: Some(model.to_string()),
            predicted_ttft_ms: Some(predicted_ttft_ms),
            ttft_ms: Some(ttft_ms),
            target_ms: 150.0,
            ..Seen::default()
        }
    }

    fn window() -> Window {
        let mut window = Window::new(vec!["q-0.6b".into(), "q-8b".into(), "q-32b".into()]);
        for at_s in [1.0, 2.0, 11.5, 12.0] {
            window.sent(at_s);
        }
        window.first_token(1.1, seen("q-0.6b", 10.0, 500.0));
        window.first_token(11.6, seen("q-32b", 50.0, 40.0));
        window.first_token(11.9, seen("q-32b", 90.0, 100.0));
        window.first_token(12.1, seen("q-0.6b", 100.0, 200.0));
        window
    }

    #[test]
    fn only_the_last_seconds_count_and_models_go_by_size() {
        let mut window = window();
        assert_eq!(
            window.line(12.5),
            "  12 s |  0.2 req/s | 0.6b 33%  8b 0%  32b 67% | on time 67% | TTFT 100/200 ms, predicted 90/100"
        );
        window.failed(12.6);
        let later = window.line(22.05);
        assert!(later.contains("0.6b 100%  8b 0%  32b 0% | on time 0%"), "{later}");
        assert!(later.ends_with("predicted 100/100 | 1 failed"), "{later}");
    }

    #[test]
    fn an_empty_window_is_said_without_numbers() {
        assert!(window().line(60.0).ends_with("8b 0%  32b 0% | on time 0% | TTFT -/- ms, predicted -/-"));
    }
}
