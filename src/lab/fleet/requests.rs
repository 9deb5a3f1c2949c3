//! What becomes of each request of a run.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    clock::instant,
    journal::Usage,
    world::{Members, shared},
};
use crate::{
    domain::{Decision, Reason},
    lab::{Answer, Item, RequestRecord},
    pool::Reservation,
};

/// One request from its arrival to its end.
pub(super) struct Request {
    arrived_us: u64,
    target: Option<Duration>,
    /// The request itself, until it ended.
    pub(super) item: Option<Box<Item>>,
    task: Arc<str>,
    answers: Arc<[Answer]>,
    prompt_tokens: u32,
    max_output_tokens: Option<u32>,
    /// The router it came to.
    pub(super) mouth: usize,
    /// Its place in the ledger, while an attempt is under way.
    pub(super) reservation: Option<Reservation>,
    /// Which attempt is under way, or was the last.
    pub(super) attempt: u32,
    /// Instances that failed it.
    pub(super) failed_at: Vec<usize>,
    /// The instance of that attempt; absent: no router found one.
    pub(super) instance: Option<usize>,
    /// From its batch to the router, microseconds.
    pub(super) egress_us: u64,
    /// Prompt tokens its first admission found cached.
    pub(super) cached_tokens: u32,
    output_tokens: u32,
    first_us: Option<u64>,
    end_us: Option<u64>,
    told: Told,
}

/// What the decision said of the chosen instance.
#[derive(Clone, Debug, Default)]
struct Told {
    reason: Option<Reason>,
    ttft_s: Option<f64>,
    output_tokens: Option<f64>,
    believed_latency_s: Option<f64>,
    other_ttft_s: BTreeMap<String, f64>,
}

/// Every request of a run, in order of arrival.
#[derive(Default)]
pub(super) struct Requests(Vec<Request>);

impl Requests {
    /// Adds one; returns its number.
    pub(super) fn arrive(&mut self, item: Item, at_us: u64, target: Option<Duration>, mouth: usize) -> usize {
        self.0.push(Request {
            arrived_us: at_us,
            target,
            task: Arc::clone(&item.task),
            answers: Arc::clone(&item.answers),
            prompt_tokens: item.prompt_tokens,
            max_output_tokens: item.max_output_tokens,
            item: Some(Box::new(item)),
            mouth,
            reservation: None,
            attempt: 0,
            failed_at: Vec::new(),
            instance: None,
            egress_us: 0,
            cached_tokens: 0,
            output_tokens: 0,
            first_us: None,
            end_us: None,
            told: Told::default(),
        });
        self.0.len() - 1
    }

    pub(super) fn get(&self, number: usize) -> Option<&Request> {
        self.0.get(number)
    }

    pub(super) fn get_mut(&mut self, number: usize) -> Option<&mut Request> {
        self.0.get_mut(number)
    }

    pub(super) fn arrived_us(&self, number: usize) -> u64 {
        self.0[number].arrived_us
    }

    pub(super) fn target(&self, number: usize) -> Option<Duration> {
        self.0[number].target
    }

    /// Returns the numbers of the requests that an instance holds.
    pub(super) fn held_by(&self, instance: usize) -> Vec<usize> {
        let held = |r: &Request| r.instance == Some(instance) && r.reservation.is_some();
        self.0.iter().enumerate().filter(|(_, r)| held(r)).map(|(number, _)| number).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.0.iter()
    }
}

impl Request {
    /// Keeps what the decision said of the chosen instance.
    pub(super) fn decided(&mut self, decision: &Decision, other_ttft_s: BTreeMap<String, f64>) {
        let chosen = decision.chosen();
        self.told = Told {
            reason: Some(decision.reason),
            ttft_s: chosen.and_then(|chosen| chosen.ttft_s),
            output_tokens: chosen.and_then(|chosen| chosen.output_tokens),
            believed_latency_s: decision.believed_latency_s,
            other_ttft_s,
        };
    }

    /// Takes the first token as the router sees it.
    pub(super) fn first_token(&mut self, at_us: u64) {
        self.first_us.get_or_insert(at_us);
        if let Some(reservation) = &mut self.reservation {
            reservation.first_token();
        }
    }

    /// Takes the end of the answer as the router sees it.
    pub(super) fn ended(&mut self, at_us: u64, output_tokens: u32) {
        self.end_us = Some(at_us);
        self.output_tokens = output_tokens;
        self.item = None;
        let used = self.usage(output_tokens);
        if let Some(mut reservation) = self.reservation.take() {
            reservation.usage(used.prompt_tokens, Some(used.cached_tokens), used.output_tokens);
            reservation.finish(crate::domain::Ending::Complete);
        }
    }

    /// Returns what its engine says that an answer of so many tokens used.
    pub(super) const fn usage(&self, output_tokens: u32) -> Usage {
        Usage { prompt_tokens: self.prompt_tokens, cached_tokens: self.cached_tokens, output_tokens }
    }

    /// Returns whether a failed attempt may be followed by another: its client was told nothing, and its target,
    /// where it has one, lies ahead.
    pub(super) fn may_be_retried(&self, at_us: u64) -> bool {
        let spent = instant(at_us).since(instant(self.arrived_us));
        self.first_us.is_none() && self.target.is_none_or(|target| spent < target)
    }

    /// Returns when it came, microseconds from the start of the run.
    pub(super) const fn arrived_us(&self) -> u64 {
        self.arrived_us
    }

    /// Returns when its answer was whole, microseconds; absent: it never was.
    pub(super) const fn end_us(&self) -> Option<u64> {
        self.end_us
    }

    /// Returns the tokens of its answer.
    pub(super) const fn output_tokens(&self) -> u32 {
        self.output_tokens
    }

    /// Returns whether its answers have scores.
    pub(super) fn is_judged(&self) -> bool {
        self.answers.iter().any(|answer| answer.score.is_some())
    }

    /// Returns the most utility it could have had on an instance; absent: not judged there, or too long for it.
    pub(super) fn most_utility(&self, names: &Names, instance: usize, lambda_per_usd: f64) -> Option<f64> {
        let model = names.model_of[instance];
        let answer = self.answers.get(model)?;
        let output = answer.output_tokens.min(self.max_output_tokens.unwrap_or(u32::MAX)).max(1);
        if self.prompt_tokens >= names.max_model_len_tokens[model] {
            return None;
        }
        let cost = |cached| names.cost_usd(instance, self.prompt_tokens, cached, output);
        Some(answer.score? - lambda_per_usd * cost(0).min(cost(self.prompt_tokens)))
    }

    /// Writes it down.
    pub(super) fn record(&self, names: &Names, lambda_per_usd: f64) -> RequestRecord {
        let answered = self.end_us.is_some();
        let model = self.instance.map(|instance| names.model_of[instance]);
        let answer = model.and_then(|model| self.answers.get(model)).filter(|_| answered);
        let score = answer.and_then(|answer| answer.score);
        let cost_usd = self.instance.filter(|_| answered).map_or(0.0, |instance| {
            names.cost_usd(instance, self.prompt_tokens, self.cached_tokens, self.output_tokens)
        });
        let since = |at_us: u64| instant(at_us).since(instant(self.arrived_us)).as_secs_f64();
        RequestRecord {
            at_us: self.arrived_us,
            task: self.task.to_string(),
            model: model.map_or_else(String::new, |model| names.models[model].to_string()),
            instance: self
                .instance
                .map_or_else(String::new, |instance| names.instances[instance].to_string()),
            reason: self.told.reason.map_or_else(String::new, |reason| reason.label().to_owned()),
            prompt_tokens: self.prompt_tokens,
            output_tokens: self.output_tokens,
            predicted_output_tokens: self.told.output_tokens,
            target_s: self.target.map(|target| target.as_secs_f64()),
            predicted_ttft_s: self.told.ttft_s,
            other_ttft_s: self.told.other_ttft_s.clone(),
            believed_latency_s: self.told.believed_latency_s,
            ttft_s: self.first_us.filter(|_| answered).map(since),
            e2e_s: self.end_us.map(since),
            judged: self.is_judged(),
            score,
            cost_usd,
            utility: score.map(|score| score - lambda_per_usd * cost_usd),
        }
    }
}

/// Names and prices, by pool position.
pub(super) struct Names {
    pub(super) instances: Vec<Arc<str>>,
    pub(super) models: Vec<Arc<str>>,
    /// The model of each instance.
    pub(super) model_of: Vec<usize>,
    pub(super) prices: Vec<crate::domain::Price>,
    /// The longest sequence of each model.
    pub(super) max_model_len_tokens: Vec<u32>,
}

impl Names {
    /// Takes them from a pool.
    pub(super) fn of(members: &Members) -> Self {
        Self {
            instances: shared(members.specs.iter().map(|spec| spec.id.to_string())),
            models: shared(members.models.iter().map(|model| model.id.to_string())),
            model_of: members.specs.iter().map(|spec| spec.model.0).collect(),
            prices: members.specs.iter().map(|spec| spec.price).collect(),
            max_model_len_tokens: members.models.iter().map(|model| model.max_model_len_tokens).collect(),
        }
    }

    /// Returns the cost of an answer on an instance, USD.
    pub(super) fn cost_usd(&self, instance: usize, prompt: u32, cached: u32, output: u32) -> f64 {
        crate::predict::cost_usd(&self.prices[instance], prompt, cached, f64::from(output))
    }
}
