//! The eligible rows as a policy sees them: estimates on demand, ranking by the affinity pipeline.

use rand::RngCore;

use super::{
    stage::{Stage, StageObserver, staged},
    table::Row,
};
use crate::{
    affinity::{Pipeline, Ranked, Site},
    domain::{Estimate, Horizon, InstanceView, ModelId, ModelSpec, Prediction, Query, Timestamp, Ttft},
    latency::Estimator,
    policy::Candidates,
};

/// The eligible rows of one decision.
pub(super) struct Eligible<'a> {
    pub(super) query: &'a Query,
    pub(super) rows: &'a [Row],
    /// The pool's models, in its order.
    pub(super) models: &'a [ModelSpec],
    /// Pool positions of the eligible rows, rising.
    pub(super) positions: Vec<usize>,
    pub(super) estimator: &'a dyn Estimator,
    pub(super) affinity: &'a Pipeline,
    pub(super) now: Timestamp,
    pub(super) observer: &'a dyn StageObserver,
}

impl Eligible<'_> {
    fn row(&self, i: usize) -> &Row {
        &self.rows[self.positions[i]]
    }
}

impl Candidates for Eligible<'_> {
    fn len(&self) -> usize {
        self.positions.len()
    }

    fn position(&self, i: usize) -> usize {
        self.positions[i]
    }

    fn model_id(&self, i: usize) -> Option<&ModelId> {
        self.models.get(self.row(i).view.spec.model.0).map(|model| &model.id)
    }

    fn view(&self, i: usize) -> &InstanceView {
        &self.row(i).view
    }

    fn prediction(&self, i: usize) -> &Prediction {
        &self.row(i).prediction
    }

    /// The time already spent at the router is part of the wait, so that the TTFT runs from the
    /// complete request, as the target does.
    fn estimate(&self, i: usize, horizon: Horizon) -> Estimate {
        let row = self.row(i);
        row.estimate(horizon, || {
            staged(self.observer, Stage::Estimate, || {
                let estimate = self.estimator.estimate(row.model.load, &row.view, self.now, horizon);
                let spent_s = self.now.since(self.query.arrived).as_secs_f64();
                let ttft = estimate.ttft.map(|ttft| Ttft { wait_s: ttft.wait_s + spent_s, ..ttft });
                Estimate { ttft, e2e_s: estimate.e2e_s.map(|e2e| e2e + spent_s), ..estimate }
            })
        })
    }

    fn least_ttft_s(&self, i: usize) -> f64 {
        let row = self.row(i);
        row.least_ttft_s(|| self.estimator.least_ttft_s(row.model.load, &row.view))
    }

    fn rank(&self, set: &[usize], rng: &mut dyn RngCore) -> Vec<Ranked> {
        staged(self.observer, Stage::Affinity, || {
            let sites: Vec<Site<'_>> = set
                .iter()
                .map(|&i| Site { view: &self.row(i).view, load: self.row(i).model.load, hit: None })
                .collect();
            let mut ranking = self.affinity.rank(self.query, &sites, rng);
            for ranked in &mut ranking {
                ranked.position = set[ranked.position];
            }
            ranking
        })
    }
}
