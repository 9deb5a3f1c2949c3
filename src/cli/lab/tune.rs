//! `bear lab tune`: the λ, δ and options that serve a stated goal best, with what they trade.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal as _},
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::supplies;

use crate::{
    cli::print,
    lab::{
        LabError, Metrics, Scenario,
        fleet::{self, Supplies},
        tune::{self, Advice, Effort, Goal, Objective, Plan, Range, Trial},
    },
    policy::PolicyConfig,
};

/// Finds the λ, δ and policy options that meet stated goals best, by simulating a scenario.
///
/// Prints a `routing` section to paste, and what the tried points trade. Utilities are valued at the scenario's
/// own λ throughout; what is turned is the λ that the router weighs with. The scenario's axes are left out: it
/// is played as its file stands.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    bear lab tune poisson --goal 'attainment>=0.95'\n  \
    bear lab tune day.yaml --goal 'cost_usd<=0.0005' --vary lambda_per_usd=50..2000 --json\n\n\
    No point meets the goals: exit code 1, and the nearest one is shown.")]
pub struct Args {
    /// A built-in scenario by name, or a YAML file.
    #[arg(value_name = "SCENARIO")]
    scenario: String,
    /// What must hold, such as 'attainment>=0.95' or 'cost_usd<=0.0005'; may be given again.
    #[arg(long = "goal", value_name = "METRIC>=NUMBER", value_parser = Goal::parse)]
    goals: Vec<Goal>,
    /// What to make as large as can be.
    #[arg(long, value_name = "METRIC", default_value = "on_time_utility")]
    maximise: String,
    /// What to make as small as can be, instead.
    #[arg(long, value_name = "METRIC", conflicts_with = "maximise")]
    minimise: Option<String>,
    /// A knob with its ends: lambda_per_usd, delta_per_s or an option of the policy; may be given again. Absent:
    /// lambda_per_usd=50..2000 and delta_per_s=0..5.
    #[arg(long = "vary", value_name = "KEY=LOW..HIGH[:int]", value_parser = Range::parse)]
    ranges: Vec<Range>,
    /// The router to tune, by its label; absent: `bear`, or the only one.
    #[arg(long, value_name = "LABEL")]
    router: Option<String>,
    /// Seeds of the longest runs; absent: the scenario's.
    #[arg(long, value_name = "SEED", num_args = 1.., value_delimiter = ',')]
    seeds: Vec<u64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Plays a scenario's only router under a seed.
fn simulate(scenario: &Scenario, seed: u64, supplies: &Supplies) -> Result<Metrics, LabError> {
    let router = scenario.routers.first().ok_or_else(|| LabError::Invalid {
        place: scenario.name.clone(),
        key: String::from("routers"),
        rule: String::from("is empty; name at least one"),
    })?;
    fleet::run(scenario, router, seed, supplies).map(|run| run.metrics)
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
        seeds: if args.seeds.is_empty() { scenario.seeds.clone() } else { args.seeds },
    };
    let progress = progress();
    let mut counted = |scenario: &Scenario, seed: u64| {
        let metrics = simulate(scenario, seed, &supplies);
        progress.inc(1);
        metrics
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
    let turned = tune::turned(scenario, plan, &advice.nearest.values);
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
            "{} changes nothing under this policy and was left alone.",
            advice.inert.join(", ")
        );
    }
    let head = if advice.best.is_some() {
        "The best point that meets the goals:"
    } else {
        "NO POINT MEETS THE GOALS. The nearest one:"
    };
    let _infallible = writeln!(text, "\n{head}");
    describe(&mut text, plan, &advice.nearest);
    if let Some(present) = &advice.present {
        text.push_str("The scenario as it stands:\n");
        describe(&mut text, plan, present);
    }
    let section = Section { routing: routing(scenario, plan, advice) };
    let _infallible = writeln!(text, "\n{}", serde_saphyr::to_string(&section)?.trim_end());
    table(&mut text, plan, advice);
    Ok(text)
}

fn goal_text(goal: &Goal) -> String {
    format!("{}{}{}", goal.metric, if goal.at_least { ">=" } else { "<=" }, goal.bound)
}

fn describe(text: &mut String, plan: &Plan, trial: &Trial) {
    let values: Vec<String> = plan
        .ranges
        .iter()
        .zip(&trial.values)
        .map(|(range, value)| format!("{}={value}", range.key()))
        .collect();
    let _infallible = writeln!(text, "  {}", values.join(", "));
    for (name, interval) in &trial.metrics {
        let goal = plan.goals.iter().find(|goal| goal.metric == *name);
        let met = match goal {
            None => String::new(),
            Some(goal) if goal.shortfall(interval.mean) <= 0.0 => format!("  meets {}", goal_text(goal)),
            Some(goal) => format!("  MISSES {}", goal_text(goal)),
        };
        let _infallible = writeln!(
            text,
            "  {name:20} {:>12} [{}, {}]{met}",
            short(interval.mean),
            short(interval.low),
            short(interval.high)
        );
    }
}

/// Writes every tried point: `>` the one above, `*` those that no other beats in everything asked about.
fn table(text: &mut String, plan: &Plan, advice: &Advice) {
    let mut names: Vec<&String> = advice.nearest.metrics.keys().collect();
    names.sort();
    text.push_str(
        "\nWhat the points trade (> shown above, * beaten by no other in everything asked about)\n  ",
    );
    for range in &plan.ranges {
        let _infallible = write!(text, "{:>15}", range.key());
    }
    for name in &names {
        let _infallible = write!(text, "{name:>17}");
    }
    text.push_str("  goals  runs\n");
    for trial in &advice.curve {
        let mark = match (trial.values == advice.nearest.values, trial.on_front) {
            (true, _) => '>',
            (_, true) => '*',
            _ => ' ',
        };
        let _infallible = write!(text, "{mark} ");
        for value in &trial.values {
            let _infallible = write!(text, "{value:>15}");
        }
        for name in &names {
            let mean = trial.metrics.get(*name).map_or_else(|| String::from("-"), |i| short(i.mean));
            let _infallible = write!(text, "{mean:>17}");
        }
        let effort = match trial.effort {
            Effort::Short => "short",
            Effort::Full => "one seed",
            Effort::AllSeeds => "all seeds",
        };
        let _infallible = writeln!(text, "  {:5}  {effort}", if trial.meets() { "met" } else { "-" });
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
routers:
  - {label: rr, policy: {name: round-robin}}
  - {label: bear, policy: {name: bear}}
";
        Scenario::parse(text, "formula").unwrap()
    }

    fn advice(plan: &Plan) -> Advice {
        let mut formula = |scenario: &Scenario, seed: u64| {
            let off = (scenario.routers[0].lambda_per_usd.unwrap() / 300.0).ln();
            Ok(Metrics { on_time_utility: 0.6 - 0.05 * off * off + 1e-3 * seed as f64, ..Metrics::default() })
        };
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
    fn the_router_is_found_by_label() {
        assert_eq!(router(&scenario(), None).unwrap(), 1);
        assert_eq!(router(&scenario(), Some("rr")).unwrap(), 0);
        assert!(router(&scenario(), Some("x")).unwrap_err().to_string().contains("rr, bear"));
    }
}
