//! What a run's metrics need beside its requests: counters over the measured time, throughput, and the most
//! utility there was to have.

use super::{
    mark::Mark,
    micros,
    play::Fleet,
    requests::{Names, Request},
};
use crate::{
    engine::Counters,
    lab::{RequestRecord, measure::Facts},
};

impl Fleet<'_> {
    /// Writes down the measured requests, in order of arrival.
    pub(super) fn records(&self, names: &Names) -> Vec<RequestRecord> {
        self.measured().map(|request| request.record(names, self.scenario.lambda_per_usd)).collect()
    }

    fn measured(&self) -> impl Iterator<Item = &Request> {
        let warmup_us = micros(self.scenario.warmup_s);
        self.requests.iter().filter(move |request| request.arrived_us() >= warmup_us)
    }

    /// Gathers what metrics need beside the requests.
    pub(super) fn facts(&self, names: &Names) -> Facts {
        let [from, to] = &self.marks;
        let of = |mark: &Mark, counter: fn(&Counters) -> u64| mark.instances.iter().map(counter).sum::<u64>();
        let during = |counter: fn(&Counters) -> u64| of(to, counter) - of(from, counter);
        let running = to.instances.iter().enumerate().map(|(i, to)| {
            let from = from.instances.get(i).copied().unwrap_or_default();
            ratio(to.generation_tokens - from.generation_tokens, to.steps - from.steps)
        });
        let warmup_us = micros(self.scenario.warmup_s);
        let ended =
            |request: &&Request| request.end_us().is_some_and(|us| (warmup_us..self.end_us).contains(&us));
        let duration_s = self.scenario.duration_s.max(f64::MIN_POSITIVE);
        let ended: Vec<&Request> = self.requests.iter().filter(ended).collect();
        Facts {
            warmup_us,
            answers_per_s: ended.len() as f64 / duration_s,
            output_tokens_per_s: ended.iter().map(|r| f64::from(r.output_tokens())).sum::<f64>() / duration_s,
            cache_hit_rate: ratio(during(|c| c.prefix_cache_hits), during(|c| c.prefix_cache_queries)),
            preemptions: during(|c| c.preemptions),
            mean_running: names.instances.iter().map(|name| name.to_string()).zip(running).collect(),
            estimates_per_decision: ratio(to.estimates - from.estimates, to.decisions - from.decisions),
            best_utility: self.best_utility(names),
        }
    }

    /// Returns the mean over judged requests of the best model's utility, where that is positive: a bound on
    /// OnTimeUtility that no choice can pass, as it knows every answer, meets no queue and finds every prompt
    /// cached wherever cached tokens cost less.
    fn best_utility(&self, names: &Names) -> f64 {
        let judged: Vec<&Request> = self.measured().filter(|request| request.is_judged()).collect();
        let best = |request: &&Request| {
            let utility =
                |instance: usize| request.most_utility(names, instance, self.scenario.lambda_per_usd);
            (0..names.instances.len()).filter_map(utility).fold(0.0, f64::max)
        };
        judged.iter().map(best).sum::<f64>() / judged.len().max(1) as f64
    }
}

fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b.max(1) as f64
}
