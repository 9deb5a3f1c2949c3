//! Lab and live gateway decide alike: one trace, played by the lab, is put before a gateway under a fake clock,
//! and every decision is compared, the whole table of it.
//!
//! The lab's journal says what reached its router and when. Here requests come over HTTP, tokens, usage and
//! failures from engines that do what the journal says, and snapshots as JSON under the gateway's attempt ids.
//! One thing happens at a time, and its effect is awaited before the next.
#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    extract::State,
    response::Response,
    routing::post,
};
use bear::{
    domain::{Decision, Now, Snapshot, Timestamp, snapshot::Resident},
    gateway::{Dice, GatewayConfig, UpstreamConfig},
    lab::{
        Failure, Scenario,
        fleet::{Journal, Note, Supplies, Usage, journal},
    },
    policy::{POLICIES, PolicyConfig},
    pool::PoolConfig,
    router::RouterConfig,
    wire,
};
use futures::stream::poll_fn;
use http::HeaderMap;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tokio::{
    net::TcpListener,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::timeout,
};

use crate::fakes::{Options, TestApp, Upstreams};

/// Longest wait for an effect: only a test that fails waits so long.
const PATIENCE: Duration = Duration::from_secs(20);
/// Tokens that the gateway adds for a message, and bytes that it takes for a token, where it has no tokenizer.
const TOKENS_PER_MESSAGE: u32 = 5;
const BYTES_PER_TOKEN: u32 = 4;

/// A present that the test moves.
#[derive(Debug, Default)]
struct Clock(AtomicU64);

impl Now for Clock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_us(self.0.load(Ordering::SeqCst))
    }
}

/// An attempt that has come to an engine, which holds it.
struct Call {
    instance: usize,
    attempt_id: String,
    pieces: UnboundedSender<Result<Bytes, io::Error>>,
}

/// Starts an engine that hands every attempt to the test and answers what the test says.
async fn engine(instance: usize, calls: UnboundedSender<Call>) -> String {
    async fn hold(
        State((instance, calls)): State<(usize, UnboundedSender<Call>)>,
        headers: HeaderMap,
        _body: Bytes,
    ) -> Response {
        let (pieces, mut said) = unbounded_channel();
        let attempt_id = headers["x-request-id"].to_str().unwrap().to_owned();
        calls.send(Call { instance, attempt_id, pieces }).unwrap();
        let body = Body::from_stream(poll_fn(move |cx| said.poll_recv(cx)));
        Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
    }
    let app = axum::Router::new().route("/v1/chat/completions", post(hold)).with_state((instance, calls));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    url
}

/// What a client sees.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    /// An error in place of an answer.
    Refused,
    /// An event of an answer.
    Event,
    /// The end of it.
    End,
}

/// Sends a request and tells what comes back.
fn ask(request: reqwest::RequestBuilder) -> UnboundedReceiver<Heard> {
    let (tell, heard) = unbounded_channel();
    tokio::spawn(async move {
        let mut response = request.send().await.unwrap();
        if !response.status().is_success() {
            let _gone = tell.send(Heard::Refused);
            return;
        }
        let mut text = String::new();
        while let Ok(Some(chunk)) = response.chunk().await {
            text.push_str(std::str::from_utf8(&chunk).unwrap());
            while let Some(at) = text.find("\n\n") {
                text.drain(..at + 2);
                let _gone = tell.send(Heard::Event);
            }
        }
        let _gone = tell.send(Heard::End);
    });
    heard
}

/// Where an attempt at a request went; absent: nowhere.
type Choices = BTreeMap<(usize, u32), Option<usize>>;

/// Plays a journal to a gateway.
struct Driver {
    app: TestApp,
    clock: Arc<Clock>,
    calls: UnboundedReceiver<Call>,
    clients: HashMap<usize, UnboundedReceiver<Heard>>,
    /// The last attempt at each request.
    attempts: HashMap<usize, (u32, UnboundedSender<Result<Bytes, io::Error>>)>,
    /// The gateway's attempt ids by the lab's.
    ids: HashMap<String, String>,
    choices: Choices,
}

impl Driver {
    async fn play(&mut self, journal: &Journal) {
        for entry in &journal.entries {
            self.clock.0.store(entry.at.unix_us(), Ordering::SeqCst);
            match &entry.note {
                Note::Snapshot { instance, snapshot } => self.publish(*instance, snapshot, entry.at),
                Note::Arrival { request, .. } => self.send(*request, &entry.note),
                Note::Decision { request, attempt, .. } => self.decided(*request, *attempt).await,
                Note::Token { request, last } => self.token(*request, *last).await,
                // The gateway tries again at once: it hears of the failure when the lab does.
                Note::Failure { again: true, .. } => {}
                Note::Failure { request, again: false } => self.fail(*request).await,
            }
        }
    }

    fn publish(&self, instance: usize, snapshot: &Snapshot, at: Timestamp) {
        let ours = |id: &String| self.ids.get(id).cloned().unwrap_or_else(|| id.clone());
        let rename = |resident: &mut Resident| resident.id = ours(&resident.id);
        let mut snapshot = snapshot.clone();
        snapshot.running.iter_mut().chain(&mut snapshot.waiting).for_each(rename);
        if let Some(in_flight) = &mut snapshot.in_flight {
            in_flight.tokens = in_flight.tokens.iter().map(|(id, tokens)| (ours(id), *tokens)).collect();
        }
        let snapshot = wire::snapshot::decode(&wire::snapshot::encode(&snapshot)).unwrap();
        // One that is too old is refused, in the lab as here.
        let _refused = self.app.pool.publish(instance, snapshot, at);
    }

    fn send(&mut self, request: usize, arrival: &Note) {
        let Note::Arrival { prompt_tokens, max_output_tokens, ttft_target, .. } = arrival else { return };
        let text = "a".repeat(((prompt_tokens - TOKENS_PER_MESSAGE) * BYTES_PER_TOKEN) as usize);
        let cap = max_output_tokens.map_or_else(String::new, |cap| format!(r#","max_tokens":{cap}"#));
        let body = format!(
            r#"{{"model":"auto","stream":true,"messages":[{{"role":"user","content":"{text}"}}]{cap}}}"#
        );
        let mut post =
            self.app.post("/v1/chat/completions", body).header("x-request-id", format!("q{request}"));
        if let Some(target) = ttft_target {
            post = post.header("x-slo-ttft-ms", (target.as_micros() as f64 / 1e3).to_string());
        }
        self.clients.insert(request, ask(post));
    }

    /// Waits for an attempt to come to an engine, or for the request's refusal.
    async fn decided(&mut self, request: usize, attempt: u32) {
        if attempt > 1 {
            self.break_off(request);
        }
        let client = self.clients.get_mut(&request).unwrap();
        let waiting = async {
            tokio::select! {
                call = self.calls.recv() => call,
                heard = client.recv() => {
                    assert_eq!(heard, Some(Heard::Refused), "request {request}, attempt {attempt}");
                    None
                }
            }
        };
        let call =
            timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("request {request} went nowhere"));
        self.choices.insert((request, attempt), call.as_ref().map(|call| call.instance));
        if let Some(Call { attempt_id, pieces, .. }) = call {
            self.ids.insert(format!("{request}.{attempt}"), attempt_id);
            self.attempts.insert(request, (attempt, pieces));
        }
    }

    async fn token(&mut self, request: usize, last: Option<Usage>) {
        let Some((_, pieces)) = self.attempts.get(&request) else { return };
        let pieces = pieces.clone();
        let content = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n";
        pieces.send(Ok(Bytes::from(content))).unwrap();
        self.hear(request, &Heard::Event).await;
        let Some(Usage { prompt_tokens, cached_tokens, output_tokens }) = last else { return };
        let usage = serde_json::json!({"choices": [], "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": output_tokens,
            "total_tokens": prompt_tokens + output_tokens,
            "prompt_tokens_details": {"cached_tokens": cached_tokens},
        }});
        pieces.send(Ok(format!("data: {usage}\n\ndata: [DONE]\n\n").into())).unwrap();
        drop((self.attempts.remove(&request), pieces));
        self.hear(request, &Heard::End).await;
    }

    /// Breaks the connection that holds a request's last attempt.
    fn break_off(&mut self, request: usize) {
        if let Some((_, pieces)) = self.attempts.remove(&request) {
            pieces.send(Err(io::Error::other("the engine died"))).unwrap();
        }
    }

    /// Breaks an attempt that the lab does not repeat. Where the gateway does, that is a choice of its own.
    async fn fail(&mut self, request: usize) {
        let Some((attempt, _)) = self.attempts.get(&request) else { return };
        let next = attempt + 1;
        self.break_off(request);
        let client = self.clients.get_mut(&request).unwrap();
        let over = async { while let Some(Heard::Event) = client.recv().await {} };
        let again = async {
            tokio::select! {
                call = self.calls.recv() => call,
                () = over => None,
            }
        };
        if let Some(call) = timeout(PATIENCE, again).await.unwrap() {
            self.choices.insert((request, next), Some(call.instance));
            self.ids.insert(format!("{request}.{next}"), call.attempt_id);
            self.attempts.insert(request, (next, call.pieces));
        }
    }

    /// Waits until a request's client hears something: the gateway has then seen it.
    async fn hear(&mut self, request: usize, what: &Heard) {
        let client = self.clients.get_mut(&request).unwrap();
        let until = async { while client.recv().await.unwrap() != *what {} };
        timeout(PATIENCE, until).await.unwrap_or_else(|_| panic!("request {request}: no {what:?}"));
    }
}

/// What the live side does otherwise than the lab.
#[derive(Default)]
struct Otherwise {
    lambda_per_usd: Option<f64>,
    draws: Option<u64>,
}

/// One decision for comparison: absent where nothing could be chosen.
type Decided = BTreeMap<(usize, u32), Option<Decision>>;

/// Plays a scenario's journal to a gateway that is set up as the lab's router; returns what it decided.
async fn live(scenario: &Scenario, journal: &Journal, otherwise: Otherwise) -> Decided {
    let (calls, received) = unbounded_channel();
    let mut urls = Vec::new();
    for instance in 0..journal.instances.len() {
        urls.push(engine(instance, calls.clone()).await);
    }
    let clock = Arc::new(Clock::default());
    let choice = &scenario.routers[0];
    let policy = PolicyConfig { name: choice.policy.name.clone(), options: choice.policy.options.clone() };
    let hour_s = 3600.0;
    let upstream = UpstreamConfig {
        first_byte_timeout_s: hour_s,
        idle_timeout_s: hour_s,
        total_timeout_s: hour_s,
        ..UpstreamConfig::default()
    };
    let options = Options {
        gateway: GatewayConfig { upstream, ..GatewayConfig::default() },
        router: RouterConfig {
            policy,
            lambda_per_usd: otherwise.lambda_per_usd.unwrap_or(scenario.lambda_per_usd),
            delta_per_s: scenario.delta_per_s,
            ..RouterConfig::default()
        },
        pool: PoolConfig::default(),
        models: journal.models.clone(),
        instances: journal.instances.clone(),
        clock: Arc::clone(&clock) as Arc<dyn Now>,
        dice: Dice::shared(otherwise.draws.map_or_else(|| journal.draws.clone(), ChaCha8Rng::seed_from_u64)),
        ..Options::default()
    };
    let mut driver = Driver {
        app: TestApp::over(options, Upstreams::start(0).await, urls).await,
        clock,
        calls: received,
        clients: HashMap::new(),
        attempts: HashMap::new(),
        ids: HashMap::new(),
        choices: Choices::new(),
    };
    driver.play(journal).await;
    let Driver { app, choices, .. } = driver;
    assert!(app.is_idle(), "something is left in a ledger");
    tables(app, &choices).await
}

/// Joins the choices seen with the tables that the gateway logged of them.
async fn tables(app: TestApp, choices: &Choices) -> Decided {
    let pool = Arc::clone(&app.pool);
    let rows = app.rows().await;
    let key = |decision: &Decision| (decision.request_id[1..].parse().unwrap(), decision.attempt);
    let mut logged: HashMap<(usize, u32), Decision> =
        rows.into_iter().map(|row| (key(&row.decision), row.decision)).collect();
    let join = |(key, chosen): (&(usize, u32), &Option<usize>)| {
        let decision = chosen.map(|instance| {
            let decision = logged.remove(key).unwrap_or_else(|| panic!("no row of attempt {key:?}"));
            assert_eq!(decision.chosen().unwrap().instance, pool.spec(instance).id, "attempt {key:?}");
            decision
        });
        (*key, decision)
    };
    choices.iter().map(join).collect()
}

/// Returns what the lab decided. The store keeps a table's rows as text, whose reader may round: so do we.
fn lab(journal: &Journal) -> Decided {
    let decided = journal.entries.iter().filter_map(|entry| match &entry.note {
        Note::Decision { request, attempt, decision } => Some(((*request, *attempt), decision.as_deref())),
        _ => None,
    });
    let logged = |decision: &Decision| {
        let text = serde_json::to_string(&decision.candidates).unwrap();
        Decision { candidates: serde_json::from_str(&text).unwrap(), ..decision.clone() }
    };
    decided.map(|(key, decision)| (key, decision.map(logged))).collect()
}

/// Removes what must differ: the gateway sizes prompts by their bytes and says so. The store keeps no latency
/// that a policy believes in. What is said of an instance
/// that cannot be chosen depends on how many of its failures were heard of by then.
fn comparable(mut decision: Decision) -> Decision {
    decision.believed_latency_s = None;
    decision.candidates.iter_mut().for_each(|row| row.count_source.clear());
    decision.candidates.retain(|row| row.ineligible.is_none());
    decision
}

/// Returns the first difference and the number of them; absent: there is none.
fn differences(lab: &Decided, live: &Decided) -> Option<String> {
    let keys: BTreeSet<_> = lab.keys().chain(live.keys()).collect();
    let side = |of: &Decided, key| of.get(key).cloned().map(|decided| decided.map(comparable));
    let differing: Vec<_> = keys.into_iter().filter(|key| side(lab, key) != side(live, key)).collect();
    let first = differing.first()?;
    let said = |of: &Decided| match side(of, first) {
        None => String::from("  decides nothing"),
        Some(None) => String::from("  finds no instance"),
        Some(Some(decision)) => format!("{decision:#?}"),
    };
    let (request, attempt) = first;
    let count = differing.len();
    Some(format!(
        "{count} of {} decisions differ, first that of request {request}, attempt {attempt}\nlab:\n{}\nlive:\n{}",
        lab.len(),
        said(lab),
        said(live)
    ))
}

/// Returns how many decisions chose another instance.
fn chosen_otherwise(lab: &Decided, live: &Decided) -> usize {
    let instance = |of: &Decided, key| {
        let decision = of.get(key).and_then(Option::as_ref)?;
        decision.chosen().map(|row| row.instance.clone())
    };
    lab.keys().filter(|key| instance(lab, key) != instance(live, key)).count()
}

/// Three models, the middle one on two instances, under more load than they all take in time.
fn scenario(change: impl FnOnce(&mut Scenario)) -> Scenario {
    let text = "
        name: parity
        pool:
          - {profile: qwen3-0.6b-h100, price: {input_usd_per_mtok: 0.044, output_usd_per_mtok: 0.173}}
          - {profile: qwen3-8b-h100, replicas: 2, price: {input_usd_per_mtok: 0.072, output_usd_per_mtok: 0.287}}
          - {profile: qwen3-32b-2xh100, price: {input_usd_per_mtok: 0.287, output_usd_per_mtok: 0.640}}
        workload: {name: four-tasks}
        arrivals: {name: poisson, options: {rate_qps: 16.0}}
        duration_s: 20
        predictor: {kind: mean}
        routers: [{label: bear, policy: {name: bear}}]
        ";
    let mut scenario = Scenario::parse(text, "parity").unwrap();
    change(&mut scenario);
    scenario
}

fn journal_of(scenario: &Scenario) -> Journal {
    journal(scenario, &scenario.routers[0], 1, &Supplies::default()).unwrap()
}

/// Asserts that lab and gateway decide alike; returns the decisions.
async fn alike(scenario: &Scenario) -> Decided {
    let journal = journal_of(scenario);
    let (lab, live) = (lab(&journal), live(scenario, &journal, Otherwise::default()).await);
    if let Some(difference) = differences(&lab, &live) {
        panic!("{}: {difference}", scenario.routers[0].policy.name);
    }
    lab
}

/// Returns how often each instance was chosen and for which reasons.
fn spread(decided: &Decided) -> (BTreeMap<String, usize>, BTreeSet<&'static str>) {
    let mut instances = BTreeMap::new();
    let mut reasons = BTreeSet::new();
    for decision in decided.values().flatten() {
        *instances.entry(decision.chosen().unwrap().instance.to_string()).or_default() += 1;
        reasons.insert(decision.reason.label());
    }
    (instances, reasons)
}

#[tokio::test]
async fn with_fresh_snapshots_every_decision_is_the_labs() {
    let decided = alike(&scenario(|_| {})).await;
    let (instances, reasons) = spread(&decided);
    assert!(decided.len() > 200 && instances.len() == 4, "{instances:?}");
    assert!(reasons.contains("max-utility") && reasons.contains("least-ttft"), "{reasons:?}");
}

#[tokio::test]
async fn with_late_snapshots_every_decision_is_the_labs() {
    let late = scenario(|s| (s.snapshots.period_ms, s.snapshots.delay_ms) = (100.0, 250.0));
    let decided = alike(&late).await;
    let old =
        |decision: &Decision| decision.chosen().and_then(|row| row.age_s).is_some_and(|age_s| age_s > 0.2);
    assert!(decided.values().flatten().filter(|decision| old(decision)).count() > 200);
}

#[tokio::test]
async fn by_the_ledger_alone_every_decision_is_the_labs() {
    let alone = scenario(|s| {
        s.snapshots.enabled = false;
        s.duration_s = 6.0;
        s.workload.options.insert("output_factor".into(), 0.3.into());
    });
    let decided = alike(&alone).await;
    let source = |decision: &Decision| decision.chosen().and_then(|row| row.source.clone());
    assert!(decided.len() > 60);
    assert!(decided.values().flatten().all(|decision| source(decision).as_deref() == Some("bea-ledger")));
}

fn down(instance: &str, at_s: f64, for_s: f64) -> Failure {
    Failure { instance: instance.into(), at_s, for_s }
}

#[tokio::test]
async fn when_an_instance_fails_every_retry_is_the_labs() {
    let failing = scenario(|s| {
        s.snapshots.delay_ms = 50.0;
        s.arrivals.options.insert("rate_qps".into(), 30.0.into());
        s.failures = (1..10).map(|k| down("qwen3-8b-0", f64::from(k) * 1.5, 0.4)).collect();
        s.failures.extend((1..10).map(|k| down("qwen3-0.6b-0", f64::from(k) * 1.5 + 0.7, 0.4)));
        s.failures.push(down("qwen3-32b-0", 6.0, 4.0));
    });
    let decided = alike(&failing).await;
    assert!(spread(&decided).1.contains("retry"));
}

#[tokio::test]
async fn when_answers_begin_but_none_ends_the_breaker_opens_as_in_the_lab() {
    let failing = scenario(|s| {
        s.routers[0].policy.name = "round-robin".into();
        s.workload.options.insert("mix".into(), serde_json::json!({"creative-writing": 1.0}));
        s.arrivals.options.insert("rate_qps".into(), 10.0.into());
        s.duration_s = 8.0;
        s.failures = (1..12).map(|k| down("qwen3-32b-0", f64::from(k) * 0.6, 0.02)).collect();
    });
    let decided = alike(&failing).await;
    let shut = |decision: &&Decision| {
        let why = decision.candidates[3].ineligible.as_ref().map(|why| format!("{why:?}"));
        why.is_some_and(|why| why.contains("breaker open"))
    };
    assert!(decided.values().flatten().filter(shut).count() > 10);
}

#[tokio::test]
async fn whichever_policy_decides_every_decision_is_the_labs() {
    for policy in POLICIES {
        alike(&scenario(|s| {
            s.routers[0].policy.name = policy.name.to_owned();
            s.snapshots.delay_ms = 20.0;
            s.duration_s = 2.0;
        }))
        .await;
    }
}

#[tokio::test]
async fn a_gateway_that_differs_decides_otherwise() {
    let scenario = scenario(|s| s.duration_s = 8.0);
    let journal = journal_of(&scenario);
    let lab = lab(&journal);
    for (what, otherwise) in [
        ("λ", Otherwise { lambda_per_usd: Some(0.0), ..Otherwise::default() }),
        ("draws", Otherwise { draws: Some(2), ..Otherwise::default() }),
    ] {
        let live = live(&scenario, &journal, otherwise).await;
        assert!(chosen_otherwise(&lab, &live) > 0, "{what}");
        assert!(differences(&lab, &live).is_some(), "{what}");
    }
}
