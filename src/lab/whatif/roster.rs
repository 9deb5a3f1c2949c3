//! Every instance that the log names, numbered in the order of appearance.

use std::collections::{BTreeSet, HashMap};

use crate::domain::{Candidate, InstanceId, ModelIndex};

/// Costs closer than this, relatively, are one price's.
const SAME_COST: f64 = 1e-9;

/// One instance of the log.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    pub(super) id: InstanceId,
    pub(super) model: ModelIndex,
    pub(super) model_name: String,
    /// Replicas of one model that cost the same share a number; prices themselves are not logged.
    pub(super) price_class: usize,
}

/// The instances and models seen so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Roster {
    pub(super) seats: Vec<Seat>,
    pub(super) models: Vec<String>,
    by_id: HashMap<InstanceId, Vec<usize>>,
}

impl Roster {
    /// Returns the seat of each candidate, newcomers seated first.
    pub(super) fn seat(&mut self, candidates: &[Candidate]) -> Vec<usize> {
        let mut seats = Vec::with_capacity(candidates.len());
        for (i, candidate) in candidates.iter().enumerate() {
            let known = self.find(candidate);
            seats.push(known.unwrap_or_else(|| self.admit(candidate, &candidates[..i], &seats)));
        }
        seats
    }

    /// Returns the names of `asked` that are neither an instance nor a model of the log.
    pub(super) fn unseen<'a>(&self, asked: impl IntoIterator<Item = &'a String>) -> BTreeSet<String> {
        let seen =
            |name: &str| self.by_id.contains_key(name) || self.models.iter().any(|model| model == name);
        asked.into_iter().filter(|name| !seen(name)).cloned().collect()
    }

    fn find(&self, candidate: &Candidate) -> Option<usize> {
        let of_id = self.by_id.get(&candidate.instance)?;
        of_id.iter().copied().find(|&seat| self.seats[seat].model_name == candidate.model)
    }

    /// Seats a newcomer beside those before it in its row: their costs show whose price it shares.
    fn admit(&mut self, candidate: &Candidate, before: &[Candidate], seats: &[usize]) -> usize {
        let model = self.models.iter().position(|model| *model == candidate.model).unwrap_or_else(|| {
            self.models.push(candidate.model.clone());
            self.models.len() - 1
        });
        let replicas = before.iter().zip(seats).filter(|(other, _)| other.model == candidate.model);
        let mut price_class = 0;
        for (other, &seat) in replicas {
            let class = self.seats[seat].price_class;
            if same_cost(candidate.cost_usd, other.cost_usd) {
                price_class = class;
                break;
            }
            price_class = price_class.max(class + 1);
        }
        let seat = self.seats.len();
        self.by_id.entry(candidate.instance.clone()).or_default().push(seat);
        self.seats.push(Seat {
            id: candidate.instance.clone(),
            model: ModelIndex(model),
            model_name: candidate.model.clone(),
            price_class,
        });
        seat
    }
}

/// Returns whether two costs of the same work show no difference in price.
fn same_cost(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= SAME_COST * a.abs().max(b.abs()),
        _ => true,
    }
}
