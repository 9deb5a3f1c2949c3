//! The task that owns one simulated engine in real time: requests and questions come in by a channel,
//! tokens go out by one channel a request. Nothing else touches the engine, so nothing locks it.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{mpsc, oneshot, watch};

use super::metrics::{EngineMetrics, Finished, Gauges};
use crate::{
    domain::{Now, Snapshot},
    engine::{NewRequest, SnapshotMeta},
    truth::stepping::{Happening, Stepping, TimeScale},
};

/// The grain of the runtime's timer rounds every sleep up; half of it is taken off to stay unbiased.
const HALF_TIMER_GRAIN: Duration = Duration::from_micros(500);

/// Weight of the latest wake-up in the mean lag.
const LAG_WEIGHT: f64 = 0.02;

/// How late the task lately woke up for what was due, on average: a machine that is too slow for its load
/// shows here before anywhere else.
#[derive(Clone, Debug, Default)]
pub(super) struct Lag(Arc<AtomicU64>);

impl Lag {
    /// Returns the mean lag.
    pub(super) fn mean(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }

    fn record(&self, late: Duration) {
        let before = self.0.load(Ordering::Relaxed) as f64;
        let after = before + LAG_WEIGHT * (late.as_micros() as f64 - before);
        self.0.store(after.round() as u64, Ordering::Relaxed);
    }
}

/// One sequence on its way into the engine.
#[derive(Debug)]
pub(super) struct Submission {
    /// The request as the engine sees it.
    pub(super) request: NewRequest,
    /// Its id in snapshots.
    pub(super) public_id: String,
    /// Which of its client's answers it is.
    pub(super) choice: u32,
    /// When it reached the server, simulated time.
    pub(super) received_us: u64,
    /// When it joins the queue, simulated time.
    pub(super) joins_us: u64,
    /// From the end of its batch to the client.
    pub(super) egress_us: u64,
    /// Whether it ends by itself rather than at its cap.
    pub(super) stops: bool,
    /// Where its tokens go.
    pub(super) tokens: mpsc::UnboundedSender<Emission>,
}

/// One token of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Emission {
    /// Which of the request's answers it belongs to.
    pub(super) choice: u32,
    /// Its number in that answer, from 1.
    pub(super) number: u32,
    /// When the client may see it, simulated time.
    pub(super) due_us: u64,
    /// Whether the answer ends with it.
    pub(super) last: bool,
    /// Prompt tokens that were served from the prefix cache.
    pub(super) cached_tokens: u32,
}

enum Message {
    Submit(Box<Submission>),
    Abort(String),
    Snapshot(oneshot::Sender<Snapshot>),
    Metrics(oneshot::Sender<(EngineMetrics, Gauges)>),
}

/// A handle on the owning task. Cheap to clone; the task ends with the last of them.
#[derive(Clone)]
pub(super) struct OwnerHandle {
    messages: mpsc::UnboundedSender<Message>,
    clock: Arc<dyn Now>,
    scale: TimeScale,
    lag: Lag,
}

/// The owning task is gone: the engine was shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the simulated engine is shut down")]
pub(super) struct Gone;

impl OwnerHandle {
    /// Returns how late the task runs.
    pub(super) fn lag(&self) -> Lag {
        self.lag.clone()
    }

    /// Returns the present simulated time.
    #[must_use]
    pub(super) fn now_us(&self) -> u64 {
        self.scale.simulated_us(self.clock.now())
    }

    /// Returns the wall clock's Unix seconds.
    #[must_use]
    pub(super) fn unix_s(&self) -> u64 {
        self.clock.now().unix_us() / 1_000_000
    }

    /// Sleeps until a simulated time; returns at once where it has passed.
    pub(super) async fn sleep_until(&self, simulated_us: u64) {
        sleep_until(self.scale, self.clock.as_ref(), simulated_us).await;
    }

    /// Sends a sequence in.
    ///
    /// # Errors
    /// [`Gone`].
    pub(super) fn submit(&self, submission: Submission) -> Result<(), Gone> {
        self.messages.send(Message::Submit(Box::new(submission))).map_err(|_| Gone)
    }

    /// Takes a sequence out; one that has ended already is no matter.
    pub(super) fn abort(&self, id: String) {
        _ = self.messages.send(Message::Abort(id));
    }

    /// Captures the engine's state now.
    ///
    /// # Errors
    /// [`Gone`].
    pub(super) async fn snapshot(&self) -> Result<Snapshot, Gone> {
        self.ask(Message::Snapshot).await
    }

    /// Returns what the engine counted and what it does now.
    ///
    /// # Errors
    /// [`Gone`].
    pub(super) async fn metrics(&self) -> Result<(EngineMetrics, Gauges), Gone> {
        self.ask(Message::Metrics).await
    }

    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Message) -> Result<T, Gone> {
        let (reply, answer) = oneshot::channel();
        self.messages.send(question(reply)).map_err(|_| Gone)?;
        answer.await.map_err(|_| Gone)
    }
}

async fn sleep_until(scale: TimeScale, clock: &dyn Now, simulated_us: u64) {
    let left = scale.wall(simulated_us).since(clock.now());
    match left.checked_sub(HALF_TIMER_GRAIN) {
        Some(sleep) => tokio::time::sleep(sleep).await,
        None => tokio::task::yield_now().await,
    }
}

/// How the engine names itself in snapshots.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    /// The instance.
    pub(super) instance: String,
    /// Changes with every start.
    pub(super) nonce: String,
}

/// Starts the owning task; it ends when `stopped` turns true or its sender is dropped.
#[must_use]
pub(super) fn start(
    stepping: Stepping,
    identity: Identity,
    scale: TimeScale,
    clock: Arc<dyn Now>,
    stopped: watch::Receiver<bool>,
) -> OwnerHandle {
    let (messages, inbox) = mpsc::unbounded_channel();
    let lag = Lag::default();
    let handle = OwnerHandle { messages, clock: Arc::clone(&clock), scale, lag: lag.clone() };
    let owner = Owner {
        stepping,
        identity,
        scale,
        clock,
        lag,
        listeners: HashMap::new(),
        public_ids: HashMap::new(),
        metrics: EngineMetrics::default(),
        happenings: Vec::new(),
    };
    tokio::spawn(async move {
        tokio::select! {
            () = owner.run(inbox) => {}
            () = until(stopped) => {}
        }
    });
    handle
}

/// Waits until the engine is told to stop, or nobody is left to tell it.
pub(super) async fn until(mut stopped: watch::Receiver<bool>) {
    _ = stopped.wait_for(|stopped| *stopped).await;
}

struct Listener {
    choice: u32,
    public_id: String,
    prompt_tokens: u32,
    received_us: u64,
    joins_us: u64,
    egress_us: u64,
    stops: bool,
    cached_tokens: Option<u32>,
    last_token_us: Option<u64>,
    tokens: mpsc::UnboundedSender<Emission>,
}

struct Owner {
    stepping: Stepping,
    identity: Identity,
    scale: TimeScale,
    clock: Arc<dyn Now>,
    lag: Lag,
    listeners: HashMap<String, Listener>,
    /// Engine id by the id that snapshots show.
    public_ids: HashMap<String, String>,
    metrics: EngineMetrics,
    happenings: Vec<Happening>,
}

impl Owner {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Message>) {
        loop {
            let next_us = self.stepping.next_us();
            let due = async {
                match next_us {
                    Some(at_us) => sleep_until(self.scale, self.clock.as_ref(), at_us).await,
                    None => std::future::pending().await,
                }
            };
            let message = tokio::select! {
                message = inbox.recv() => match message {
                    Some(message) => Some(message),
                    None => return,
                },
                () = due => None,
            };
            self.catch_up(if message.is_none() { next_us } else { None });
            if let Some(message) = message {
                self.handle(message);
            }
        }
    }

    /// Runs what is due by now. `woken_for_us` is due even if the sleep ended a little early.
    fn catch_up(&mut self, woken_for_us: Option<u64>) {
        let now = self.clock.now();
        if let Some(due_us) = woken_for_us {
            self.lag.record(now.since(self.scale.wall(due_us)));
        }
        let now_us = self.scale.simulated_us(now).max(woken_for_us.unwrap_or(0));
        let mut happenings = std::mem::take(&mut self.happenings);
        self.stepping.advance(now_us, &mut happenings);
        for happening in happenings.drain(..) {
            self.tell(happening);
        }
        self.happenings = happenings;
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Submit(submission) => self.submit(*submission),
            Message::Abort(id) => {
                if self.stepping.abort(&id) {
                    self.forget(&id);
                    self.metrics.finish(Finished::Abort);
                }
            }
            Message::Snapshot(reply) => _ = reply.send(self.snapshot()),
            Message::Metrics(reply) => _ = reply.send((self.metrics.clone(), self.gauges())),
        }
    }

    fn submit(&mut self, s: Submission) {
        let id = s.request.id.clone();
        let public_id = if self.public_ids.contains_key(&s.public_id) { id.clone() } else { s.public_id };
        self.public_ids.insert(public_id.clone(), id.clone());
        let listener = Listener {
            choice: s.choice,
            public_id,
            prompt_tokens: s.request.prompt_tokens,
            received_us: s.received_us,
            joins_us: s.joins_us,
            egress_us: s.egress_us,
            stops: s.stops,
            cached_tokens: None,
            last_token_us: None,
            tokens: s.tokens,
        };
        self.listeners.insert(id, listener);
        self.stepping.submit(s.joins_us, s.request);
    }

    fn forget(&mut self, id: &str) -> Option<Listener> {
        let listener = self.listeners.remove(id)?;
        self.public_ids.remove(&listener.public_id);
        Some(listener)
    }

    fn tell(&mut self, happening: Happening) {
        match happening {
            Happening::Refused { id } => _ = self.forget(&id),
            Happening::Scheduled { id, at_us, admission } => {
                let Some(listener) = self.listeners.get_mut(&*id) else { return };
                if listener.cached_tokens.is_none() {
                    listener.cached_tokens = Some(admission.cached_tokens);
                    self.metrics.prompt_tokens += u64::from(listener.prompt_tokens);
                    self.metrics.request_queue_time.record(seconds(at_us, listener.joins_us));
                }
            }
            Happening::Token { id, at_us, output_tokens, last } => {
                self.token(&id, at_us, output_tokens, last)
            }
        }
    }

    fn token(&mut self, id: &str, at_us: u64, number: u32, last: bool) {
        let Some(listener) = self.listeners.get_mut(id) else { return };
        let due_us = at_us + listener.egress_us;
        self.metrics.generation_tokens += 1;
        match listener.last_token_us.replace(at_us) {
            None => self.metrics.time_to_first_token.record(seconds(due_us, listener.received_us)),
            Some(before_us) => self.metrics.inter_token_latency.record(seconds(at_us, before_us)),
        }
        let emission = Emission {
            choice: listener.choice,
            number,
            due_us,
            last,
            cached_tokens: listener.cached_tokens.unwrap_or(0),
        };
        _ = listener.tokens.send(emission);
        if last {
            self.metrics.e2e_request_latency.record(seconds(due_us, listener.received_us));
            self.metrics.finish(if listener.stops { Finished::Stop } else { Finished::Length });
            self.forget(id);
        }
    }

    fn snapshot(&self) -> Snapshot {
        let mut snapshot = self.stepping.engine().snapshot(SnapshotMeta {
            instance: self.identity.instance.clone(),
            dp_rank: 0,
            nonce: self.identity.nonce.clone(),
            captured: self.clock.now(),
        });
        let public = |id: &str| self.listeners.get(id).map(|listener| listener.public_id.clone());
        for resident in snapshot.running.iter_mut().chain(&mut snapshot.waiting) {
            if let Some(id) = public(&resident.id) {
                resident.id = id;
            }
        }
        if let Some(in_flight) = &mut snapshot.in_flight {
            // A sleep may end a little early, and its batch begins then: never after the capture.
            snapshot.captured_unix_us = snapshot.captured_unix_us.max(in_flight.started_unix_us);
            let tokens = std::mem::take(&mut in_flight.tokens);
            in_flight.tokens =
                tokens.into_iter().map(|(id, tokens)| (public(&id).unwrap_or(id), tokens)).collect();
        }
        snapshot
    }

    fn gauges(&self) -> Gauges {
        let (engine, counters) = (self.stepping.engine(), self.stepping.engine().counters());
        Gauges {
            running: engine.num_running(),
            waiting: engine.num_waiting(),
            kv_cache_usage: engine.kv_cache_usage(),
            prefix_cache_queries: counters.prefix_cache_queries,
            prefix_cache_hits: counters.prefix_cache_hits,
            preemptions: counters.preemptions,
        }
    }
}

fn seconds(later_us: u64, earlier_us: u64) -> f64 {
    later_us.saturating_sub(earlier_us) as f64 / 1e6
}
