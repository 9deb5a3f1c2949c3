//! A decision as a table for a terminal of 120 columns, with a sentence that says why.

use std::fmt::Write as _;

use crate::{
    domain::{Candidate, Decision, Reason},
    gateway::why_ineligible,
};

/// Widest names shown whole, characters; longer ones are cut.
const WIDEST_INSTANCE: usize = 17;
const WIDEST_MODEL: usize = 15;
const WIDEST_SOURCE: usize = 16;

/// Renders a decision: its terms, one line an instance, and why the chosen one was chosen.
#[must_use]
pub(super) fn render(decision: &Decision) -> String {
    let mut text = String::with_capacity(512 + decision.candidates.len() * 128);
    text.push_str(&terms(decision));
    text.push_str("\n\n");
    let instance = width(decision, WIDEST_INSTANCE, "instance", |c| c.instance.as_str());
    let model = width(decision, WIDEST_MODEL, "model", |c| &c.model);
    // Writing into a text cannot fail.
    let _ = writeln!(
        text,
        "  {:instance$} {:model$} {:>6} {:>6} {:>9} {:>8} {:>8} {:>8} {:>8} {:WIDEST_SOURCE$} verdict",
        "instance",
        "model",
        "acc.",
        "tokens",
        "cost USD",
        "utility",
        "wait ms",
        "+prefill",
        "=TTFT",
        "from (age)",
    );
    for row in &decision.candidates {
        let mark = if row.chosen {
            '>'
        } else if row.interchangeable {
            '~'
        } else {
            ' '
        };
        let _ = writeln!(
            text,
            "{mark} {:instance$} {:model$} {:>6} {:>6} {:>9} {:>8} {:>8} {:>8} {:>8} {:WIDEST_SOURCE$} {}",
            cut(row.instance.as_str(), WIDEST_INSTANCE),
            cut(&row.model, WIDEST_MODEL),
            number(row.accuracy, 3),
            number(row.output_tokens, 0),
            number(row.cost_usd, 6),
            number(row.utility, 4),
            number(row.wait_s.map(|s| s * 1e3), 1),
            number(row.prefill_s.map(|s| s * 1e3), 1),
            number(row.ttft_s.map(|s| s * 1e3), 1),
            cut(&source(row), WIDEST_SOURCE),
            verdict(row),
        );
        if let Some(why) = &row.ineligible {
            let _ = writeln!(text, "    not eligible: {}", why_ineligible(why));
        }
    }
    text.push('\n');
    text.push_str(&sentence(decision));
    text.push('\n');
    text
}

fn terms(decision: &Decision) -> String {
    let target = decision.ttft_target_ms.map_or_else(|| "none".to_owned(), |ms| format!("{ms} ms"));
    let mut prompts: Vec<String> = Vec::new();
    let rows = &decision.candidates;
    let alike = rows.windows(2).all(|two| {
        (two[0].prompt_tokens, &two[0].count_source) == (two[1].prompt_tokens, &two[1].count_source)
    });
    for row in rows.iter().take(if alike { 1 } else { rows.len() }) {
        let of = if alike { String::new() } else { format!(" for {}", row.model) };
        let prompt = format!("{} tokens{of} (by {})", row.prompt_tokens, row.count_source);
        if !prompts.contains(&prompt) {
            prompts.push(prompt);
        }
    }
    format!(
        "policy {}, reason {}, lambda {} per USD, delta {} per s, TTFT target {target}\nprompt: {}",
        decision.policy,
        decision.reason.label(),
        decision.lambda_per_usd,
        decision.delta_per_s,
        prompts.join(", ")
    )
}

/// Says why the chosen instance was chosen.
fn sentence(decision: &Decision) -> String {
    let Some(chosen) = decision.chosen() else { return String::from("No instance was chosen.") };
    let who = format!("{} ({})", chosen.instance, chosen.model);
    let among = match decision.ttft_target_ms {
        Some(ms) => format!("of the {} estimated to answer within {ms} ms", in_time(decision)),
        None => String::from("of the eligible"),
    };
    let utility = number(chosen.utility, 4);
    let ttft = number(chosen.ttft_s.map(|s| s * 1e3), 1);
    let mut text = match decision.reason {
        Reason::MaxUtility => format!("{who} has the highest utility, {utility}, {among}."),
        Reason::LeastCost => format!(
            "No accuracy is predicted; {who} costs least, {} USD, {among}.",
            number(chosen.cost_usd, 6)
        ),
        Reason::LeastTtft => {
            format!("No instance is estimated to answer in time; {who} has the least TTFT, {ttft} ms.")
        }
        Reason::Lagrangian => {
            format!("{who} has the highest utility less delta times TTFT: {utility} at {ttft} ms.")
        }
        Reason::Pinned => format!("The request named {}; {who} was taken among its replicas.", chosen.model),
        Reason::RoundRobin => format!("It was the turn of {who}."),
        Reason::ShortestQueue => format!("{who} has the fewest requests waiting and running."),
        Reason::Score => format!("{who} has the best score by the policy's own rule."),
        Reason::LeastLatency => format!("{who} has the least latency by the policy's own measure."),
        Reason::LeastLoad => format!("{who} has the least load by the policy's own measure."),
        Reason::CacheHit => format!("{who} was sent the longest beginning of this prompt before."),
        Reason::Retry => format!("An earlier attempt failed; {who} was taken next."),
    };
    let others = decision.candidates.iter().filter(|row| row.interchangeable && !row.chosen).count();
    if others > 0 {
        let _ = write!(
            text,
            "\n{others} other{} (~) would have done as well.",
            if others == 1 { "" } else { "s" }
        );
    }
    if decision.propensity < 1.0 {
        let _ =
            write!(text, "\nThe same state would give it again with probability {:.2}.", decision.propensity);
    }
    text
}

fn in_time(decision: &Decision) -> usize {
    decision.candidates.iter().filter(|row| row.feasible == Some(true)).count()
}

fn source(row: &Candidate) -> String {
    match (&row.source, row.age_s) {
        (Some(source), Some(age_s)) => format!("{source} ({:.0} ms)", age_s * 1e3),
        (Some(source), None) => source.clone(),
        (None, _) => String::from("-"),
    }
}

fn verdict(row: &Candidate) -> &'static str {
    match (&row.ineligible, &row.no_estimate, row.feasible) {
        (Some(_), ..) => "out",
        (None, Some(_), _) => "never",
        (None, None, Some(true)) => "in time",
        (None, None, Some(false)) => "late",
        (None, None, None) => "-",
    }
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| String::from("-"), |value| format!("{value:.digits$}"))
}

fn width<'a>(
    decision: &'a Decision,
    widest: usize,
    title: &str,
    name: impl Fn(&'a Candidate) -> &'a str,
) -> usize {
    let longest = decision.candidates.iter().map(|row| name(row).chars().count()).max().unwrap_or(0);
    longest.clamp(title.len(), widest)
}

fn cut(name: &str, widest: usize) -> String {
    if name.chars().count() <= widest {
        return name.to_owned();
    }
    name.chars().take(widest - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Ineligible;

    fn row(instance: &str, model: &str) -> Candidate {
        Candidate {
            instance: instance.into(),
            model: model.into(),
            prompt_tokens: 900,
            count_source: "tokenizer".into(),
            accuracy: Some(0.81),
            output_tokens: Some(213.4),
            cost_usd: Some(0.000_123),
            utility: Some(0.7485),
            predictor: "bundle".into(),
            wait_s: Some(0.012),
            prefill_s: Some(0.0455),
            ttft_s: Some(0.0575),
            spread_s: None,
            least_ttft_s: None,
            source: Some("bea".into()),
            no_estimate: None,
            age_s: Some(0.02),
            ineligible: None,
            feasible: Some(true),
            interchangeable: false,
            chosen: false,
        }
    }

    fn decision() -> Decision {
        let out = Candidate {
            ineligible: Some(Ineligible::Modality { modality: "image".into() }),
            feasible: None,
            ttft_s: None,
            wait_s: None,
            prefill_s: None,
            source: None,
            ..row("an-instance-with-a-very-long-name", "a-model-with-a-very-long-name")
        };
        Decision {
            request_id: "r".into(),
            attempt: 1,
            requested_model: None,
            predictor_version: None,
            policy: "bear".into(),
            reason: Reason::MaxUtility,
            lambda_per_usd: 500.0,
            delta_per_s: 0.0,
            ttft_target_ms: Some(500.0),
            propensity: 1.0,
            believed_latency_s: None,
            candidates: vec![
                Candidate { chosen: true, interchangeable: true, ..row("big-0", "qwen3-8b") },
                Candidate { interchangeable: true, ..row("big-1", "qwen3-8b") },
                out,
            ],
        }
    }

    #[test]
    fn a_decision_reads_as_a_table_and_a_sentence() {
        insta::assert_snapshot!(render(&decision()), @r"
        policy bear, reason max-utility, lambda 500 per USD, delta 0 per s, TTFT target 500 ms
        prompt: 900 tokens (by tokenizer)

          instance          model             acc. tokens  cost USD  utility  wait ms +prefill    =TTFT from (age)       verdict
        > big-0             qwen3-8b         0.810    213  0.000123   0.7485     12.0     45.5     57.5 bea (20 ms)      in time
        ~ big-1             qwen3-8b         0.810    213  0.000123   0.7485     12.0     45.5     57.5 bea (20 ms)      in time
          an-instance-with… a-model-with-a…  0.810    213  0.000123   0.7485        -        -        - -                out
            not eligible: takes no image input

        big-0 (qwen3-8b) has the highest utility, 0.7485, of the 2 estimated to answer within 500 ms.
        1 other (~) would have done as well.
        ");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let text = render(&decision());
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }

    #[test]
    fn every_reason_names_the_chosen_one_and_is_stored_under_its_label() {
        for reason in [
            Reason::MaxUtility,
            Reason::LeastCost,
            Reason::LeastTtft,
            Reason::Lagrangian,
            Reason::Pinned,
            Reason::RoundRobin,
            Reason::ShortestQueue,
            Reason::Score,
            Reason::LeastLatency,
            Reason::LeastLoad,
            Reason::CacheHit,
            Reason::Retry,
        ] {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.label());
            let text = sentence(&Decision { reason, propensity: 0.5, ..decision() });
            assert!(text.contains("big-0 (qwen3-8b)") && text.contains("probability 0.50"), "{text}");
        }
    }
}
