//! How the instances' states reach the routers: captured, on their way, delivered.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use super::{instance::Instance, micros};
use crate::{
    domain::Snapshot,
    lab::{Scenario, SnapshotRule},
    pool::PoolConfig,
};

/// The snapshots of a run.
pub(super) struct Publishing {
    rule: SnapshotRule,
    wrong_async: bool,
    /// When captures are to be made for decisions to come, microseconds.
    planned: BTreeSet<u64>,
    /// Captured and on their way, oldest first.
    on_their_way: VecDeque<Vec<(usize, Snapshot)>>,
    /// The newest snapshot of each instance that came to the routers, and its number.
    delivered: Vec<(u64, Option<Arc<Snapshot>>)>,
}

/// A decision's snapshot would have had to be captured before anyone knew of the decision.
#[derive(Debug)]
pub(super) struct TooLate;

impl Publishing {
    /// Sets it up for so many instances.
    pub(super) fn new(scenario: &Scenario, instances: usize) -> Self {
        Self {
            rule: scenario.snapshots,
            wrong_async: scenario.misfit.wrong_async,
            planned: BTreeSet::new(),
            on_their_way: VecDeque::new(),
            delivered: vec![(0, None); instances],
        }
    }

    /// From a capture to the routers, microseconds.
    pub(super) fn delay_us(&self) -> u64 {
        micros(self.rule.delay_ms / 1e3)
    }

    /// From one capture to the next, microseconds; absent: captures are made for decisions.
    pub(super) fn period_us(&self) -> Option<u64> {
        Some(micros(self.rule.period_ms / 1e3)).filter(|period_us| self.rule.enabled && *period_us > 0)
    }

    /// Returns whether a decision sees states of its own moment.
    pub(super) fn at_once(&self) -> bool {
        self.rule.enabled && self.period_us().is_none() && self.delay_us() == 0
    }

    /// How long before a decision it must be known of, microseconds.
    pub(super) fn ahead_us(&self) -> u64 {
        let on_demand = self.rule.enabled && self.period_us().is_none();
        if on_demand { self.delay_us() } else { 0 }
    }

    /// Plans what a decision at `at_us` will see; returns the capture to make for it, where one is to be made.
    ///
    /// # Errors
    /// [`TooLate`] where it lies before `now_us`.
    pub(super) fn plan(&mut self, at_us: u64, now_us: u64) -> Result<Option<u64>, TooLate> {
        let ahead_us = self.ahead_us();
        // Decisions of the first moments come before any snapshot can.
        let Some(capture_us) = at_us.checked_sub(ahead_us).filter(|_| ahead_us > 0) else { return Ok(None) };
        if capture_us < now_us {
            return if self.planned.contains(&capture_us) { Ok(None) } else { Err(TooLate) };
        }
        Ok(self.planned.insert(capture_us).then_some(capture_us))
    }

    /// Captures the states of the instances that are up.
    pub(super) fn capture(&mut self, at_us: u64, instances: &[Instance]) {
        let up = instances.iter().enumerate().filter(|(_, instance)| instance.up);
        let snapshots = up.map(|(i, instance)| (i, self.state(instance, at_us))).collect();
        self.on_their_way.push_back(snapshots);
        while self.planned.first().is_some_and(|first_us| *first_us < at_us) {
            self.planned.pop_first();
        }
    }

    /// Returns an instance's state as it publishes it.
    pub(super) fn state(&self, instance: &Instance, at_us: u64) -> Snapshot {
        let mut snapshot = instance.snapshot(at_us);
        snapshot.engine.async_scheduling ^= self.wrong_async;
        snapshot
    }

    /// Lets the oldest capture under way come to the routers; returns what came.
    pub(super) fn deliver(&mut self) -> Vec<(usize, Arc<Snapshot>)> {
        let came = self.on_their_way.pop_front().into_iter().flatten();
        let came: Vec<_> = came.map(|(i, snapshot)| (i, Arc::new(snapshot))).collect();
        for (i, snapshot) in &came {
            let (number, newest) = &mut self.delivered[*i];
            *number += 1;
            *newest = Some(Arc::clone(snapshot));
        }
        came
    }

    /// Counts a state that a router took at the moment of its capture; returns its number.
    pub(super) fn next_number(&mut self, i: usize) -> u64 {
        self.delivered[i].0 += 1;
        self.delivered[i].0
    }

    /// Returns the newest snapshot of each instance that has one, and its number.
    pub(super) fn newest(&self) -> impl Iterator<Item = (usize, u64, &Snapshot)> {
        let newest = self.delivered.iter().enumerate();
        newest.filter_map(|(i, (number, newest))| Some((i, *number, &**newest.as_ref()?)))
    }

    /// Returns whether routers know instance `i` by what they sent and saw alone: no snapshot of its present life
    /// has come to them, or snapshots come when they are too old to be used.
    pub(super) fn leaves_to_ledgers(&self, i: usize, instance: &Instance) -> bool {
        if self.at_once() {
            return false;
        }
        let too_old = self.rule.period_ms + self.rule.delay_ms >= PoolConfig::default().stale_after_ms as f64;
        let newest = self.delivered[i].1.as_ref();
        !self.rule.enabled || too_old || newest.is_none_or(|newest| !instance.lives_in(newest))
    }
}
