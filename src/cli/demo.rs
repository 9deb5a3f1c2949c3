//! `bear demo`: a whole BEAR on one machine without a GPU: three simulated engines, the router with its
//! database, and traffic whose load rises and falls.

mod client;
mod folder;
mod pool;
mod prompts;
mod screen;
mod tally;
mod traffic;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use tokio::{
    net::TcpListener,
    sync::oneshot,
    task::{JoinHandle, JoinSet},
    time::{Instant, interval, sleep, timeout},
};

use super::table;
use crate::{
    config,
    domain::{Decision, Now},
    telemetry::{
        self, TelemetryConfig,
        clock::{LiveClock, Stopwatch},
        prometheus::{self, Exposition},
    },
};
use client::Seen;
use folder::Folder;
use screen::Screen;
use tally::Tally;
use traffic::{Ask, Traffic};

/// The requests whose decision is shown in full, by their number.
const EXPLAINED: [u64; 3] = [6, 60, 240];
/// How late engines may run before it spoils the picture.
const TOLERATED_LAG: Duration = Duration::from_millis(3);
/// Longest wait for the router to know its instances.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// Longest wait for answers under way at the end.
const END_WITHIN: Duration = Duration::from_secs(3);

/// Shows BEAR at work: three simulated Qwen3 engines, the router in front of them and sample traffic.
///
/// Needs no GPU, no model and no configuration. Every request names a target for its first token; watch how
/// the router moves traffic to smaller models as the load rises, and back. While it runs, send your own
/// requests to the address it prints. Ctrl-C ends everything and leaves nothing behind.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The router's port; 0 takes any free one.
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Ends by itself after this many seconds.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Mean rate of the sample traffic, requests a second; it swings between 0.4 and 1.6 times this.
    #[arg(long, default_value_t = 6.0)]
    qps: f64,
    /// Sends no sample traffic: the router waits for yours.
    #[arg(long)]
    no_traffic: bool,
    /// Fixes the traffic and the engines' answers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs `bear demo` until Ctrl-C or for the asked time.
///
/// # Errors
/// A port in use, or a part that cannot be started.
pub fn run(args: Args) -> anyhow::Result<()> {
    for (name, value) in [("--qps", Some(args.qps)), ("--seconds", args.seconds)] {
        if value.is_some_and(|value| !(value.is_finite() && value > 0.0 && value <= 1e9)) {
            bail!("{name} must be a positive number");
        }
    }
    super::runtime()?.block_on(demo(args))
}

async fn demo(args: Args) -> anyhow::Result<()> {
    let listener = listen(args.port).await?;
    let guard = telemetry::init(&TelemetryConfig { log: "warn".into(), ..TelemetryConfig::default() })?;
    let demo = Demo::start(listener, args.seed, Some(prometheus::install()?)).await?;
    let screen = Screen::new();
    screen.print(&demo.intro())?;
    let driven = drive(&args, &demo.server, &screen).await;
    screen.close();
    if let (Ok((tally, elapsed_s)), false) = (&driven, args.no_traffic) {
        screen.print(&tally.summary(*elapsed_s))?;
        screen.print(&demo.lag_warning())?;
    }
    demo.end().await;
    guard.shutdown().await;
    driven.map(|_| ())
}

/// Everything that runs.
struct Demo {
    folder: Folder,
    configuration: PathBuf,
    engines: Vec<pool::DemoEngine>,
    server: Server,
    serving: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl Demo {
    /// Starts engines and router, and waits until the router is ready.
    async fn start(listener: TcpListener, seed: u64, metrics: Option<Exposition>) -> anyhow::Result<Self> {
        let address = listener.local_addr().context("the listener has no address")?;
        let folder = Folder::create()?;
        let engines = pool::start_engines(seed).await?;
        let yaml = pool::configuration(&engines, address, &folder);
        let configuration = folder.write_configuration(&yaml)?;
        let checked = config::parse(&configuration, &yaml)?.check()?;
        let clock: Arc<dyn Now> = Arc::new(LiveClock::new());
        let router = config::assemble(&checked, &clock, metrics)?;
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(async move {
            // A dropped sender ends the router too.
            let until = async move { _ = stopped.await };
            if let Err(error) = router.serve(listener, until).await {
                tracing::error!(%error, "the router failed");
            }
        });
        let server = Server { url: format!("http://{address}"), client: reqwest::Client::new() };
        server.ready().await?;
        Ok(Self { folder, configuration, engines, server, serving, stop })
    }

    /// Ends the router, then the engines; the folder goes with them.
    async fn end(self) {
        _ = self.stop.send(());
        let mut serving = self.serving;
        if timeout(END_WITHIN, &mut serving).await.is_err() {
            serving.abort();
        }
        for engine in self.engines {
            engine.shutdown().await;
        }
    }

    /// Says so when the machine is too slow for the traffic; empty otherwise.
    fn lag_warning(&self) -> String {
        let lag = self.engines.iter().map(pool::DemoEngine::lag).max().unwrap_or_default();
        if lag < TOLERATED_LAG {
            return String::new();
        }
        format!(
            "This machine is too slow for this traffic: the engines ran {} ms late on average, so first tokens came\n\
             later than predicted (hint: a release build, or a lower --qps).\n",
            lag.as_millis()
        )
    }

    /// Returns what the screen says first.
    fn intro(&self) -> String {
        let engines: String = self.engines.iter().map(|engine| format!("  {}\n", engine.line())).collect();
        let (url, store, configuration) =
            (&self.server.url, self.folder.store_url(), self.configuration.display());
        format!(
            "BEAR demo: one router, three simulated engines, made-up prompts and answers.\n\n\
             Router {url} (its configuration: {configuration})\n\
             Engines\n{engines}\n\
             Try next, in another terminal:\n\n\
             \x20 curl -iN {url}/v1/chat/completions -H 'x-slo-ttft-ms: 200' \\\n\
             \x20   -d '{{\"model\":\"auto\",\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"Explain tides.\"}}]}}'\n\n\
             \x20 python: OpenAI(base_url=\"{url}/v1\", api_key=\"none\").chat.completions.create(model=\"auto\",\n\
             \x20   messages=[{{\"role\": \"user\", \"content\": \"Explain tides.\"}}], extra_headers={{\"x-slo-ttft-ms\": \"200\"}})\n\n\
             \x20 bear route --url {url} --ttft-ms 200 \"Write a story.\"   what it would decide, sending nothing\n\
             \x20 bear explain REQUEST_ID --store {store}   why a request went where it went\n\
             \x20 curl {url}/metrics   what Prometheus sees\n\n\
             Ctrl-C ends everything.\n"
        )
    }
}

/// Listens on the router's port, or says plainly why not.
async fn listen(port: u16) -> anyhow::Result<TcpListener> {
    match TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).await {
        Ok(listener) => Ok(listener),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => bail!(
            "port {port} is in use by another program (hint: stop it, or choose another port: bear demo --port {}; \
             0 takes any free one)",
            if port < u16::MAX { port + 1 } else { 8080 }
        ),
        Err(error) => Err(error).with_context(|| format!("cannot listen on port {port}")),
    }
}

/// The router as a client sees it.
#[derive(Clone)]
struct Server {
    url: String,
    client: reqwest::Client,
}

impl Server {
    /// Waits until the router has a usable instance.
    async fn ready(&self) -> anyhow::Result<()> {
        let ready = async {
            while !self.get("/ready").await {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(READY_WITHIN, ready).await.context("the router never became ready")
    }

    async fn get(&self, path: &str) -> bool {
        let response = self.client.get(format!("{}{path}", self.url)).send().await;
        response.is_ok_and(|response| response.status().is_success())
    }

    /// Returns the decision that the router would take on a request now.
    async fn dry_run(&self, ask: &Ask) -> Option<Decision> {
        let request = self
            .client
            .post(format!("{}/v1/route", self.url))
            .header("x-slo-ttft-ms", format!("{:.0}", ask.ttft_target_ms))
            .json(&client::body(ask));
        request.send().await.ok()?.error_for_status().ok()?.json().await.ok()
    }
}

/// What a background task of the traffic brings.
enum Done {
    Answer(Seen),
    Explanation(String),
}

/// Sends the traffic until the end and returns what was seen, and for how long, seconds.
async fn drive(args: &Args, server: &Server, screen: &Screen) -> anyhow::Result<(Tally, f64)> {
    let end = wait_for_end(args.seconds);
    tokio::pin!(end);
    let (mut traffic, mut tally, mut tasks) =
        (Traffic::new(args.qps, args.seed), Tally::default(), JoinSet::new());
    let (started, clock) = (Instant::now(), Stopwatch::start());
    let mut number = 0;
    let mut next = if args.no_traffic { None } else { traffic.next() };
    let mut ticks = interval(screen.period());
    ticks.tick().await;
    loop {
        let due = next.as_ref().map_or(f64::MAX, |ask| ask.at_s);
        tokio::select! {
            ended = &mut end => break ended?,
            Some(done) = tasks.join_next() => match done {
                Ok(Done::Answer(seen)) => tally.ended(&seen),
                Ok(Done::Explanation(text)) => screen.print(&text)?,
                Err(_) => tally.ended(&Seen::default()),
            },
            () = tokio::time::sleep_until(started + Duration::from_secs_f64(due.min(1e9))), if next.is_some() => {
                if let Some(ask) = std::mem::replace(&mut next, traffic.next()) {
                    number += 1;
                    tally.sent();
                    if EXPLAINED.contains(&number) {
                        tasks.spawn(explain(server.clone(), ask.clone()));
                    }
                    let (client, url) = (server.client.clone(), server.url.clone());
                    tasks.spawn(async move { Done::Answer(client::send(client, url, ask).await) });
                }
            }
            _ = ticks.tick() => {
                let elapsed_s = clock.elapsed_s();
                if !args.no_traffic {
                    screen.status(&tally.line(elapsed_s, traffic.rate_at(elapsed_s)))?;
                }
            }
        }
    }
    tasks.abort_all();
    Ok((tally, clock.elapsed_s()))
}

async fn wait_for_end(seconds: Option<f64>) -> anyhow::Result<()> {
    let time_is_up = async {
        match seconds {
            Some(seconds) => sleep(Duration::from_secs_f64(seconds)).await,
            None => std::future::pending().await,
        }
    };
    let signals = super::serve::Signals::catch()?;
    tokio::select! {
        () = signals.wait() => {}
        () = time_is_up => {}
    }
    Ok(())
}

/// Asks the router how it would decide on a request, and tells it in words and as a table.
async fn explain(server: Server, ask: Ask) -> Done {
    let text = match server.dry_run(&ask).await {
        Some(decision) => format!(
            "\nOne decision in full: {} ({} characters), first token wanted within {:.0} ms\n{}",
            ask.task,
            ask.prompt.len(),
            ask.ttft_target_ms,
            table::render(&decision)
        ),
        None => String::from("\nThe router did not explain a decision.\n"),
    };
    Done::Explanation(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_whole_demo_answers_explains_and_cleans_up() {
        let demo = Demo::start(listen(0).await.unwrap(), 1, None).await.unwrap();
        let folder = demo.configuration.parent().unwrap().to_path_buf();
        let mut tally = Tally::default();
        // Answers to questions are the shortest.
        for ask in Traffic::new(6.0, 2).filter(|ask| ask.task == "question-answering").take(3) {
            let seen = client::send(demo.server.client.clone(), demo.server.url.clone(), ask).await;
            assert!(seen.model.as_deref().is_some_and(|model| model.starts_with("qwen3-")), "{seen:?}");
            assert!(seen.ttft_ms.is_some() && !seen.request_id.is_empty(), "{seen:?}");
            tally.sent();
            tally.ended(&seen);
        }
        assert!(tally.line(1.0, 6.0).contains("3 answered, 0 under way"));
        let ask = Traffic::new(6.0, 2).next().unwrap();
        let Done::Explanation(text) = explain(demo.server.clone(), ask).await else {
            panic!("an explanation")
        };
        assert!(text.contains("qwen3-32b-0") && text.contains("policy bear"), "{text}");
        assert!(demo.intro().contains(&demo.server.url));
        demo.end().await;
        assert!(!folder.exists());
    }

    #[tokio::test]
    async fn a_port_in_use_is_said_with_what_to_do() {
        let taken = listen(0).await.unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = listen(port).await.unwrap_err().to_string();
        assert!(error.contains(&port.to_string()) && error.contains("--port"), "{error}");
    }
}
