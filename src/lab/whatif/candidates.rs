//! A logged row as a policy sees it: predictions anew, estimates as logged, the rest as a world fills it in.

use std::cell::Cell;

use rand::{Rng, RngCore};

use super::{
    LoggedRow, Unestimated,
    world::{Favour, Hypothesis, LATEST_S},
};
use crate::{
    affinity::Ranked,
    domain::{
        Candidate, Estimate, EstimateSource, Horizon, InstanceView, ModelId, NoEstimate, Prediction, Ttft,
    },
    policy::Candidates,
};

/// One instance that may be chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    /// Its place in the row's table.
    pub(super) row: usize,
    /// Its seat in the roster.
    pub(super) seat: usize,
    pub(super) prediction: Prediction,
}

/// What a policy asked for that the row does not hold.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Missed {
    /// A TTFT.
    pub(super) estimate: bool,
    /// A time past the first token.
    pub(super) horizon: bool,
    /// An order of replicas.
    pub(super) ranking: bool,
}

impl Missed {
    /// Adds what another world's copy asked for.
    pub(super) const fn join(&mut self, other: Self) {
        self.estimate |= other.estimate;
        self.horizon |= other.horizon;
        self.ranking |= other.ranking;
    }
}

/// The candidates of one row in one world.
pub(super) struct Rebuilt<'a> {
    pub(super) row: &'a LoggedRow,
    pub(super) kept: &'a [Kept],
    pub(super) hypothesis: &'a Hypothesis,
    pub(super) views: Vec<InstanceView>,
    /// The model of each.
    pub(super) models: Vec<ModelId>,
    /// What the first world chose.
    pub(super) against: usize,
    /// Who is drawn first in its tier; absent: whoever the dice say.
    pub(super) first: Option<usize>,
    pub(super) unestimated: Unestimated,
    pub(super) missed: Cell<Missed>,
}

impl Rebuilt<'_> {
    fn candidate(&self, i: usize) -> &Candidate {
        &self.row.decision.candidates[self.kept[i].row]
    }

    fn behind(&self, i: usize) -> usize {
        self.hypothesis.behind(i, self.len(), self.against)
    }

    fn miss(&self, note: impl FnOnce(&mut Missed)) {
        let mut missed = self.missed.get();
        note(&mut missed);
        self.missed.set(missed);
    }
}

impl Candidates for Rebuilt<'_> {
    fn len(&self) -> usize {
        self.kept.len()
    }

    fn position(&self, i: usize) -> usize {
        self.kept[i].seat
    }

    fn model_id(&self, i: usize) -> Option<&ModelId> {
        self.models.get(i)
    }

    fn view(&self, i: usize) -> &InstanceView {
        &self.views[i]
    }

    fn prediction(&self, i: usize) -> &Prediction {
        &self.kept[i].prediction
    }

    fn estimate(&self, i: usize, horizon: Horizon) -> Estimate {
        let candidate = self.candidate(i);
        // Whatever is made up, the prompt takes its time.
        let no_sooner = |ttft: Ttft| Ttft { prefill_s: ttft.prefill_s.max(self.least_ttft_s(i)), ..ttft };
        let made_up = no_sooner(self.hypothesis.ttft(self.behind(i)));
        let assumed = |prefill_s: f64| Some(Ok(no_sooner(Ttft { wait_s: 0.0, prefill_s })));
        let logged = logged_ttft(candidate).or_else(|| match self.unestimated {
            Unestimated::InTime => assumed(0.0),
            Unestimated::Late => assumed(LATEST_S),
            Unestimated::Refuse => {
                self.miss(|missed| missed.estimate = true);
                None
            }
        });
        let further = horizon != Horizon::FirstToken;
        if further {
            self.miss(|missed| missed.horizon = true);
        }
        let after_s = made_up.total_s() + 1.0;
        Estimate {
            ttft: logged.unwrap_or(Ok(made_up)),
            e2e_s: (horizon == Horizon::Completion).then_some(after_s),
            tpot_s: further.then_some(after_s),
            spread_s: candidate.spread_s,
            source: source(candidate),
            age_s: candidate.age_s,
        }
    }

    /// An estimate that was made is its own bound.
    fn least_ttft_s(&self, i: usize) -> f64 {
        let candidate = self.candidate(i);
        let estimated = || logged_ttft(candidate).and_then(Result::ok).map(Ttft::total_s);
        candidate.least_ttft_s.or_else(estimated).unwrap_or(0.0)
    }

    /// The log shows one ranking: that of the set which its choice was taken from, down to the choice. Any
    /// other runs as the world favours.
    fn rank(&self, set: &[usize], rng: &mut dyn RngCore) -> Vec<Ranked> {
        let early = self.hypothesis.favour != Favour::Last;
        let (mut before, mut tier, mut after) = (Vec::new(), Vec::new(), Vec::new());
        if set.iter().all(|&i| self.candidate(i).interchangeable) {
            for &i in set {
                match self.candidate(i).feasible {
                    Some(true) => tier.push(i),
                    // They came before the choice or beside it, and were passed over.
                    Some(false) if early => before.push(i),
                    _ => after.push(i),
                }
            }
        } else {
            self.miss(|missed| missed.ranking = true);
            after.extend(set);
        }
        after.sort_by_key(|&i| self.behind(i));
        let drawn = self.draw(&tier, rng);
        let alone = |position: usize, tier: usize| Ranked { position, tier, weight: 1.0 };
        let mut ranking: Vec<Ranked> = before.into_iter().enumerate().map(|(t, i)| alone(i, t)).collect();
        let t = ranking.len();
        ranking.extend(drawn.into_iter().map(|(position, weight)| Ranked { position, tier: t, weight }));
        ranking.extend(after.into_iter().enumerate().map(|(k, i)| alone(i, t + 1 + k)));
        ranking
    }
}

impl Rebuilt<'_> {
    /// Orders the tier of the logged choice by successive sampling. Its logged propensity is its share of the
    /// tier; the others split the rest.
    fn draw(&self, tier: &[usize], rng: &mut dyn RngCore) -> Vec<(usize, f64)> {
        let logged = &self.row.decision;
        let in_time = |c: &&Candidate| c.interchangeable && c.feasible == Some(true);
        let others = logged.candidates.iter().filter(in_time).count().saturating_sub(1).max(1) as f64;
        let propensity = logged.propensity;
        let weight = |i: usize| match self.candidate(i).chosen {
            true => propensity,
            false => ((1.0 - propensity) / others).max(f64::MIN_POSITIVE),
        };
        // The least of exponential times with these rates comes first: successive sampling.
        let mut times: Vec<(f64, usize)> = Vec::with_capacity(tier.len());
        for &i in tier {
            let uniform: f64 = rng.random();
            times.push((-(1.0 - uniform).ln() / weight(i), i));
        }
        times.sort_by(|a, b| {
            (self.first != Some(a.1)).cmp(&(self.first != Some(b.1))).then(a.0.total_cmp(&b.0))
        });
        times.into_iter().map(|(_, i)| (i, weight(i))).collect()
    }
}

/// Returns the TTFT that was estimated, or why there was none; absent: nobody asked.
fn logged_ttft(candidate: &Candidate) -> Option<Result<Ttft, NoEstimate>> {
    candidate.source.as_ref()?;
    if let (Some(wait_s), Some(prefill_s)) = (candidate.wait_s, candidate.prefill_s) {
        return Some(Ok(Ttft { wait_s, prefill_s }));
    }
    let none = candidate.no_estimate.as_deref()?;
    [NoEstimate::Unschedulable, NoEstimate::Limit].into_iter().find(|kind| kind.label() == none).map(Err)
}

/// Returns the estimator by its label; one of another version of bear counts as a guess.
fn source(candidate: &Candidate) -> EstimateSource {
    let known = [EstimateSource::Bea, EstimateSource::BeaLedger, EstimateSource::PrefillThroughput];
    let of_label = |source: &EstimateSource| Some(source.label()) == candidate.source.as_deref();
    known.into_iter().find(of_label).unwrap_or(EstimateSource::Guess)
}
