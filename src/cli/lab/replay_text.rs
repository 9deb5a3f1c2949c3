//! A what-if for a terminal of 120 columns.

use std::fmt::Write as _;

use crate::lab::whatif::{Agreement, Change, Line, Observed, Report, Rows, Unestimated, Verdict, Why};

/// Columns of a terminal.
const WIDTH: usize = 116;
/// Widest name shown whole, characters.
const NAME: usize = 36;
/// Width of `mean [low, high]`, characters; of a difference, whose parts have signs.
const CELL: usize = 30;
const SIGNED: usize = 33;
/// Width of a mean alone, characters.
const MEAN: usize = 12;

/// Renders the report: what was asked, the two blocks, agreement and calibration.
pub(super) fn render(report: &Report) -> String {
    let mut text = String::with_capacity(4096);
    asked(&mut text, &report.change, &report.rows);
    let predicted = &report.predicted;
    heading(
        &mut text,
        "PREDICTED: what the router had predicted for the choices",
        &format!("over the {} rows whose new choice the log can tell", predicted.rows),
    );
    lines(&mut text, &predicted.means);
    known(&mut text, &predicted.means);
    for (title, shares) in [("share a model", &predicted.models), ("share an instance", &predicted.instances)]
    {
        let _infallible = writeln!(text, "  {title}");
        lines(&mut text, shares);
    }
    observed(&mut text, &report.observed, report.rows.first_attempts);
    agreement(&mut text, report);
    text.push_str(
        "\nBoth blocks hold every queue as it was: requests sent elsewhere would have changed the wait of others.\n\
         For that, simulate with `bear lab run`.\n\
         The 95% intervals take requests as independent of each other: where they come in rushes, they are too narrow.\n",
    );
    text
}

fn asked(text: &mut String, change: &Change, rows: &Rows) {
    let mut parts = Vec::new();
    if let Some(lambda) = change.lambda_per_usd {
        parts.push(format!("lambda {lambda} per USD"));
    }
    if let Some(delta) = change.delta_per_s {
        parts.push(format!("delta {delta} per s"));
    }
    if let Some(policy) = &change.policy {
        let options = if policy.options.is_empty() {
            String::new()
        } else {
            format!(" with {}", serde_json::Value::Object(policy.options.clone()))
        };
        parts.push(format!("policy {}{options}", policy.name));
    }
    let names = |names: &std::collections::BTreeSet<String>| {
        names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    };
    if !change.without.is_empty() {
        parts.push(format!("without {}", names(&change.without)));
    }
    if !change.only.is_empty() {
        parts.push(format!("only {}", names(&change.only)));
    }
    for (model, price) in &change.prices {
        parts.push(format!(
            "{model} at {}/{} USD per Mtok",
            price.input_usd_per_mtok, price.output_usd_per_mtok
        ));
    }
    let what = if parts.is_empty() { String::from("nothing changed") } else { parts.join("; ") };
    let policies: Vec<String> =
        rows.policies.iter().map(|(policy, count)| format!("{policy} ({count})")).collect();
    // Writing into a text cannot fail.
    let _infallible = writeln!(
        text,
        "What if: {what}\nLog: {} requests by {}; left out: {} later attempts, {} rows without a decision",
        rows.first_attempts,
        policies.join(", "),
        rows.later_attempts,
        rows.without_decision
    );
    if change.policy.is_none() {
        text.push_str(
            "The log does not hold a policy's options: defaults stand for them (--policy, --option).\n",
        );
    }
    if rows.predictors.len() > 1 {
        let _infallible = writeln!(text, "Predictions come from {} predictors.", rows.predictors.len());
    }
    let share = |count: u64| 100.0 * count as f64 / rows.first_attempts.max(1) as f64;
    let _infallible = writeln!(
        text,
        "The log can tell the new choice for {:.1}% of the requests{}",
        share(rows.answered),
        match rows.answered_by_model {
            0 => String::from("."),
            some => format!(" (for {:.1}% the model only, not which replica).", share(some)),
        }
    );
    if rows.answered_by_assumption > 0 {
        let as_if = if change.unestimated == Unestimated::Late { "late" } else { "in time" };
        let _infallible = writeln!(
            text,
            "  {:>5.1}% rest on the assumption that what was not estimated is {as_if} (predicted block only)",
            share(rows.answered_by_assumption)
        );
    }
    for why in Why::ALL {
        if let Some(&count) = rows.unanswered.get(why.label()) {
            let _infallible = writeln!(text, "  {:>5.1}% {}", share(count), why.words());
        }
    }
}

fn heading(text: &mut String, title: &str, under: &str) {
    let _infallible = writeln!(
        text,
        "\n{title}\n  ({under})\n  {:NAME$} {:>CELL$} {:>CELL$} {:>MEAN$}",
        "", "what if [95%]", "logged, same rows [95%]", "logged, all"
    );
}

/// Writes one line a quantity.
fn lines(text: &mut String, lines: &[Line]) {
    for line in lines {
        let _infallible = writeln!(
            text,
            "  {:NAME$} {:>CELL$} {:>CELL$} {:>MEAN$}",
            line.name,
            cell(&line.what_if),
            cell(&line.logged),
            line.logged_all.estimate().map_or_else(|| String::from("-"), |estimate| number(estimate.mean))
        );
    }
}

/// Says of how many rows, by weight, each quantity is known, where it is not all.
fn known(text: &mut String, lines: &[Line]) {
    let part = |line: &Line| {
        let known = line.known.filter(|known| known.what_if < 1.0 || known.logged < 1.0)?;
        let percent = |part: f64| format!("{:.1}%", 100.0 * part);
        Some(match line.what_if.estimate() {
            Some(_) => format!("{} {} ({})", line.name, percent(known.what_if), percent(known.logged)),
            None => format!("{} ({})", line.name, percent(known.logged)),
        })
    };
    let parts: Vec<String> = lines.iter().filter_map(part).collect();
    if !parts.is_empty() {
        sentence(text, &format!("Known for part of the rows only, what if (logged): {}.", parts.join(", ")));
    }
}

fn observed(text: &mut String, observed: &Observed, rows: u64) {
    heading(
        text,
        "OBSERVED: what came of it, weighted to the new choices",
        &format!(
            "over those of the {rows} requests whose weight is known: the same answers, weighted and as they were"
        ),
    );
    lines(text, &observed.means);
    known(text, &observed.means);
    let in_part = |line: &&Line| line.known.is_some_and(|known| known.logged < 1.0);
    if observed.means.iter().filter(in_part).any(|line| line.name.starts_with("on_time_utility")) {
        sentence(
            text,
            "An answer that was late or failed counts 0 in on_time_utility; those in time whose utility is not known \
             are taken to be like the others in time.",
        );
    }
    let weight = observed.mean_weight.map_or_else(
        || String::from("no row has a weight"),
        |mean| {
            format!("mean weight {:.3} [{:.3}, {:.3}], 1 with full support", mean.mean, mean.low, mean.high)
        },
    );
    let _infallible = writeln!(
        text,
        "  effective rows {:.0}; coverage {:.1}%; {weight}",
        observed.effective_rows,
        100.0 * observed.coverage
    );
    if let Some(why) = &observed.cannot_answer {
        sentence(
            text,
            &format!(
                "The log cannot answer: {why}. Log with a policy that draws now and then, or simulate with `bear lab run`."
            ),
        );
        return;
    }
    for line in &observed.means {
        if let (Verdict::CannotAnswer(why), Verdict::Estimate(_)) = (&line.what_if, &line.logged) {
            sentence(text, &format!("{}: the log cannot answer: {why}.", line.name));
        }
    }
}

fn agreement(text: &mut String, report: &Report) {
    let Agreement { same_instance, same_model, reproduced, not_replayed } = report.agreement;
    let percent =
        |share: Option<f64>| share.map_or_else(|| String::from("-"), |s| format!("{:.1}%", 100.0 * s));
    let _infallible = writeln!(
        text,
        "\nAGREEMENT: {} of the new choices are the logged instance, {} its model.\n  \
         Of all requests, {} go the same way again when the log's own policy is replayed unchanged;\n  \
         for {} the log cannot tell.",
        percent(same_instance),
        percent(same_model),
        percent(reproduced),
        percent(not_replayed)
    );
    if report.calibration.is_empty() {
        return;
    }
    let _infallible = writeln!(
        text,
        "\nCALIBRATION: predicted against observed on the logged choices\n  {:16} {:>12} {:>12} {:>SIGNED$} {:>10} {:>8}",
        "", "predicted", "observed", "difference [95%]", "rel. error", "rows"
    );
    for line in &report.calibration {
        let difference = &line.difference;
        let _infallible = writeln!(
            text,
            "  {:16} {:>12} {:>12} {:>SIGNED$} {:>10} {:>8}",
            line.name,
            number(line.predicted),
            number(line.observed),
            interval(difference.mean, difference.low, difference.high),
            percent(line.relative_error),
            line.rows
        );
    }
}

fn cell(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Estimate(e) => interval(e.mean, e.low, e.high),
        Verdict::CannotAnswer(why) if why.len() < CELL => why.clone(),
        Verdict::CannotAnswer(_) => String::from("cannot answer"),
    }
}

/// Writes a sentence in lines that fit the terminal, indented by two.
fn sentence(text: &mut String, sentence: &str) {
    let mut column = 0;
    for word in sentence.split_whitespace() {
        let length = word.chars().count();
        if column == 0 || column + 1 + length > WIDTH {
            text.push_str(if column == 0 { "  " } else { "\n  " });
            column = 2 + length;
        } else {
            text.push(' ');
            column += 1 + length;
        }
        text.push_str(word);
    }
    text.push('\n');
}

fn interval(mean: f64, low: f64, high: f64) -> String {
    format!("{} [{}, {}]", number(mean), number(low), number(high))
}

/// Four significant digits.
fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size == 0.0 => String::from("0"),
        _ if size >= 1e5 => format!("{value:.0}"),
        _ if size < 1e-3 => format!("{value:.3e}"),
        _ => {
            let digits = 3 - size.log10().floor() as i32;
            format!("{value:.*}", usize::try_from(digits).unwrap_or(0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_four_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.5, "0.5000"),
            (-12.345_6, "-12.35"),
            (0.000_012_345, "1.234e-5"),
            (123_456.7, "123457"),
            (0.001_5, "0.001500"),
            (1234.5, "1234"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
