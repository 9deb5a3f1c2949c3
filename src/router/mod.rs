//! From a described query to a decision and a reservation, in named steps.
//!
//! Transport-free: a query, a time, a pool and a generator come in; the gateway, the lab and any other
//! mouth use it alike.

mod candidates;
mod config;
mod decide;
mod eligible;
mod predictions;
mod stage;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arc_swap::ArcSwap;

pub use config::{RouterConfig, RouterConfigError};
pub use decide::Router;
pub use stage::{Silent, Stage, StageObserver};

use crate::{
    affinity::Pipeline,
    domain::{Candidate, Decision, Query},
    latency::Estimator,
    policy::RoutingPolicy,
    pool::{Pool, Reservation, SettleSink},
    predict::{ModelPrediction, Predictor, QueryFeatures},
};

/// A query with the features its predictions need; those may be absent where nothing is predicted.
#[derive(Clone)]
pub struct Described {
    /// The query.
    pub query: Query,
    /// Its features.
    pub features: Option<Arc<QueryFeatures>>,
    /// Predictions made elsewhere, one a model in pool order (a logged decision, an oracle); absent: the
    /// router's own predictor is asked.
    pub given: Option<Arc<[ModelPrediction]>>,
}

/// One try at serving a query.
#[derive(Clone)]
pub struct Attempt<'a> {
    /// The fresh id to send upstream.
    pub id: String,
    /// Pool positions that already failed this query.
    pub exclude: &'a [usize],
    /// Which attempt at the query it is, from 1; a later one follows a failure.
    pub number: u32,
    /// Hears of the attempt's end, once.
    pub sink: Arc<dyn SettleSink>,
}

/// A decision that was carried out.
#[derive(Debug)]
pub struct Routed {
    /// The whole table.
    pub decision: Decision,
    /// The chosen instance's position in the pool.
    pub instance: usize,
    /// Its place in the ledger.
    pub reservation: Reservation,
}

/// Why nothing was chosen. Both carry one row an instance, with the reason in it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RouteError {
    /// No model of the pool may serve the request.
    #[error("no model of the pool is eligible for this request; each row says why")]
    NoneEligible(Vec<Candidate>),
    /// Models may serve it, but no instance of theirs is usable now.
    #[error("no instance of an eligible model is usable now; each row says why")]
    NoneUsable(Vec<Candidate>),
}

/// What a router is made of.
pub struct Parts {
    /// The instances.
    pub pool: Arc<Pool>,
    /// Who chooses.
    pub policy: Box<dyn RoutingPolicy>,
    /// Who ranks interchangeable instances.
    pub affinity: Pipeline,
    /// Who predicts accuracy and length; swapped as bundles are.
    pub predictor: Arc<ArcSwap<Predictor>>,
    /// Who estimates the TTFT.
    pub estimator: Arc<dyn Estimator>,
}
