//! `bear lab tune`: the λ, δ and options that serve a stated goal best, with what they trade.

use std::{
    convert::Infallible,
    fmt::Write as _,
    io::{self, IsTerminal as _},
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::{supplies, workers};

use crate::{
    cli::print,
    lab::{
        LabError, Metrics, Scenario,
        fleet::{self, Supplies},
        tune::{self, Advice, Effort, Goal, Met, Objective, Plan, Range, Run, Trial},
    },
    policy::PolicyConfig,
};

/// Finds the λ, δ and policy options that meet stated goals best, by simulating a scenario.
///
/// Prints a `routing` section to paste, and what the tried points trade. What is found is judged, beside the
/// scenario as it stands, on fresh seeds that had no part in the search: the best of many points on the same seeds
/// is in part the luckiest. Utilities are valued at the scenario's own λ throughout; what is turned is the λ that
/// the router weighs with. A knob that changes nothing stays as it is. The scenario's axes are left out: it is
/// played as its file stands.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    bear lab tune poisson --goal 'attainment>=0.95'\n  \
    bear lab tune day.yaml --goal 'cost_usd<=0.0005' --vary lambda_per_usd=50..2000 --json\n\n\
    No point meets the goals on fresh seeds: exit code 1, and the nearest one is shown.")]
pub struct Args {
    /// A built-in scenario by name, or a YAML file.
    #[arg(value_name = "SCENARIO")]
    scenario: String,
    /// What must hold, such as 'attainment>=0.95' or 'cost_usd<=0.0005'; may be given again.
    #[arg(long = "goal", value_name = "GOAL", value_parser = Goal::parse)]
    goals: Vec<Goal>,
    /// What to make as large as can be.
    #[arg(long, value_name = "METRIC", default_value = "on_time_utility")]
    maximise: String,
    /// What to make as small as can be, instead.
    #[arg(long, value_name = "METRIC", conflicts_with = "maximise")]
    minimise: Option<String>,
    /// A knob with its ends: lambda_per_usd, delta_per_s or an option of the policy; may be given again. With `:int`
    /// it takes whole numbers only. Absent: lambda_per_usd=50..2000 and delta_per_s=0..5.
    #[arg(long = "vary", value_name = "KEY=LOW..HIGH[:int]", value_parser = Range::parse)]
    ranges: Vec<Range>,
    /// The router to tune, by its label; absent: `bear`, or the only one.
    #[arg(long, value_name = "LABEL")]
    router: Option<String>,
    /// Seeds 1 to N instead of the scenario's own; what is found is judged on others.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// Runs at once; absent: one a core. The result is the same whatever it is.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Plays a scenario's only router under a seed.
fn simulate(run: &Run, supplies: &Supplies) -> Result<Metrics, LabError> {
    let Run { scenario, seed } = run;
    let router = scenario.routers.first().ok_or_else(|| LabError::Invalid {
        place: scenario.name.clone(),
        key: String::from("routers"),
        rule: String::from("is empty; name at least one"),
    })?;
    fleet::run(scenario, router, *seed, supplies).map(|run| run.metrics)
}

/// Plays runs on so many threads; metrics come in the order of the runs, and of several errors that of the first.
fn in_parallel(
    runs: &[Run],
    workers: usize,
    play: impl Fn(&Run) -> Result<Metrics, LabError> + Sync,
) -> Result<Vec<Metrics>, LabError> {
    let mut played: Vec<(usize, Result<Metrics, LabError>)> = Vec::with_capacity(runs.len());
    let Ok(()) = workers::on_each(runs, workers, play, |i, metrics| {
        played.push((i, metrics));
        Ok::<(), Infallible>(())
    });
    played.sort_by_key(|(i, _)| *i);
    played.into_iter().map(|(_, metrics)| metrics).collect()
}

/// Runs `bear lab tune`.
///
/// # Errors
/// A scenario that cannot be read or played, or goals that no point meets.
pub fn run(args: Args) -> anyhow::Result<()> {
    let scenario = supplies::scenario(&args.scenario)?;
    let supplies = supplies::load(std::slice::from_ref(&scenario))?;
    let objective = match &args.minimise {
        Some(metric) => Objective::new(metric, false)?,
        None => Objective::new(&args.maximise, true)?,
    };
    let plan = Plan {
        router: router(&scenario, args.router.as_deref())?,
        objective,
        goals: args.goals,
        ranges: match args.ranges {
            none if none.is_empty() => vec![Range::default_lambda(), Range::default_delta()],
            ranges => ranges,
        },
        seeds: args.seeds.map_or_else(|| scenario.seeds.clone(), |seeds| (1..=seeds).collect()),
    };
    let progress = progress();
    let workers = workers::count(args.jobs);
    let mut counted = |runs: &[Run]| {
        in_parallel(runs, workers, |run| {
            let metrics = simulate(run, &supplies);
            progress.inc(1);
            metrics
        })
    };
    let advice = tune::search(&scenario, &plan, &mut counted)?;
    progress.finish_and_clear();
    if args.json {
        print(&serde_json::to_string_pretty(&Document {
            plan: &plan,
            routing: routing(&scenario, &plan, &advice),
            advice: &advice,
        })?)?;
    } else {
        print(&render(&scenario, &plan, &advice)?)?;
    }
    if advice.best.is_none() {
        bail!("no point meets the goals (hint: widen a range with --vary, loosen a goal, or add instances)");
    }
    Ok(())
}

#[derive(Serialize)]
struct Document<'a> {
    plan: &'a Plan,
    routing: Routing,
    advice: &'a Advice,
}

/// The part of the configuration that was tuned.
#[derive(Serialize)]
struct Routing {
    policy: PolicyConfig,
    lambda_per_usd: f64,
    delta_per_s: f64,
}

#[derive(Serialize)]
struct Section {
    routing: Routing,
}

/// Returns the place of the router to tune.
fn router(scenario: &Scenario, label: Option<&str>) -> anyhow::Result<usize> {
    let labels: Vec<&str> = scenario.routers.iter().map(|router| router.label.as_str()).collect();
    let wanted = match (label, &labels[..]) {
        (Some(label), _) => label,
        (None, [only]) => only,
        (None, _) => "bear",
    };
    let found = labels.iter().position(|label| *label == wanted);
    found.with_context(|| {
        format!(
            "scenario `{}` has no router `{wanted}`; it has {} (--router)",
            scenario.name,
            labels.join(", ")
        )
    })
}

/// A line on a terminal that counts the simulations; nothing elsewhere.
fn progress() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {human_pos} simulations, {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// Returns the section of the best point, the nearest one where none meets the goals.
fn routing(scenario: &Scenario, plan: &Plan, advice: &Advice) -> Routing {
    let turned = tune::turned(scenario, &plan.without(&advice.inert), &advice.judged.values);
    // A turned scenario has one router.
    let router = turned.routers.into_iter().next();
    Routing {
        lambda_per_usd: router.as_ref().and_then(|r| r.lambda_per_usd).unwrap_or(scenario.lambda_per_usd),
        delta_per_s: router.as_ref().and_then(|r| r.delta_per_s).unwrap_or(scenario.delta_per_s),
        policy: router.map(|router| router.policy).unwrap_or_default(),
    }
}

fn render(scenario: &Scenario, plan: &Plan, advice: &Advice) -> anyhow::Result<String> {
    let mut text = String::with_capacity(4096);
    let aim = if plan.objective.maximise { "most" } else { "least" };
    let goals: Vec<String> = plan.goals.iter().map(goal_text).collect();
    // Writing into a text cannot fail.
    let _infallible = writeln!(
        text,
        "Scenario {}, router {}: {aim} {}{}; {} simulations",
        scenario.name,
        scenario.routers[plan.router].label,
        plan.objective.metric,
        if goals.is_empty() { String::new() } else { format!(" with {}", goals.join(" and ")) },
        advice.runs
    );
    if !advice.inert.is_empty() {
        let _infallible = writeln!(
            text,
            "{} changes nothing under this policy and stays as it is.",
            advice.inert.join(", ")
        );
    }
    let seeds: Vec<String> = advice.fresh_seeds.iter().map(u64::to_string).collect();
    let _infallible = writeln!(
        text,
        "Means over the fresh seeds {}, which had no part in the search, with 95% intervals:",
        seeds.join(", ")
    );
    let head = match (advice.best.is_some(), advice.found.meets()) {
        (true, _) => "The best point that meets the goals:",
        (false, true) => "NO POINT MEETS THE GOALS on fresh seeds. This one did in the search:",
        (false, false) => "NO POINT MEETS THE GOALS. The nearest one:",
    };
    let _infallible = writeln!(text, "\n{head}");
    describe(&mut text, plan, &advice.keys, &advice.judged);
    if let Some(present) = &advice.present {
        text.push_str("The scenario as it stands:\n");
        describe(&mut text, plan, &advice.keys, present);
    }
    let present = advice.present.as_ref();
    if present.is_some_and(|present| present.values == advice.judged.values) {
        text.push_str("They are the same: nothing is to be changed.\n");
    } else if let Some(gain) = &advice.gain {
        let _infallible = writeln!(
            text,
            "The first less the second, seed by seed: {} {} [{}, {}]{}",
            plan.objective.metric,
            short(gain.mean),
            short(gain.low),
            short(gain.high),
            if gain.low <= 0.0 && gain.high >= 0.0 { ", which may be chance" } else { "" }
        );
    }
    let section = Section { routing: routing(scenario, plan, advice) };
    let _infallible = writeln!(text, "\n{}", serde_saphyr::to_string(&section)?.trim_end());
    table(&mut text, advice);
    Ok(text)
}

fn goal_text(goal: &Goal) -> String {
    format!("{}{}{}", goal.metric, if goal.at_least { ">=" } else { "<=" }, goal.bound)
}

fn describe(text: &mut String, plan: &Plan, keys: &[String], trial: &Trial) {
    let values: Vec<String> =
        keys.iter().zip(&trial.values).map(|(key, value)| format!("{key}={value}")).collect();
    let _infallible =
        writeln!(text, "  {}", if values.is_empty() { String::from("-") } else { values.join(", ") });
    for (name, interval) in &trial.metrics {
        let of_metric = plan.goals.iter().zip(&trial.goals).filter(|(goal, _)| goal.metric == *name);
        let met: Vec<String> = of_metric
            .map(|(goal, met)| match met {
                Met::Surely => format!("  meets {}", goal_text(goal)),
                Met::OnAverage => format!("  meets {} on average, not surely", goal_text(goal)),
                Met::Not => format!("  MISSES {}", goal_text(goal)),
            })
            .collect();
        let _infallible = writeln!(
            text,
            "  {name:20} {:>12} [{}, {}]{}",
            short(interval.mean),
            short(interval.low),
            short(interval.high),
            met.concat()
        );
    }
}

/// Writes the tried points: of those that ran in full `>` the one above and `*` those that no other beats in
/// everything asked about; then those that ran shorter.
fn table(text: &mut String, advice: &Advice) {
    let names: Vec<&String> = advice.found.metrics.keys().collect();
    let head = |text: &mut String| {
        text.push_str("  ");
        for key in &advice.keys {
            let _infallible = write!(text, "{key:>15}");
        }
        for name in &names {
            let _infallible = write!(text, "{name:>17}");
        }
    };
    let values = |text: &mut String, mark: char, trial: &Trial| {
        let _infallible = write!(text, "{mark} ");
        for value in &trial.values {
            let _infallible = write!(text, "{value:>15}");
        }
        for name in &names {
            let mean = trial.metrics.get(*name).map_or_else(|| String::from("-"), |i| short(i.mean));
            let _infallible = write!(text, "{mean:>17}");
        }
    };
    text.push_str(
        "\nWhat the points trade, over the seeds of the search (> shown above, * beaten by no other in everything \
         asked about)\n",
    );
    head(text);
    text.push_str("  goals\n");
    for trial in &advice.curve {
        let mark = match (trial.values == advice.found.values, trial.on_front) {
            (true, _) => '>',
            (_, true) => '*',
            _ => ' ',
        };
        values(text, mark, trial);
        text.push_str(if trial.meets() { "  met\n" } else { "  -\n" });
    }
    if advice.scouted.is_empty() {
        return;
    }
    text.push_str("\nPoints that ran shorter or over one seed, not to be compared with those above\n");
    head(text);
    text.push_str("  runs\n");
    for trial in &advice.scouted {
        values(text, ' ', trial);
        text.push_str(if trial.effort == Effort::Short { "  a quarter\n" } else { "  one seed\n" });
    }
}

fn short(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-3 { format!("{value:.3e}") } else { format!("{value:.4}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> Scenario {
        let text = "
name: formula
pool: [{profile: x, price: {input_usd_per_mtok: 1, output_usd_per_mtok: 1}}]
workload: {name: none}
arrivals: {name: none}
duration_s: 1200
delta_per_s: 0.7
routers:
  - {label: rr, policy: {name: round-robin}}
  - {label: bear, policy: {name: bear}}
";
        Scenario::parse(text, "formula").unwrap()
    }

    fn advice(plan: &Plan) -> Advice {
        let formula = |run: &Run| {
            let off = (run.scenario.routers[0].lambda_per_usd.unwrap() / 300.0).ln();
            let on_time_utility = 0.6 - 0.05 * off * off + 1e-3 * run.seed as f64;
            Metrics { on_time_utility, ..Metrics::default() }
        };
        let mut formula = |runs: &[Run]| Ok(runs.iter().map(formula).collect());
        tune::search(&scenario(), plan, &mut formula).unwrap()
    }

    fn plan(goals: &[&str]) -> Plan {
        Plan {
            router: 1,
            objective: Objective::new("on_time_utility", true).unwrap(),
            goals: goals.iter().map(|goal| Goal::parse(goal).unwrap()).collect(),
            ranges: vec![Range::default_lambda(), Range::default_delta()],
            seeds: vec![1, 2],
        }
    }

    #[test]
    fn the_section_can_be_pasted() {
        let plan = plan(&["on_time_utility>=0.5"]);
        let advice = advice(&plan);
        let text = render(&scenario(), &plan, &advice).unwrap();
        let begin = text.find("routing:").unwrap();
        let section = text[begin..].split("\n\n").next().unwrap();
        let config = crate::config::parse(std::path::Path::new("pasted"), section).unwrap().config;
        assert_eq!(config.routing.lambda_per_usd, advice.best.unwrap().values[0]);
        assert_eq!(config.routing.policy.name, "bear");
        assert_eq!(config.routing.delta_per_s, 0.7, "what changes nothing stays");
        assert!(
            text.contains("meets on_time_utility>=0.5") && text.contains("delta_per_s changes nothing"),
            "{text}"
        );
    }

    #[test]
    fn goals_out_of_reach_are_shown_as_such() {
        let plan = plan(&["on_time_utility>=0.9"]);
        let text = render(&scenario(), &plan, &advice(&plan)).unwrap();
        assert!(text.contains("NO POINT MEETS") && text.contains("MISSES on_time_utility>=0.9"), "{text}");
    }

    #[test]
    fn runs_come_in_order_whatever_the_number_of_threads() {
        let runs: Vec<Run> = (0..40).map(|seed| Run { scenario: scenario(), seed }).collect();
        let play = |run: &Run| {
            // Even seeds take longer.
            std::thread::sleep(Duration::from_micros(if run.seed.is_multiple_of(2) { 300 } else { 0 }));
            Ok(Metrics { requests: run.seed, ..Metrics::default() })
        };
        for workers in [0, 1, 7, 100] {
            let metrics = in_parallel(&runs, workers, play).unwrap();
            assert!(metrics.iter().map(|metrics| metrics.requests).eq(0..40), "{workers}");
        }
        let fail = |run: &Run| match run.seed {
            ..11 => play(run),
            seed => Err(LabError::Data { file: seed.to_string(), what: String::new() }),
        };
        assert!(in_parallel(&runs, 7, fail).unwrap_err().to_string().contains("`11`"));
        assert!(in_parallel(&[], 7, play).unwrap().is_empty());
    }

    #[test]
    fn the_router_is_found_by_label() {
        assert_eq!(router(&scenario(), None).unwrap(), 1);
        assert_eq!(router(&scenario(), Some("rr")).unwrap(), 0);
        assert!(router(&scenario(), Some("x")).unwrap_err().to_string().contains("rr, bear"));
    }
}
