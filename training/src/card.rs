//! A bundle's `card.md`: the page that says what it is, from the manifest.

use std::fmt::Write as _;

use bear::predict::{Manifest, SplitMetrics};

/// Writes the card of a bundle.
#[must_use]
pub(crate) fn write(manifest: &Manifest) -> String {
    let mut card = format!("# Bundle `{}`\n\n", manifest.name);
    if manifest.synthetic {
        card.push_str(
            "**Synthetic.** Trained on evaluations that a seeded generator wrote, to show the whole path at work. Its\n\
             numbers say nothing about the real models; `bear serve` refuses it unless `allow_synthetic` is set.\n\n",
        );
    }
    let data = &manifest.data;
    let _ = writeln!(
        card,
        "Made by {} from {} evaluations of {} prompts ({} rows tell the output tokens). Features: `{}`.\n",
        manifest.made_by, data.rows, data.prompts, data.rows_with_output_tokens, manifest.features.version
    );
    card.push_str(
        "| model | parameters (billions) | context (tokens) | rows | mean accuracy | mean output tokens |\n",
    );
    card.push_str("| --- | --- | --- | --- | --- | --- |\n");
    for model in &manifest.models {
        let tokens =
            model.mean_output_tokens.map_or_else(|| String::from("unknown"), |mean| format!("{mean:.1}"));
        let _ = writeln!(
            card,
            "| {} | {} | {} | {} | {:.4} | {tokens} |",
            model.id, model.parameters_b, model.max_model_len, model.rows, model.mean_accuracy
        );
    }
    let metrics = &manifest.quality;
    let _ = writeln!(
        card,
        "\n## Held-out prompts\n\n{} prompts ({} % by a hash of the prompt id) were not trained on. Beside each number\n\
         stands that of predicting the model's training mean. Pair order: of two models that differ on a prompt, how\n\
         often the better (or longer) one is told right.\n",
        metrics.held_out_prompts,
        metrics.held_out_share * 100.0
    );
    card.push_str(
        "| target | rows | MAE | RMSE | R² | pair order |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    let splits = [("accuracy", &metrics.accuracy), ("output tokens", &metrics.output_tokens)];
    for (target, split) in splits {
        card.push_str(&row(target, split.as_ref()));
    }
    let weak: Vec<String> = splits
        .into_iter()
        .filter_map(|(target, split)| Some((target, split.as_ref()?)))
        .flat_map(|(target, split)| unimproved(split).map(move |measure| format!("{measure} of {target}")))
        .collect();
    if !weak.is_empty() {
        let _ = writeln!(card, "\nNo better than the mean: {}.", weak.join(", "));
    }
    card
}

/// Returns the measures in which the bundle does not beat predicting each model's mean.
fn unimproved(split: &SplitMetrics) -> impl Iterator<Item = &'static str> {
    let m = split;
    let measures = [
        ("MAE", m.mae < m.baseline_mae),
        ("RMSE", m.rmse < m.baseline_rmse),
        ("R²", m.r2 > m.baseline_r2),
        ("pair order", m.pair_order > m.baseline_pair_order),
    ];
    measures.into_iter().filter(|(_, better)| !better).map(|(name, _)| name)
}

fn row(target: &str, split: Option<&SplitMetrics>) -> String {
    let Some(m) = split else { return format!("| {target} | none | | | | |\n") };
    format!(
        "| {target} | {} | {:.4} (mean: {:.4}) | {:.4} ({:.4}) | {:.4} ({:.4}) | {:.4} ({:.4}) |\n",
        m.rows,
        m.mae,
        m.baseline_mae,
        m.rmse,
        m.baseline_rmse,
        m.r2,
        m.baseline_r2,
        m.pair_order,
        m.baseline_pair_order
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_that_do_not_beat_the_mean_are_told() {
        let better = SplitMetrics {
            rows: 10,
            mae: 0.1,
            baseline_mae: 0.2,
            rmse: 0.2,
            baseline_rmse: 0.3,
            r2: 0.5,
            baseline_r2: 0.0,
            pair_order: 0.9,
            baseline_pair_order: 0.8,
        };
        assert_eq!(unimproved(&better).count(), 0);
        let even = SplitMetrics { baseline_pair_order: 0.9, baseline_mae: 0.05, ..better };
        assert_eq!(unimproved(&even).collect::<Vec<_>>(), ["MAE", "pair order"]);
    }
}
