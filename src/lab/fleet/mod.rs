//! Plays one router through a scenario: instances on `engine/` under their truth, snapshots and tokens on
//! their way, routers that reserve and settle as they do live.

mod accounts;
mod clock;
mod events;
mod handicap;
mod instance;
mod journal;
mod mark;
mod mouth;
mod play;
mod publishing;
mod requests;
mod traffic;
mod world;

use std::{collections::BTreeMap, sync::Arc};

use super::{
    LabError, Metrics, PredictorChoice, RequestRecord, RouterChoice, Scenario, arrivals::Files,
    measure::measure, workload::mean_answers,
};
use crate::predict::{Predictor, features::UNTOKENIZED};
pub use journal::{Entry, Journal, Note, Usage};
use play::Fleet;
use requests::Names;
use traffic::{Stream, Traffic, generator, make_workload};
use world::{Members, with_priors};

/// Requests over which the means of a workload are taken.
const MEAN_OVER: usize = 4000;

/// What runs need besides the scenario: data files and predictors, loaded once.
#[derive(Clone, Default)]
pub struct Supplies {
    /// Data files by the name that options give them, unpacked.
    pub files: Files,
    /// Predictors by the name that [`PredictorChoice::Bundle`] gives them.
    pub bundles: BTreeMap<String, Arc<Predictor>>,
}

/// What a run leaves behind.
#[derive(Clone, Debug)]
pub struct Run {
    /// What it measured.
    pub metrics: Metrics,
    /// Its measured requests, at most as many as the scenario keeps, evenly spaced.
    pub requests: Vec<RequestRecord>,
}

/// Plays `router` through `scenario` under `seed`.
///
/// # Errors
/// A name or an option that nothing is registered for, a file or bundle that was not supplied.
pub fn run(
    scenario: &Scenario,
    router: &RouterChoice,
    seed: u64,
    supplies: &Supplies,
) -> Result<Run, LabError> {
    let (members, mut fleet) = set_up(scenario, router, seed, supplies)?;
    fleet.play()?;
    let names = Names::of(&members);
    let records = fleet.records(&names);
    let measured = measure(&records, &fleet.facts(&names));
    Ok(Run { metrics: measured, requests: spaced(records, scenario.keep_requests) })
}

/// Plays `router` through `scenario` under `seed` and returns what reached it and what it decided.
///
/// # Errors
/// As [`run`]; a scenario whose traffic several routers share.
pub fn journal(
    scenario: &Scenario,
    router: &RouterChoice,
    seed: u64,
    supplies: &Supplies,
) -> Result<Journal, LabError> {
    if scenario.router_count > 1 {
        return Err(LabError::Invalid {
            place: scenario.name.clone(),
            key: String::from("router_count"),
            rule: format!("is {}; a journal is one router's, so make it 1", scenario.router_count),
        });
    }
    let (members, mut fleet) = set_up(scenario, router, seed, supplies)?;
    fleet.journal.start();
    fleet.play()?;
    let entries = fleet.journal.take();
    let draws = generator(seed, Stream::Routing);
    Ok(Journal { models: members.models, instances: members.specs, draws, entries })
}

fn set_up<'a>(
    scenario: &'a Scenario,
    router: &RouterChoice,
    seed: u64,
    supplies: &Supplies,
) -> Result<(Members, Fleet<'a>), LabError> {
    let mut members = Members::of(scenario)?;
    let predictor = predictor(scenario, router, &mut members, supplies)?;
    let features = predictor.manifest().map_or(UNTOKENIZED, |manifest| &manifest.features.version).to_owned();
    let traffic = Traffic::new(scenario, &members.facts, &features, &supplies.files, seed)?;
    let fleet = Fleet::new(scenario, router, &members, &predictor, traffic, seed)?;
    Ok((members, fleet))
}

/// Returns the predictor of a router; where there are no trees, the models get the workload's means.
fn predictor(
    scenario: &Scenario,
    router: &RouterChoice,
    members: &mut Members,
    supplies: &Supplies,
) -> Result<Arc<Predictor>, LabError> {
    match router.predictor.as_ref().unwrap_or(&scenario.predictor) {
        PredictorChoice::Bundle(name) => match supplies.bundles.get(name) {
            Some(predictor) => Ok(Arc::clone(predictor)),
            None => Err(LabError::Unknown {
                kind: "predictor",
                name: name.clone(),
                known: supplies.bundles.keys().cloned().collect::<Vec<_>>().join(", "),
            }),
        },
        PredictorChoice::Mean | PredictorChoice::Oracle => {
            let mut workload = make_workload(scenario, &members.facts, UNTOKENIZED, &supplies.files)?;
            let rng = &mut generator(0, Stream::Means);
            let means = mean_answers(&mut *workload, members.facts.len(), MEAN_OVER, rng);
            with_priors(&mut members.models, &means);
            Ok(Arc::new(Predictor::prior()))
        }
    }
}

/// Whole microseconds of a time in seconds.
fn micros(seconds: f64) -> u64 {
    (seconds * 1e6).round() as u64
}

/// Keeps at most `most` of the records, evenly spaced.
fn spaced(records: Vec<RequestRecord>, most: usize) -> Vec<RequestRecord> {
    let every = records.len().div_ceil(most.max(1)).max(1);
    let kept = if most == 0 { 0 } else { usize::MAX };
    records.into_iter().step_by(every).take(kept).collect()
}

#[cfg(test)]
mod tests;
