//! `bear lab run`: plays scenarios on every core and keeps one line a run.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};

use super::{
    results::Results,
    supplies::{self, SCENARIOS},
    workers,
};
use crate::{
    cli::print,
    domain::suggestion,
    lab::{
        Fingerprints, Metrics, RunKey, RunLine, Scenario, Setting,
        fleet::{self, Supplies},
        grid::{self, Best, Cell, Job},
    },
};

/// The folder beside the results where the runs of sweeps lie.
const TRIALS: &str = "trials";

/// Plays scenarios: every router at every point under every seed, in virtual time.
///
/// Results are JSON lines, one file a scenario; an interrupted command goes on where it stopped, and runs
/// that are there already are not played again. Runs under other settings (another duration, λ, pool, data,
/// predictor) or of another version of bear cannot be compared and are refused in the same file.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Built-in scenarios by name, or YAML files; absent: every built-in one.
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// The folder of results.
    #[arg(long, value_name = "DIR", default_value = "lab-results")]
    results: PathBuf,
    #[command(flatten)]
    play: Play,
    /// Lists the built-in scenarios and ends.
    #[arg(long)]
    list: bool,
}

/// How scenarios are played.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Play {
    /// Seeds 1 to N instead of the scenario's own.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) seeds: Option<u64>,
    /// Measured virtual time a run instead of the scenario's own, seconds.
    #[arg(long, value_name = "SECONDS", value_parser = crate::cli::number::positive)]
    pub(super) duration_s: Option<f64>,
    /// Only these routers, by label; scenarios that have none of them are passed over.
    #[arg(long, value_name = "LABEL", value_delimiter = ',')]
    pub(super) routers: Vec<String>,
    /// Runs at once; absent: one a core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) jobs: Option<u16>,
    /// Throws earlier results of the scenarios away and plays everything anew.
    #[arg(long)]
    pub(super) fresh: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// Fails on a scenario that cannot be played and on results that cannot be written.
pub(super) fn run(args: Args) -> anyhow::Result<()> {
    if args.list {
        let line =
            |name: &str| supplies::scenario(name).map(|s| format!("{:<16} {}\n", s.name, s.about.trim()));
        let lines: Vec<String> = SCENARIOS.iter().map(|s| line(s.name)).collect::<anyhow::Result<_>>()?;
        return print(&lines.concat());
    }
    match args.scenarios.is_empty() {
        true => play_built_in(&args.play, &args.results),
        false => play(&args.scenarios, &args.play, &args.results),
    }
}

/// Plays every built-in scenario.
pub(super) fn play_built_in(how: &Play, results: &Path) -> anyhow::Result<()> {
    let names: Vec<String> = SCENARIOS.iter().map(|built_in| built_in.name.to_owned()).collect();
    play(&names, how, results)
}

/// Plays scenarios and keeps their results.
fn play(names: &[String], how: &Play, results: &Path) -> anyhow::Result<()> {
    let all: Vec<Scenario> =
        names.iter().map(|name| supplies::scenario(name)).collect::<anyhow::Result<_>>()?;
    how.check(&all)?;
    let mut scenarios: Vec<Scenario> = all.into_iter().map(|scenario| how.applied(scenario)).collect();
    scenarios.retain(|scenario| !scenario.routers.is_empty());
    let supplies = supplies::load(&scenarios)?;
    let prints = Arc::new(Fingerprints::of(&supplies));
    for scenario in &scenarios {
        if how.fresh {
            Results::discard(results, &scenario.name)?;
            Results::discard(&results.join(TRIALS), &scenario.name)?;
        }
        play_one(scenario, &prints, (how, &supplies), results)
            .with_context(|| format!("scenario `{}`", scenario.name))?;
    }
    Ok(())
}

impl Play {
    fn applied(&self, mut scenario: Scenario) -> Scenario {
        if let Some(seeds) = self.seeds {
            scenario.seeds = (1..=seeds).collect();
        }
        if let Some(duration_s) = self.duration_s {
            scenario.duration_s = duration_s;
        }
        if !self.routers.is_empty() {
            scenario.routers.retain(|router| self.routers.contains(&router.label));
        }
        scenario
    }

    /// Refuses labels that no scenario has.
    fn check(&self, scenarios: &[Scenario]) -> anyhow::Result<()> {
        let mut known: Vec<&str> =
            scenarios.iter().flat_map(|s| &s.routers).map(|router| router.label.as_str()).collect();
        known.sort_unstable();
        known.dedup();
        match self.routers.iter().find(|label| !known.contains(&label.as_str())) {
            Some(label) => {
                bail!("no scenario played here has a router `{label}` (hint: {})", suggestion(label, &known))
            }
            None => Ok(()),
        }
    }
}

fn play_one(
    scenario: &Scenario,
    prints: &Arc<Fingerprints>,
    (how, supplies): (&Play, &Supplies),
    folder: &Path,
) -> anyhow::Result<()> {
    let cells = grid::cells(scenario, prints)?;
    let world = cells.first().map_or("", Cell::world);
    let mut trials = Results::open(&folder.join(TRIALS), &scenario.name, world)?;
    let mut results = Results::open(folder, &scenario.name, world)?;
    let workers = workers::count(how.jobs);
    let best = sweep(&scenario.name, &cells, &mut trials, (workers, supplies))?;
    for warning in worthless(&best) {
        eprintln!("warning: scenario `{}`: {warning}", scenario.name);
    }
    let jobs: Vec<Job> = best.iter().flat_map(|best| best.cell.jobs()).collect();
    play_jobs(&scenario.name, &jobs, &mut results, (workers, supplies))?;
    results.finish(&keys(&jobs))
}

/// Plays both rounds of every sweep and returns the cells under their best options.
fn sweep(
    name: &str,
    cells: &[Cell],
    trials: &mut Results,
    with: (usize, &Supplies),
) -> anyhow::Result<Vec<Best>> {
    let short: Vec<Vec<Vec<Job>>> = cells.iter().map(Cell::trials).collect();
    let tried = play_round(&format!("{name} (options)"), &short, trials, with)?;
    let long: Vec<Vec<Vec<Job>>> = cells.iter().zip(&tried).map(|(cell, tried)| cell.finals(tried)).collect();
    let finals = play_round(&format!("{name} (finalists)"), &long, trials, with)?;
    let jobs: Vec<Job> = short.into_iter().chain(long).flatten().flatten().collect();
    if !jobs.is_empty() {
        trials.finish_trials(&keys(&jobs))?;
    }
    let rounds = tried.iter().zip(&finals);
    Ok(cells.iter().zip(rounds).map(|(cell, (tried, finals))| cell.at_its_best(tried, finals)).collect())
}

/// Plays one round of the sweeps and returns its metrics: cell by cell, set by set, seed by seed.
fn play_round(
    name: &str,
    round: &[Vec<Vec<Job>>],
    trials: &mut Results,
    with: (usize, &Supplies),
) -> anyhow::Result<Vec<Vec<Vec<Metrics>>>> {
    let jobs: Vec<Job> = round.iter().flatten().flatten().cloned().collect();
    if !jobs.is_empty() {
        play_jobs(name, &jobs, trials, with)?;
    }
    let metrics = |jobs: &Vec<Job>| -> Vec<Metrics> {
        jobs.iter().filter_map(|job| trials.get(&job.key)).map(|line| line.metrics).collect()
    };
    Ok(round.iter().map(|sets| sets.iter().map(metrics).collect()).collect())
}

/// Returns a warning for each router whose sweep found no option set of positive utility at some points.
fn worthless(best: &[Best]) -> Vec<String> {
    let mut points: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (best, utility) in best.iter().filter_map(|best| Some((best, best.on_time_utility?))) {
        let (bad, all) = points.entry(&best.cell.router.label).or_default();
        *bad += usize::from(utility <= 0.0);
        *all += 1;
    }
    let warn = |(router, (bad, all)): (&str, (usize, usize))| {
        format!(
            "no option set in the sweep of router `{router}` had a positive OnTimeUtility at {bad} of {all} points; \
             its runs there say little (hint: widen its `sweep.options`, or lower the load)"
        )
    };
    points.into_iter().filter(|(_, (bad, _))| *bad > 0).map(warn).collect()
}

fn keys(jobs: &[Job]) -> Vec<RunKey> {
    jobs.iter().map(|job| job.key.clone()).collect()
}

/// Plays the runs that have no line yet.
fn play_jobs(
    name: &str,
    jobs: &[Job],
    results: &mut Results,
    (workers, supplies): (usize, &Supplies),
) -> anyhow::Result<()> {
    let missing: Vec<&Job> = jobs.iter().filter(|job| !results.has(&job.key)).collect();
    let bar = progress(name, jobs.len(), jobs.len() - missing.len());
    workers::on_each(
        &missing,
        workers,
        |job| one(job, supplies),
        |_, line| {
            results.add(&line?)?;
            bar.inc(1);
            anyhow::Ok(())
        },
    )?;
    bar.finish_and_clear();
    Ok(())
}

fn one(job: &Job, supplies: &Supplies) -> anyhow::Result<RunLine> {
    let run = fleet::run(&job.scenario, &job.router, job.key.seed, supplies)
        .with_context(|| format!("router `{}`, seed {}", job.router.label, job.key.seed))?;
    let setting = Setting::of(&job.scenario, &job.router);
    Ok(RunLine { key: job.key.clone(), setting, metrics: run.metrics, requests: run.requests })
}

fn progress(name: &str, all: usize, done: usize) -> ProgressBar {
    let bar = ProgressBar::new(all as u64).with_position(done as u64).with_prefix(name.to_owned());
    let style = ProgressStyle::with_template("{prefix:<24} {bar:30} {pos}/{len} runs, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
