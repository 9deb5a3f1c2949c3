//! The run itself: events in order, from the first arrival until the last answer.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::Arc,
};

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::{
    clock::{VirtualClock, instant},
    events::{Event, Events},
    instance::Instance,
    journal::{Keeper, Note},
    mark::Mark,
    micros,
    mouth::{Mouth, Try, parse_attempt_id},
    publishing::{Publishing, TooLate},
    requests::Requests,
    traffic::{Stream, Traffic, generator},
    world::Members,
};
use crate::{
    domain::{Ending, Horizon, InstanceView, Now, QueryLoad},
    engine::NewRequest,
    lab::{FollowUp, Item, LabError, RouterChoice, Scenario},
    latency::{ESTIMATORS, Estimator, EstimatorSetup},
    predict::Predictor,
    router::Routed,
    truth::stepping::Happening,
};

/// Attempts at one request: one retry, as the gateway's default has it.
const ATTEMPTS: u32 = 2;
/// The least time from a failure to the next request of the client that it befell, microseconds.
const AFTER_FAILURE_US: u64 = 1_000_000;

/// A fleet under way.
pub(super) struct Fleet<'a> {
    pub(super) scenario: &'a Scenario,
    clock: Arc<VirtualClock>,
    now: Arc<dyn Now>,
    instances: Vec<Instance>,
    mouths: Vec<Mouth>,
    traffic: Traffic,
    events: Events,
    pub(super) requests: Requests,
    routing_rng: ChaCha8Rng,
    mouths_rng: ChaCha8Rng,
    publishing: Publishing,
    /// Arrivals drawn and still to come, microseconds, in order.
    drawn: VecDeque<u64>,
    /// Estimators asked beside each decision, where requests are kept.
    others: Vec<(&'static str, Box<dyn Estimator>)>,
    happenings: Vec<Happening>,
    network_us: u64,
    pub(super) end_us: u64,
    /// Where the measured time begins and ends.
    pub(super) marks: [Mark; 2],
    /// Why the run cannot go on.
    trouble: Option<LabError>,
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
            publishing: Publishing::new(scenario, instances.len()),
            drawn: VecDeque::new(),
            instances,
            mouths: (0..scenario.router_count.max(1)).map(mouth).collect::<Result<_, _>>()?,
            traffic,
            events: Events::default(),
            requests: Requests::default(),
            routing_rng: generator(seed, Stream::Routing),
            mouths_rng: generator(seed, Stream::Mouths),
            others: others.iter().map(|entry| (entry.name, (entry.construct)(&setup))).collect(),
            happenings: Vec::new(),
            network_us: micros(scenario.network_delay_s),
            end_us: micros(scenario.warmup_s + scenario.duration_s),
            marks: Default::default(),
            trouble: None,
            journal: Keeper::default(),
        })
    }

    /// Plays until every request that came has ended.
    pub(super) fn play(&mut self) -> Result<(), LabError> {
        self.plan_failures()?;
        self.events.push(micros(self.scenario.warmup_s), Event::Mark(0));
        self.events.push(self.end_us, Event::Mark(1));
        if self.publishing.period_us().is_some() {
            self.events.push(0, Event::Capture);
        }
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
                Event::Mark(which) => self.marks[which] = Mark::of(&self.instances, &self.mouths),
                Event::Arrive(item) => self.arrive(item, at_us),
                Event::Retry(request) => self.send(request, at_us),
            }
            if let Some(trouble) = self.trouble.take() {
                return Err(trouble);
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

    /// Draws arrivals far enough ahead that the captures their decisions will see can still be made: at the next
    /// arrival, when more are drawn, all those must be known that see a capture made before it.
    fn draw_arrivals(&mut self, now_us: u64) {
        loop {
            let next_us = self.drawn.front().copied().unwrap_or(now_us);
            let drawn = self.traffic.draw(next_us + self.publishing.ahead_us(), self.end_us);
            if drawn.is_empty() {
                return;
            }
            for at_us in drawn {
                self.drawn.push_back(at_us);
                self.expect(at_us, None, now_us);
            }
        }
    }

    /// Plans an arrival, and the capture that its decision will see.
    fn expect(&mut self, at_us: u64, item: Option<Box<Item>>, now_us: u64) {
        match self.publishing.plan(at_us, now_us) {
            Ok(Some(capture_us)) => self.events.push(capture_us, Event::Capture),
            Ok(None) => {}
            Err(TooLate) => {
                self.trouble = Some(LabError::Invalid {
                    place: self.scenario.name.clone(),
                    key: String::from("snapshots.period_ms"),
                    rule: String::from(
                        "is 0, so that every decision has a snapshot captured for it, but some requests follow an \
                         answer within snapshots.delay_ms and nobody knows of them so early; give a period",
                    ),
                });
            }
        }
        self.events.push(at_us, Event::Arrive(item));
    }

    fn capture(&mut self, at_us: u64) {
        self.publishing.capture(at_us, &self.instances);
        self.events.push(at_us + self.publishing.delay_us(), Event::Deliver);
        let next_us = self.publishing.period_us().map(|period_us| at_us + period_us);
        if let Some(next_us) = next_us.filter(|next_us| *next_us < self.end_us) {
            self.events.push(next_us, Event::Capture);
        }
    }

    fn deliver(&mut self, at_us: u64) {
        for (instance, snapshot) in self.publishing.deliver() {
            self.journal.note(at_us, || Note::Snapshot { instance, snapshot });
        }
    }

    /// Lets a router take the snapshots that came since it last looked.
    fn inform(&mut self, mouth: usize, at_us: u64) {
        if !self.publishing.at_once() {
            for (i, number, newest) in self.publishing.newest() {
                self.mouths[mouth].take(i, number, || newest.clone(), instant(at_us));
            }
            return;
        }
        for i in (0..self.instances.len()).filter(|&i| self.instances[i].up) {
            let snapshot = self.publishing.state(&self.instances[i], at_us);
            let number = self.publishing.next_number(i);
            self.journal.note(at_us, || Note::Snapshot { instance: i, snapshot: Arc::new(snapshot.clone()) });
            self.mouths[mouth].take(i, number, || snapshot, instant(at_us));
        }
    }

    fn arrive(&mut self, item: Option<Box<Item>>, at_us: u64) {
        if item.is_none() {
            self.drawn.pop_front_if(|drawn_us| *drawn_us == at_us);
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
            Err(_) => self.give_up(number, Some(item), at_us),
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
        (request.instance, request.cached_tokens) = (Some(i), 0);
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
        let mut happenings = mem::take(&mut self.happenings);
        self.instances[i].advance(at_us, &mut happenings);
        for happening in happenings.drain(..) {
            self.happened(happening, at_us);
        }
        self.happenings = happenings;
        self.plan_wake(i);
    }

    fn happened(&mut self, happening: Happening, now_us: u64) {
        match happening {
            Happening::Token { id, at_us, output_tokens, last } => {
                let Some((number, attempt)) = parse_attempt_id(&id) else { return };
                let Some(request) = self.requests.get(number) else { return };
                // Routers that have a snapshot need no more of a stream than its first token and its end.
                let ledgers = |i: usize| self.publishing.leaves_to_ledgers(i, &self.instances[i]);
                if output_tokens > 1 && !last && !request.instance.is_some_and(ledgers) {
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
                    let item = request_item(&mut self.requests, number);
                    self.give_up(number, item, now_us);
                }
            }
        }
    }

    fn token(&mut self, number: usize, attempt: u32, (token, last): (u32, bool), at_us: u64) {
        let Some(request) = self.requests.get_mut(number).filter(|r| r.attempt == attempt) else { return };
        let (mouth, Some(instance)) = (request.mouth, request.instance) else { return };
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
    fn after(&mut self, follow_up: Option<Box<FollowUp>>, at_us: u64) {
        if let Some(follow_up) = follow_up {
            let next_us = at_us + follow_up.after_us;
            if next_us < self.end_us {
                self.expect(next_us, Some(Box::new(follow_up.item)), at_us);
            }
        } else {
            self.set_free(at_us, 0);
        }
    }

    /// Plans the next request of a client that waited for an answer, `pause_us` from now at the earliest.
    fn set_free(&mut self, at_us: u64, pause_us: u64) {
        let next_us = self.traffic.request_ended(at_us).map(|next_us| next_us.max(at_us + pause_us));
        if let Some(next_us) = next_us.filter(|next_us| *next_us < self.end_us) {
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
        let (mouth, Some(instance)) = (request.mouth, request.instance) else { return };
        request.failed_at.push(instance);
        let again = request.attempt < ATTEMPTS && request.may_be_retried(at_us);
        self.journal.note(at_us, || Note::Failure { request: number, again });
        self.mouths[mouth].pool().report_connect_failure(instance, instant(at_us));
        if again {
            self.events.push(at_us, Event::Retry(number));
            return;
        }
        let item = request_item(&mut self.requests, number);
        self.give_up(number, item, at_us);
    }

    fn settle_failed(&mut self, number: usize) {
        let reservation = self.requests.get_mut(number).and_then(|request| request.reservation.take());
        if let Some(reservation) = reservation {
            reservation.finish(Ending::Failed);
        }
    }

    /// Ends a request that nobody will answer. The turns that would have followed fail with it.
    fn give_up(&mut self, number: usize, item: Option<Box<Item>>, at_us: u64) {
        let mouth = self.requests.get(number).map_or(0, |request| request.mouth);
        let mut next = item.and_then(|item| item.follow_up);
        let mut turn_us = at_us;
        while let Some(follow_up) = next {
            let FollowUp { after_us, mut item } = *follow_up;
            turn_us += after_us;
            if turn_us >= self.end_us {
                break;
            }
            next = item.follow_up.take();
            let target = self.traffic.target(item.prompt_tokens);
            let lost = self.requests.arrive(item, turn_us, target, mouth);
            drop(request_item(&mut self.requests, lost));
        }
        self.set_free(at_us, AFTER_FAILURE_US);
    }
}

fn request_item(requests: &mut Requests, number: usize) -> Option<Box<Item>> {
    requests.get_mut(number).and_then(|request| request.item.take())
}
