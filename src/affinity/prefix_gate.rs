//! The prefix-cache affinity gate: stay with instances that hold the prefix until their prefill backlog
//! costs more than it saves (token-aware routing post; llm-d prefix-cache-affinity-filter).

use rand::RngCore;

use super::{AffinityConfig, Filter, Site};
use crate::domain::Query;

/// Keeps the sites that hold most of the prompt, unless the least loaded of them would start the prompt
/// later than the least loaded other by more than the penalty.
///
/// A site whose hit is unknown is not held to be warm. Where a backlog cannot be told in time because a
/// peak throughput is unknown, nothing is narrowed.
#[derive(Clone, Copy, Debug)]
pub struct PrefixGate {
    threshold: f64,
    max_penalty_s: f64,
}

impl From<&AffinityConfig> for PrefixGate {
    fn from(config: &AffinityConfig) -> Self {
        Self { threshold: config.threshold, max_penalty_s: config.max_ttft_penalty_ms / 1e3 }
    }
}

impl Default for PrefixGate {
    fn default() -> Self {
        Self::from(&AffinityConfig::default())
    }
}

impl Filter for PrefixGate {
    fn name(&self) -> &'static str {
        "prefix-gate"
    }

    fn keep(&self, query: &Query, sites: &[Site<'_>], _rng: &mut dyn RngCore) -> Vec<usize> {
        let all = || (0..sites.len()).collect();
        let warm = |site: &Site<'_>| site.hit.is_some_and(|hit| hit >= self.threshold);
        let sticky: Vec<usize> = (0..sites.len()).filter(|&i| warm(&sites[i])).collect();
        if sites.len() <= 1 || self.threshold <= 0.0 || sticky.is_empty() || sticky.len() == sites.len() {
            return all();
        }
        let least = |warm_ones: bool| {
            let chosen = sites.iter().filter(|site| warm(site) == warm_ones);
            chosen.map(backlog_s).try_fold(f64::INFINITY, |least, s| s.map(|s| least.min(s)))
        };
        let target_s = query.ttft_target.map_or(f64::INFINITY, |target| target.as_secs_f64());
        let penalty_s = if self.max_penalty_s > 0.0 { self.max_penalty_s } else { f64::INFINITY };
        match (least(true), least(false)) {
            (Some(warm_s), Some(cold_s)) if warm_s - cold_s <= penalty_s.min(target_s) => sticky,
            _ => all(),
        }
    }
}

/// Returns the time of the uncached prompt tokens in flight at the peak prefill throughput, seconds;
/// absent where that is neither configured nor derivable from one full chunk's batch time (eq. 12).
fn backlog_s(site: &Site<'_>) -> Option<f64> {
    let spec = &site.view.spec;
    let peak = spec.peak_prefill_tokens_per_s.or_else(|| {
        let b = spec.batch_time?;
        let chunk = f64::from(site.view.basis.as_ref()?.snapshot.engine.max_num_batched_tokens);
        let chunk_s = b.b0_s + b.b1_s * chunk + b.b3_s * chunk * (chunk + 1.0) / 2.0 + b.b4_s;
        Some(chunk / chunk_s)
    })?;
    (peak.is_finite() && peak > 0.0).then(|| site.view.load.uncached_prefill_tokens as f64 / peak)
}
