//! The run itself: events in order, from the first arrival until the last answer.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use rand::Rng;
use rand_chacha::ChaCha8Rng;

pub(super) use super::requests::{Names, Requests};
use super::{
    clock::{VirtualClock, instant},
    events::{Event, Events},
    instance::Instance,
    journal::{Keeper, Note},
    mouth::{Mouth, Try, parse_attempt_id},
    traffic::{Stream, Traffic, generator},
    world::{Members, shared},
};
use crate::{
    domain::{Ending, Horizon, InstanceView, Now, QueryLoad, Snapshot},
    engine::{Counters, NewRequest},
    lab::{Item, LabError, RequestRecord, RouterChoice, Scenario, measure::Facts},
    latency::{ESTIMATORS, Estimator, EstimatorSetup},
    pool::PoolConfig,
    predict::Predictor,
    router::Routed,
    truth::stepping::Happening,
};

/// Attempts at one request: one retry, as the gateway's default has it.
const ATTEMPTS: u32 = 2;

/// A fleet under way.
pub(super) struct Fleet<'a> {
    scenario: &'a Scenario,
    clock: Arc<VirtualClock>,
    now: Arc<dyn Now>,
    instances: Vec<Instance>,
    mouths: Vec<Mouth>,
    traffic: Traffic,
    events: Events,
    requests: Requests,
    routing_rng: ChaCha8Rng,
    mouths_rng: ChaCha8Rng,
    /// The newest snapshot of each instance that came to the routers, and its number.
    delivered: Vec<(u64, Option<Arc<Snapshot>>)>,
    /// Captured and on their way, oldest first.
    on_their_way: VecDeque<Vec<(usize, Snapshot)>>,
    last_capture_us: Option<u64>,
    /// Estimators asked beside each decision, where requests are kept.
    others: Vec<(&'static str, Box<dyn Estimator>)>,
    happenings: Vec<Happening>,
    network_us: u64,
    end_us: u64,
    pub(super) journal: Keeper,
}

impl<'a> Fleet<'a> {
    /// Sets up a run.
    pub(super) fn new(
        scenario: &'a Scenario,
        router: &RouterChoice,
        members: &Members,
        predictor: &Arc<Predictor>,
        traffic: Traffic,
        seed: u64,
    ) -> Result<Self, LabError> {
        let clock = Arc::new(VirtualClock::default());
        let instances = members.start(seed)?;
        let mouth = |_| Mouth::new(scenario, router, members, Arc::clone(predictor));
        let others = if scenario.keep_requests > 0 { ESTIMATORS } else { &[] };
        let setup = EstimatorSetup {
            parameters_b: members.models.iter().map(|model| model.parameters_b).collect(),
            ..EstimatorSetup::default()
        };
        Ok(Self {
            scenario,
            now: Arc::clone(&clock) as Arc<dyn Now>,
            clock,
            delivered: vec![(0, None); instances.len()],
            instances,
            mouths: (0..scenario.router_count.max(1)).map(mouth).collect::<Result<_, _>>()?,
            traffic,
            events: Events::default(),
            requests: Requests::default(),
            routing_rng: generator(seed, Stream::Routing),
            mouths_rng: generator(seed, Stream::Mouths),
            on_their_way: VecDeque::new(),
            last_capture_us: None,
            others: others.iter().map(|entry| (entry.name, (entry.construct)(&setup))).collect(),
            happenings: Vec::new(),
            network_us: micros(scenario.network_delay_s),
            end_us: micros(scenario.warmup_s + scenario.duration_s),
            journal: Keeper::default(),
        })
    }

    /// Plays until every request that came has ended.
    pub(super) fn play(&mut self) -> Result<(), LabError> {
        self.plan_failures()?;
        self.draw_arrivals(0);
        while let Some((at_us, event)) = self.events.pop() {
            self.clock.set_us(at_us);
            match event {
                Event::Wake(i) => self.wake(i, at_us),
                Event::Token { request, attempt, number, last } => {
                    self.token(request, attempt, (number, last), at_us);
                }
                Event::Fail(i) => self.fail(i, at_us),
                Event::Recover(i) => self.instances[i].recover(at_us)?,
                Event::Capture => self.capture(at_us),
                Event::Deliver => self.deliver(at_us),
                Event::Arrive(item) => self.arrive(item, at_us),
                Event::Retry(request) => self.send(request, at_us),
            }
        }
        Ok(())
    }

    fn plan_failures(&mut self) -> Result<(), LabError> {
        for failure in &self.scenario.failures {
            let i = self.instances.iter().position(|instance| instance.id == failure.instance);
            let i = i.ok_or_else(|| LabError::Unknown {
                kind: "instance",
                name: failure.instance.clone(),
                known: self.instances.iter().map(|i| i.id.as_str()).collect::<Vec<_>>().join(", "),
            })?;
            let at_us = micros(self.scenario.warmup_s + failure.at_s);
            self.events.push(at_us, Event::Fail(i));
            self.events.push(at_us + micros(failure.for_s), Event::Recover(i));
        }
        Ok(())
    }

    /// Draws arrivals far enough ahead that the captures their decisions will see can still be made.
    fn draw_arrivals(&mut self, now_us: u64) {
        let rule = self.scenario.snapshots;
        let ahead_us = micros((rule.period_ms + rule.delay_ms) / 1e3);
        for at_us in self.traffic.draw(now_us + ahead_us, self.end_us) {
            self.expect(at_us, None, now_us);
        }
    }

    /// Plans an arrival, and the capture that its decision will see where that is still to come.
    fn expect(&mut self, at_us: u64, item: Option<Box<Item>>, now_us: u64) {
        let capture_us = self.capture_for(at_us).filter(|capture_us| *capture_us >= now_us);
        if let Some(capture_us) = capture_us.filter(|c| self.last_capture_us.is_none_or(|last| *c > last)) {
            self.last_capture_us = Some(capture_us);
            self.events.push(capture_us, Event::Capture);
        }
        self.events.push(at_us, Event::Arrive(item));
    }

    /// Returns when the newest snapshot is captured that can have come by `at_us`; absent where it is
    /// captured at the decision itself, or none is.
    fn capture_for(&self, at_us: u64) -> Option<u64> {
        let rule = self.scenario.snapshots;
        let (period_us, delay_us) = (micros(rule.period_ms / 1e3), micros(rule.delay_ms / 1e3));
        let newest_us = at_us.checked_sub(delay_us).filter(|_| rule.enabled)?;
        match (period_us, delay_us) {
            (0, 0) => None,
            (0, _) => Some(newest_us),
            _ => Some(newest_us / period_us * period_us),
        }
    }

    fn capture(&mut self, at_us: u64) {
        let up = self.instances.iter().enumerate().filter(|(_, instance)| instance.up);
        let snapshots = up.map(|(i, instance)| (i, self.published(instance.snapshot(at_us)))).collect();
        self.on_their_way.push_back(snapshots);
        self.events.push(at_us + micros(self.scenario.snapshots.delay_ms / 1e3), Event::Deliver);
    }

    fn published(&self, mut snapshot: Snapshot) -> Snapshot {
        snapshot.engine.async_scheduling ^= self.scenario.misfit.wrong_async;
        snapshot
    }

    fn deliver(&mut self, at_us: u64) {
        for (i, snapshot) in self.on_their_way.pop_front().into_iter().flatten() {
            let snapshot = Arc::new(snapshot);
            self.journal.note(at_us, || Note::Snapshot { instance: i, snapshot: Arc::clone(&snapshot) });
            let (number, newest) = &mut self.delivered[i];
            *number += 1;
            *newest = Some(snapshot);
        }
    }

    /// Lets a router take the snapshots that came since it last looked.
    fn inform(&mut self, mouth: usize, at_us: u64) {
        let rule = self.scenario.snapshots;
        if rule.enabled && rule.period_ms == 0.0 && rule.delay_ms == 0.0 {
            for i in (0..self.instances.len()).filter(|&i| self.instances[i].up) {
                let snapshot = self.published(self.instances[i].snapshot(at_us));
                let number = self.delivered[i].0 + 1;
                self.delivered[i].0 = number;
                self.journal
                    .note(at_us, || Note::Snapshot { instance: i, snapshot: Arc::new(snapshot.clone()) });
                self.mouths[mouth].take(i, number, || snapshot, instant(at_us));
            }
            return;
        }
        for (i, (number, newest)) in self.delivered.iter().enumerate() {
            if let Some(newest) = newest {
                self.mouths[mouth].take(i, *number, || Snapshot::clone(newest), instant(at_us));
            }
        }
    }

    fn arrive(&mut self, item: Option<Box<Item>>, at_us: u64) {
        if item.is_none() {
            self.draw_arrivals(at_us);
        }
        let Some(item) = item.map(|item| *item).or_else(|| self.traffic.item()) else { return };
        let target = self.traffic.target(item.prompt_tokens);
        let mouth = match self.mouths.len() {
            1 => 0,
            mouths => self.mouths_rng.random_range(0..mouths),
        };
        let (prompt_tokens, max_output_tokens) = (item.prompt_tokens, item.max_output_tokens);
        let request = self.requests.arrive(item, at_us, target, mouth);
        self.journal.note(at_us, || Note::Arrival {
            request,
            prompt_tokens,
            max_output_tokens,
            ttft_target: target,
        });
        self.send(request, at_us);
    }

    /// Routes a request and sends it to what was chosen.
    fn send(&mut self, number: usize, at_us: u64) {
        let Some(request) = self.requests.get_mut(number) else { return };
        request.attempt += 1;
        let (mouth, attempt, exclude) = (request.mouth, request.attempt, request.failed_at.clone());
        let Some(item) = request.item.take() else { return };
        self.inform(mouth, at_us);
        let views = (!self.others.is_empty()).then(|| self.mouths[mouth].views(instant(at_us)));
        let described = self.mouths[mouth].describe(&item, number, &self.requests);
        let a_try = Try { request: number, number: attempt, exclude: &exclude };
        let routed = self.mouths[mouth].route(&described, &a_try, &self.now, &mut self.routing_rng);
        let decided = || routed.as_ref().ok().map(|routed| Box::new(routed.decision.clone()));
        self.journal.note(at_us, || Note::Decision { request: number, attempt, decision: decided() });
        match routed {
            Ok(routed) => self.dispatch(number, (item, routed), views, at_us),
            Err(_) => self.give_up(number, at_us),
        }
    }

    fn dispatch(
        &mut self,
        number: usize,
        (item, routed): (Box<Item>, Routed),
        views: Option<Vec<InstanceView>>,
        at_us: u64,
    ) {
        let others = views.map(|views| self.ask_others(&routed, &views, at_us)).unwrap_or_default();
        let i = routed.instance;
        let instance = &mut self.instances[i];
        let answer = item.answers[instance.model];
        let id = routed.reservation.attempt_id().to_owned();
        let Some(request) = self.requests.get_mut(number) else { return };
        request.decided(&routed.decision, others);
        (request.instance, request.cached_tokens) = (i, 0);
        request.reservation = Some(routed.reservation);
        if !instance.up {
            request.item = Some(item);
            self.attempt_failed(number, at_us);
            return;
        }
        request.egress_us = instance.egress_us() + self.network_us;
        let joins_us = at_us + self.network_us + instance.ingress_us();
        let cap = item.max_output_tokens.unwrap_or(u32::MAX);
        let new = NewRequest {
            id,
            prompt_tokens: item.prompt_tokens,
            output_tokens: answer.output_tokens.min(cap).max(1),
            max_tokens: item.max_output_tokens,
            priority: 0,
            block_hashes: Arc::clone(&item.block_hashes),
        };
        request.item = Some(item);
        instance.submit(joins_us, new);
        self.plan_wake(i);
    }

    /// Asks every estimator about the chosen instance as it was before the decision.
    fn ask_others(&self, routed: &Routed, views: &[InstanceView], at_us: u64) -> BTreeMap<String, f64> {
        let Some(chosen) = routed.decision.chosen() else { return BTreeMap::new() };
        let load = QueryLoad {
            prompt_tokens: chosen.prompt_tokens,
            cached_tokens: 0,
            cached_blocks_in_use: 0,
            output_tokens: chosen.output_tokens.map_or(1, |tokens| tokens.ceil() as u32).max(1),
            priority: 0,
        };
        let view = &views[routed.instance];
        let ask = |(name, estimator): &(&'static str, Box<dyn Estimator>)| {
            let estimate = estimator.estimate(load, view, instant(at_us), Horizon::FirstToken);
            estimate.ttft.is_ok().then(|| ((*name).to_owned(), estimate.ttft_s()))
        };
        self.others.iter().filter_map(ask).collect()
    }

    fn plan_wake(&mut self, i: usize) {
        let instance = &mut self.instances[i];
        let Some(next_us) = instance.next_us() else { return };
        if instance.wake_us.is_none_or(|planned_us| next_us < planned_us) {
            instance.wake_us = Some(next_us);
            self.events.push(next_us, Event::Wake(i));
        }
    }

    fn wake(&mut self, i: usize, at_us: u64) {
        if self.instances[i].wake_us != Some(at_us) {
            return;
        }
        self.instances[i].wake_us = None;
        let mut happenings = std::mem::take(&mut self.happenings);
        self.instances[i].advance(at_us, &mut happenings);
        for happening in happenings.drain(..) {
            self.happened(happening);
        }
        self.happenings = happenings;
        self.plan_wake(i);
    }

    fn happened(&mut self, happening: Happening) {
        match happening {
            Happening::Token { id, at_us, output_tokens, last } => {
                let Some((number, attempt)) = parse_attempt_id(&id) else { return };
                let Some(request) = self.requests.get(number) else { return };
                // Routers that have a snapshot need no more of a stream than its first token and its end.
                if output_tokens > 1 && !last && !self.rests_on_ledgers(request.instance) {
                    return;
                }
                let (request, egress_us) = (number, request.egress_us);
                let token = Event::Token { request, attempt, number: output_tokens, last };
                self.events.push(at_us + egress_us, token);
            }
            Happening::Scheduled { id, admission, .. } => {
                let request = parse_attempt_id(&id).and_then(|(number, _)| self.requests.get_mut(number));
                if let Some(request) = request.filter(|_| !admission.resumed) {
                    request.cached_tokens = admission.cached_tokens;
                }
            }
            Happening::Refused { id } => {
                if let Some((number, _)) = parse_attempt_id(&id) {
                    self.settle_failed(number);
                }
            }
        }
    }

    /// Returns whether routers know instance `i` by what they sent and saw alone: no snapshot of its present life
    /// has come to them, or snapshots come when they are too old to be used.
    fn rests_on_ledgers(&self, i: usize) -> bool {
        let rule = self.scenario.snapshots;
        if rule.enabled && rule.period_ms == 0.0 && rule.delay_ms == 0.0 {
            return false;
        }
        let too_old = rule.period_ms + rule.delay_ms >= PoolConfig::default().stale_after_ms as f64;
        let newest = self.delivered[i].1.as_ref();
        !rule.enabled || too_old || newest.is_none_or(|newest| !self.instances[i].lives_in(newest))
    }

    fn token(&mut self, number: usize, attempt: u32, (token, last): (u32, bool), at_us: u64) {
        let Some(request) = self.requests.get_mut(number).filter(|r| r.attempt == attempt) else { return };
        let (mouth, instance) = (request.mouth, request.instance);
        let usage = last.then(|| request.usage(token));
        let Some(reservation) = &mut request.reservation else { return };
        self.journal.note(at_us, || Note::Token { request: number, last: usage });
        reservation.tokens(1);
        if token == 1 {
            request.first_token(at_us);
            self.mouths[mouth].began(instance, instant(at_us));
        }
        if last {
            let follow_up = request.item.take().and_then(|item| item.follow_up);
            request.ended(at_us, token);
            self.mouths[mouth].pool().report_success(instance);
            self.after(follow_up, at_us);
        }
    }

    /// Plans what the end of a request sets free.
    fn after(&mut self, follow_up: Option<Box<crate::lab::FollowUp>>, at_us: u64) {
        if let Some(follow_up) = follow_up {
            let next_us = at_us + follow_up.after_us;
            if next_us < self.end_us {
                self.expect(next_us, Some(Box::new(follow_up.item)), at_us);
            }
        } else if let Some(next_us) = self.traffic.request_ended(at_us).filter(|next| *next < self.end_us) {
            self.expect(next_us, None, at_us);
        }
    }

    fn fail(&mut self, i: usize, at_us: u64) {
        self.instances[i].fail();
        self.instances[i].wake_us = None;
        for number in self.requests.held_by(i) {
            self.attempt_failed(number, at_us);
        }
    }

    /// Settles a failed attempt; one that told the client nothing goes elsewhere while its target lies ahead.
    fn attempt_failed(&mut self, number: usize, at_us: u64) {
        self.settle_failed(number);
        let Some(request) = self.requests.get_mut(number) else { return };
        let (mouth, instance) = (request.mouth, request.instance);
        request.failed_at.push(instance);
        let again = request.attempt < ATTEMPTS && request.may_be_retried(at_us);
        self.journal.note(at_us, || Note::Failure { request: number, again });
        self.mouths[mouth].pool().report_connect_failure(instance, instant(at_us));
        match again {
            true => self.events.push(at_us, Event::Retry(number)),
            false => self.give_up(number, at_us),
        }
    }

    fn settle_failed(&mut self, number: usize) {
        let reservation = self.requests.get_mut(number).and_then(|request| request.reservation.take());
        if let Some(reservation) = reservation {
            reservation.finish(Ending::Failed);
        }
    }

    fn give_up(&mut self, number: usize, at_us: u64) {
        if let Some(request) = self.requests.get_mut(number) {
            request.item = None;
        }
        self.after(None, at_us);
    }

    /// Writes down the measured requests, in order of arrival.
    pub(super) fn records(&self, names: &Names) -> Vec<RequestRecord> {
        let warmup_us = micros(self.scenario.warmup_s);
        let measured = self.requests.iter().filter(|request| request.arrived_us() >= warmup_us);
        measured.map(|request| request.record(names, self.scenario.lambda_per_usd)).collect()
    }

    /// Gathers what metrics need beside the requests.
    pub(super) fn facts(&self, names: &Names) -> Facts {
        let counters: Vec<Counters> = self.instances.iter().map(Instance::counters).collect();
        let sum = |of: fn(&Counters) -> u64| counters.iter().map(of).sum::<u64>();
        let steps = |c: &Counters| c.generation_tokens as f64 / (c.steps.max(1)) as f64;
        let named = names.instances.iter().map(|name| name.to_string());
        let warmup_us = micros(self.scenario.warmup_s);
        let decisions: u64 = self.mouths.iter().map(|mouth| mouth.decisions).sum();
        let estimates: u64 = self.mouths.iter().map(Mouth::estimates).sum();
        Facts {
            duration_s: self.scenario.duration_s,
            warmup_us,
            cache_hit_rate: ratio(sum(|c| c.prefix_cache_hits), sum(|c| c.prefix_cache_queries)),
            preemptions: sum(|c| c.preemptions),
            mean_running: named.zip(counters.iter().map(steps)).collect(),
            estimates_per_decision: ratio(estimates, decisions),
            best_utility: self.best_utility(names, warmup_us),
        }
    }

    /// Returns the mean over requests of the best model's utility, where that is positive.
    fn best_utility(&self, names: &Names, warmup_us: u64) -> f64 {
        let lambda = self.scenario.lambda_per_usd;
        let best = |request: &super::requests::Request| {
            let utility = |instance: usize| {
                let answer = request.answers().get(names.model_of[instance])?;
                let cost_usd = names.cost_usd(instance, request.prompt_tokens(), 0, answer.output_tokens);
                Some(answer.score? - lambda * cost_usd)
            };
            (0..names.instances.len()).filter_map(utility).fold(0.0, f64::max)
        };
        let measured: Vec<f64> =
            self.requests.iter().filter(|request| request.arrived_us() >= warmup_us).map(best).collect();
        measured.iter().sum::<f64>() / (measured.len().max(1)) as f64
    }
}

impl Names {
    /// Takes them from a pool.
    pub(super) fn of(members: &Members) -> Self {
        Self {
            instances: shared(members.specs.iter().map(|spec| spec.id.to_string())),
            models: shared(members.models.iter().map(|model| model.id.to_string())),
            model_of: members.specs.iter().map(|spec| spec.model.0).collect(),
            prices: members.specs.iter().map(|spec| spec.price).collect(),
        }
    }
}

fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b.max(1) as f64
}

fn micros(seconds: f64) -> u64 {
    (seconds * 1e6).round() as u64
}
