//! A decision as a table for a terminal.

use std::fmt::Write as _;

use crate::domain::{Candidate, Decision};

/// Renders a decision: its head, and one line an instance with the chosen one marked.
pub(super) fn render(decision: &Decision) -> String {
    let target = decision.ttft_target_ms.map_or("none".to_owned(), |ms| format!("{ms} ms"));
    let mut text = format!(
        "policy {}, reason {}, lambda {} per USD, delta {} per s, TTFT target {target}\n\n   {:<20} {:<16} {:>8} {:>8} {:>10} {:>9} {:>9} {:<18} {}\n",
        decision.policy,
        decision.reason.label(),
        decision.lambda_per_usd,
        decision.delta_per_s,
        "instance",
        "model",
        "accuracy",
        "output",
        "cost USD",
        "utility",
        "TTFT ms",
        "estimate",
        "verdict",
    );
    for candidate in &decision.candidates {
        // A failed write into a string cannot happen.
        let _infallible = writeln!(text, "{}", line(candidate));
    }
    text
}

fn line(candidate: &Candidate) -> String {
    let number =
        |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
    let verdict = match (&candidate.ineligible, candidate.feasible) {
        (Some(why), _) => serde_json::to_string(why).unwrap_or_default(),
        (None, Some(true)) => "in time".into(),
        (None, Some(false)) => "late".into(),
        (None, None) => "not estimated".into(),
    };
    format!(
        "{}  {:<20} {:<16} {:>8} {:>8} {:>10} {:>9} {:>9} {:<18} {verdict}",
        if candidate.chosen { ">" } else { " " },
        candidate.instance.as_str(),
        candidate.model,
        number(candidate.accuracy, 3),
        number(candidate.output_tokens, 0),
        number(candidate.cost_usd, 6),
        number(candidate.utility, 4),
        number(candidate.ttft_s.map(|s| s * 1e3), 1),
        candidate.source.as_deref().unwrap_or("-"),
    )
}
