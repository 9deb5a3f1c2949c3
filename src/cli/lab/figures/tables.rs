//! The page's tables beside its figures.

use std::{cmp::Ordering, collections::BTreeMap};

use serde_json::{Value, json};

use super::{
    gains::{DELAY, LAMBDA},
    inputs::Inputs,
    look::TASKS,
    paper::{JOINT, best_of},
    routing::RATE,
};
use crate::{
    cli::lab::supplies::SCENARIOS,
    draw::page::{Block, Cell, Table},
    lab::{
        Interval, PredictorChoice, RunLine, TargetRule,
        figures::{Margin, Rivals, Runs, interval, margins as margins_of, mean_margin, relative},
    },
};

/// The paper's table 2: mean scores of its tasks (in the order of `TASKS`) by model, smallest first.
const PAPER_SCORES: [[f64; 3]; 4] =
    [[0.5349, 0.8267, 0.8885], [0.4098, 0.8828, 0.9269], [0.2902, 0.8662, 0.9593], [0.1773, 0.5747, 0.8069]];
/// The axis of how targets grow with the prompt.
const SLOPE: &str = "targets.slope_ms_per_token";
/// The paper's models.
const PAPER_MODELS: [&str; 3] = ["qwen3-0.6b", "qwen3-8b", "qwen3-32b"];
/// The paper's table 1: USD per million prompt and output tokens.
const PAPER_PRICES: [(f64, f64); 3] = [(0.044, 0.173), (0.072, 0.287), (0.287, 0.640)];

/// Writes a share as a percentage with its sign where it is negative.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0).replace('-', "−")
}

fn lead(interval: Interval) -> String {
    let sign = if interval.mean >= 0.0 { "+" } else { "" };
    format!("{sign}{}{}", percent(interval.mean), between(interval, percent))
}

/// Writes the ends of an interval; those of one seed are nowhere.
pub(super) fn ends(interval: Interval, write: fn(f64) -> String) -> String {
    match interval.high - interval.low > 1e-12 {
        true => format!("{} to {}", write(interval.low), write(interval.high)),
        false => String::new(),
    }
}

/// The same in brackets, behind what they are of.
fn between(interval: Interval, write: fn(f64) -> String) -> String {
    let ends = ends(interval, write);
    if ends.is_empty() { ends } else { format!(" ({ends})") }
}

/// Writes a utility with the ends of its interval.
pub(super) fn with_ends(utility: Interval) -> String {
    format!("{}{}", plain(utility.mean), between(utility, plain))
}

/// Writes a margin: the ratio where there is one, then the difference; `named` adds over whom.
fn margin(margin: &Margin, named: bool) -> String {
    let of = if named { format!(", {}", margin.over) } else { String::new() };
    let ratio = margin.lead.map_or_else(|| String::from("rival not above 0"), lead);
    let sign = if margin.difference.mean >= 0.0 { "+" } else { "" };
    format!("{ratio}; {sign}{}{of}", plain(margin.difference.mean))
}

/// Writes a utility.
pub(super) fn plain(value: f64) -> String {
    format!("{value:.3}").replace('-', "−")
}

/// Builds a table, or says that there is nothing for it yet.
pub(super) fn table(caption: &str, head: &[&str], rows: Vec<Vec<Cell>>) -> Block {
    if rows.is_empty() {
        return Block::Text(format!("{caption} Not measured yet."));
    }
    let head = head.iter().map(|h| (*h).to_owned()).collect();
    Block::Table(Table { caption: caption.into(), head, rows })
}

/// Builds the margins under Poisson arrivals and under bursts.
pub(super) fn margins(inputs: &Inputs) -> Vec<Block> {
    let poisson = Runs::of(&inputs.lines, "poisson");
    let bursty = Runs::of(&inputs.lines, "bursty");
    let mut blocks = vec![leads(
        "BEAR's lead in OnTimeUtility under Poisson arrivals: the ratio with its 95% interval over seeds, then the \
         difference. The best baseline is the one with the most mean utility over these very seeds, so a lead over \
         it is, if anything, too small. The paper: +63% over the joint routers on average, at most +74% at 8.9 \
         requests/s, +30.5% over the best baseline.",
        &poisson,
    )];
    for ratio in bursty.places(super::routing::RATIO) {
        let runs = bursty.at(super::routing::RATIO, &json!(ratio));
        blocks.push(leads(&format!("The same under bursts, r = {ratio}."), &runs));
    }
    blocks
}

fn leads(caption: &str, runs: &Runs<'_>) -> Block {
    let single = |label: &'static str| margins_of(runs, RATE, "bear", Rivals::Each(&[label]));
    let columns = [
        single("route-balance"),
        single("score"),
        margins_of(runs, RATE, "bear", Rivals::Each(&JOINT)),
        best_of(runs, RATE, true),
        best_of(runs, RATE, false),
    ];
    let cell = |found: Option<&Margin>, named: bool| {
        Cell::words(found.map_or_else(String::new, |found| margin(found, named)))
    };
    let rates = runs.places(RATE);
    let mut rows: Vec<Vec<Cell>> = rates
        .iter()
        .map(|rate| {
            let mut row = vec![Cell::number(format!("{rate}"))];
            row.extend(
                columns
                    .iter()
                    .enumerate()
                    .map(|(i, column)| cell(column.iter().find(|m| (m.x - rate).abs() < 1e-9), i >= 3)),
            );
            row
        })
        .collect();
    if !rows.is_empty() {
        let means = columns.iter().map(|c| Cell::words(mean_margin(c).map_or_else(String::new, lead)));
        rows.push(std::iter::once(Cell::words("mean")).chain(means).collect());
    }
    let head = [
        "Requests/s",
        "over RouteBalance",
        "over SCORE",
        "over both",
        "over the best of the paper's seven",
        "over the best of all",
    ];
    table(caption, &head, rows)
}

/// Builds the table of what rolling forward and the ledger are worth.
pub(super) fn staleness_parts(inputs: &Inputs) -> Vec<Block> {
    let runs = Runs::of(&inputs.lines, "staleness-parts").router("bear");
    let delays = runs.places(DELAY);
    let mut rows = Vec::new();
    for (forward, ledger) in [(true, true), (false, true), (true, false), (false, false)] {
        let part = runs.at("snapshots.roll_forward", &forward.into()).at("snapshots.ledger", &ledger.into());
        if part.is_empty() {
            continue;
        }
        let utility = part.series(DELAY, |m| m.on_time_utility);
        let kept = relative(&part, DELAY, delays.first().copied().unwrap_or(0.0), |m| m.on_time_utility);
        let on = |on: bool| Cell::words(if on { "on" } else { "off" });
        let mut row = vec![on(forward), on(ledger)];
        for delay in &delays {
            let value = utility.iter().flat_map(|s| &s.points).find(|p| (p.x - delay).abs() < 1e-9);
            let ratio = kept.iter().find(|p| (p.x - delay).abs() < 1e-9);
            row.push(Cell::number(match (value, ratio) {
                (Some(v), Some(r)) => format!("{:.3} ({})", v.y.mean, percent(r.y.mean)),
                _ => String::new(),
            }));
        }
        rows.push(row);
    }
    let mut head = vec![String::from("Rolled forward"), String::from("Ledger")];
    head.extend(delays.iter().map(|d| format!("{d} ms")));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    vec![table(
        "What rolling a snapshot forward and the ledger are worth: OnTimeUtility by snapshot delay, and its share \
         of that with fresh snapshots.",
        &head,
        rows,
    )]
}

/// Builds the tables of wrong calibration and of predictors from another mix.
pub(super) fn robustness(inputs: &Inputs) -> Vec<Block> {
    let misfit = Runs::of(&inputs.lines, "misfit");
    let mut cases = Vec::new();
    for factor in misfit.places("misfit.batch_time_factor") {
        for wrong in [false, true] {
            let runs = misfit.at("misfit.batch_time_factor", &json!(factor));
            let runs = runs.at("misfit.wrong_async", &Value::Bool(wrong));
            cases.push((format!("β × {factor}"), if wrong { "wrong" } else { "right" }, runs));
        }
    }
    let rows = cases
        .iter()
        .filter(|(_, _, runs)| !runs.is_empty())
        .flat_map(|(beta, flag, runs)| claims(runs, RATE, &[Cell::words(beta.clone()), Cell::words(*flag)]));
    let head: Vec<&str> =
        ["Batch times", "Asynchronous flag", "Requests/s"].into_iter().chain(CLAIM).collect();
    let other = Runs::of(&inputs.lines, "other-mix");
    vec![
        table("The claims with batch times off and the asynchronous flag wrong.", &head, rows.collect()),
        table(
            "The claims with predictors trained on another mix of tasks.",
            &head[2..],
            claims(&other, RATE, &[]),
        ),
    ]
}

/// Builds the tables of what the margins depend on.
pub(super) fn reasons(inputs: &Inputs) -> Vec<Block> {
    let load = Runs::of(&inputs.lines, "load");
    let weights = Runs::of(&inputs.lines, "weights");
    let rows = weights.places(SLOPE).into_iter().flat_map(|slope| {
        claims(&weights.at(SLOPE, &json!(slope)), LAMBDA, &[Cell::number(format!("{slope}"))])
    });
    let heads = [
        ["Requests/s"].into_iter().chain(CLAIM).collect::<Vec<&str>>(),
        ["Target, ms a prompt token", "λ, per USD"].into_iter().chain(CLAIM).collect(),
    ];
    vec![
        table("The margins as the pool fills up.", &heads[0], claims(&load, RATE, &[])),
        table(
            "The margins with cost weighing nothing (λ = 0) and with targets that grow with the prompt.",
            &heads[1],
            rows.collect(),
        ),
    ]
}

/// Columns of [`claims`] after the place.
const CLAIM: [&str; 4] = ["BEAR", "its attainment", "over both joint routers", "over the best baseline"];

/// Returns rows of BEAR's utility, attainment and margins along an axis.
fn claims(runs: &Runs<'_>, axis: &str, first: &[Cell]) -> Vec<Vec<Cell>> {
    let joint = margins_of(runs, axis, "bear", Rivals::Each(&JOINT));
    let best = best_of(runs, axis, false);
    let at = |margins: &[Margin], rate: f64, named: bool| {
        let found = margins.iter().find(|m| (m.x - rate).abs() < 1e-9);
        let text = found.map_or_else(String::new, |found| margin(found, named));
        if named { Cell::words(text) } else { Cell::number(text) }
    };
    let row = |rate: f64| {
        let here = runs.router("bear").at(axis, &json!(rate));
        let utility = here.metric(|m| m.on_time_utility);
        let met = here.metric(|m| m.attainment);
        let utility = utility.map_or_else(String::new, with_ends);
        let mut row = first.to_vec();
        row.extend([
            Cell::number(format!("{rate}")),
            Cell::number(utility),
            Cell::number(met.map_or_else(String::new, |met| percent(met.mean))),
            at(&joint, rate, false),
            at(&best, rate, true),
        ]);
        row
    };
    runs.places(axis).into_iter().map(row).collect()
}

/// Builds the tables of scores, prices and settings.
pub(super) fn world(inputs: &Inputs) -> Vec<Block> {
    vec![scores(inputs), prices(inputs), settings(inputs)]
}

fn scores(inputs: &Inputs) -> Block {
    let runs = Runs::of(&inputs.lines, "requests").router("round-robin");
    let score = |task: &str, model: &str| {
        let all = runs.lines().iter().flat_map(|l| &l.requests);
        let found: Vec<f64> =
            all.filter(|r| r.task == task && r.model == model).filter_map(|r| r.score).collect();
        interval(&found).map(|i| i.mean)
    };
    let rows = if runs.is_empty() { &[][..] } else { TASKS };
    let rows = rows.iter().zip(PAPER_SCORES).map(|((task, data, _), paper)| {
        let mut row = vec![Cell::words(format!("{} ({data})", task.replace('-', " ")))];
        for (model, paper) in PAPER_MODELS.iter().zip(paper) {
            row.push(Cell::number(percent(paper)));
            row.push(Cell::number(score(task, model).map_or_else(String::new, percent)));
        }
        row
    });
    let head = ["Task", "0.6B, paper", "ours", "8B, paper", "ours", "32B, paper", "ours"];
    table(
        "Mean scores by task and model: the paper's table 2 and those of the requests that round-robin, which \
         does not choose, sent to each model.",
        &head,
        rows.collect(),
    )
}

fn prices(inputs: &Inputs) -> Block {
    let mut rows = Vec::new();
    if let Some(line) = Runs::of(&inputs.lines, "poisson").lines().first() {
        for model in &line.setting.pool {
            let paper = PAPER_MODELS.iter().zip(PAPER_PRICES).find(|(name, _)| {
                model.profile.strip_prefix(**name).is_some_and(|rest| rest.starts_with('-'))
            });
            let said = paper.map_or_else(String::new, |(_, (i, o))| format!("{i} / {o}"));
            let ours = format!("{} / {}", model.price.input_usd_per_mtok, model.price.output_usd_per_mtok);
            rows.push(vec![
                Cell::words(model.profile.clone()),
                Cell::number(model.replicas.to_string()),
                Cell::number(said),
                Cell::number(ours),
            ]);
        }
    }
    let head = ["Engine", "Instances", "Paper", "Ours"];
    table("Prices, USD per million prompt and output tokens (the paper's table 1).", &head, rows)
}

fn settings(inputs: &Inputs) -> Block {
    let mut names: Vec<&str> = inputs.lines.iter().map(|line| line.key.scenario.as_str()).collect();
    names.sort_by_key(|name| (SCENARIOS.iter().position(|known| known.name == *name), *name));
    names.dedup();
    let rows = names.iter().filter_map(|name| setting(name, &Runs::of(&inputs.lines, name)));
    let head = [
        "Scenario",
        "Arrivals, and what varies",
        "TTFT target",
        "λ, per USD",
        "Measured",
        "Predictors",
        "Runs",
        "Seeds",
    ];
    table(
        "Settings, as the runs themselves hold them. TTFT targets are min(cap, max(floor, u + (base + slope · prompt) \
         · v)) of the paper's A.2; it does not state the slope's unit. Here the prompt counts in tokens and the slope \
         is milliseconds a token: with 0.0035 the cap of 1120 ms is out of reach for every prompt under some 270,000 \
         tokens.",
        &head,
        rows.collect(),
    )
}

fn setting(name: &str, runs: &Runs<'_>) -> Option<Vec<Cell>> {
    let all = |of: &dyn Fn(&RunLine) -> String| {
        let mut found: Vec<String> = runs.lines().iter().map(|line| of(line)).collect();
        found.sort();
        found.dedup();
        found.join("; ")
    };
    let first = runs.lines().first()?;
    let mut varied: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for (axis, value) in runs.lines().iter().flat_map(|line| &line.key.point) {
        let values = varied.entry(axis).or_default();
        if !values.contains(&value) {
            values.push(value);
        }
    }
    let axes = varied.into_iter().map(|(axis, mut values)| {
        values.sort_by(|a, b| a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(Ordering::Equal));
        format!("; {axis}: {}", values.iter().map(|v| v.to_string()).collect::<Vec<_>>().join(", "))
    });
    let arrivals = match (first.key.point.contains_key(RATE), first.setting.arrivals.options.get("rate_qps"))
    {
        (false, Some(rate)) => format!("{}, {rate} requests/s", first.setting.arrivals.name),
        _ => first.setting.arrivals.name.clone(),
    };
    let predictor = |choice: &PredictorChoice| match choice {
        PredictorChoice::Bundle(name) => format!("bundle {name}"),
        PredictorChoice::Mean => "means".into(),
        PredictorChoice::Oracle => "the truth".into(),
    };
    Some(vec![
        Cell::words(name),
        Cell::words(arrivals + &axes.collect::<String>()),
        Cell::words(all(&|line| target(&line.setting.targets))),
        Cell::number(all(&|line| line.setting.lambda_per_usd.to_string())),
        Cell::number(format!("{} s after {} s", first.setting.duration_s, first.setting.warmup_s)),
        Cell::words(all(&|line| predictor(&line.setting.predictor))),
        Cell::number(runs.lines().len().to_string()),
        Cell::words(runs.seeds().iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    ])
}

fn target(targets: &TargetRule) -> String {
    if !targets.enabled {
        return String::from("none");
    }
    format!(
        "{} ms + {} ms a prompt token, {} to {} ms",
        targets.base_ms, targets.slope_ms_per_token, targets.least_ms, targets.most_ms
    )
}
