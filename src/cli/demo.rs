//! `bear demo`: a whole BEAR on one machine without a GPU: three simulated engines, the router with its
//! database, and traffic whose load rises and falls.

mod advice;
mod client;
mod folder;
mod pool;
mod prompts;
mod screen;
mod server;
mod tally;
mod traffic;
mod window;

use std::{path::PathBuf, pin::Pin, sync::Arc, time::Duration};

use anyhow::Context;
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, oneshot},
    task::{JoinHandle, JoinSet},
    time::{Instant, interval, sleep, timeout},
};

use super::{number::positive, serve::Signals, table};
use crate::{
    config,
    domain::Now,
    telemetry::{
        self, TelemetryConfig,
        clock::{LiveClock, Stopwatch},
        prometheus::{self, Exposition},
    },
};
use client::Seen;
use folder::Folder;
use screen::Screen;
use server::{Server, listen};
use tally::Tally;
use traffic::{Ask, Traffic};
use window::Window;

/// The requests whose decision is shown in full, by their number.
const EXPLAINED: [u64; 3] = [6, 60, 240];
/// How late engines may run before it spoils the picture.
const TOLERATED_LAG: Duration = Duration::from_millis(3);
/// Longest wait for answers under way at the end.
const END_WITHIN: Duration = Duration::from_secs(3);

/// Shows BEAR at work: three simulated Qwen3 engines, the router in front of them and sample traffic.
///
/// Needs no GPU, no model and no configuration. Every request names a target for its first token; watch how
/// the router moves traffic to smaller models as the load rises, and back. While it runs, send your own
/// requests to the address it prints. Ctrl-C ends everything; nothing stays behind unless you ask for it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The router's port; 0 takes any free one.
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Ends by itself after this many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    seconds: Option<f64>,
    /// Mean rate of the sample traffic, requests a second; within a minute it swings between 0.25 and 1.75
    /// times this.
    #[arg(long, default_value_t = 12.0, value_parser = positive)]
    qps: f64,
    /// Sends no sample traffic: the router waits for yours.
    #[arg(long)]
    no_traffic: bool,
    /// Fixes the traffic and the engines' answers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keeps configuration, predictors and database in a new or empty folder, from which the same can be
    /// started again by hand.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// Runs `bear demo` until Ctrl-C or for the asked time.
///
/// # Errors
/// A port in use, or a part that cannot be started.
pub fn run(args: Args) -> anyhow::Result<()> {
    super::runtime()?.block_on(demo(args))
}

async fn demo(args: Args) -> anyhow::Result<()> {
    // Before there is a folder to clear away.
    let signalled = Box::pin(Ends::catch()?.wait());
    let listener = listen(args.port).await?;
    let guard = telemetry::init(&TelemetryConfig { log: "warn".into(), ..TelemetryConfig::default() })?;
    let played = play(&args, listener, signalled).await;
    guard.shutdown().await;
    played
}

/// Starts everything, shows it until the end and clears up.
async fn play(args: &Args, listener: TcpListener, mut signalled: Signalled) -> anyhow::Result<()> {
    let metrics = Some(prometheus::install()?);
    let demo = tokio::select! {
        demo = Demo::start(listener, args, metrics) => demo?,
        () = &mut signalled => return Ok(()),
    };
    let mut screen = Screen::new();
    screen.print(&demo.intro(args.no_traffic))?;
    let driven = drive(args, &demo, &screen, signalled).await;
    screen.close();
    if let (Ok((tally, elapsed_s)), false) = (&driven, args.no_traffic) {
        screen.print(&tally.summary(*elapsed_s))?;
        screen.print(&demo.lag_warning())?;
    }
    if demo.folder.is_kept() {
        let configuration = demo.folder.configuration();
        screen.print(&format!("\nKept: {} says how to start it again.\n", advice::quoted(&configuration)))?;
    }
    demo.end().await;
    driven.map(|_| ())
}

/// Completes when the demo is told to end.
type Signalled = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What ends the demo from outside: SIGINT, SIGTERM, and the terminal going away.
struct Ends {
    signals: Signals,
    hangup: Signal,
}

impl Ends {
    /// Starts catching them.
    fn catch() -> anyhow::Result<Self> {
        let hangup = signal(SignalKind::hangup()).context("cannot catch signals")?;
        Ok(Self { signals: Signals::catch()?, hangup })
    }

    /// Waits for one.
    async fn wait(mut self) {
        tokio::select! {
            () = self.signals.wait() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

/// Everything that runs.
struct Demo {
    folder: Folder,
    engines: Vec<pool::DemoEngine>,
    server: Server,
    serving: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl Demo {
    /// Starts engines and router, and waits until the router is ready.
    async fn start(listener: TcpListener, args: &Args, metrics: Option<Exposition>) -> anyhow::Result<Self> {
        let address = listener.local_addr().context("the listener has no address")?;
        let folder = args.keep.as_deref().map_or_else(Folder::temporary, Folder::kept)?;
        let engines = pool::start_engines(args.seed).await?;
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
        let server = Server::new(address)?;
        server.ready().await?;
        Ok(Self { folder, engines, server, serving, stop })
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

    /// Returns the models' names, smallest first.
    fn models(&self) -> Vec<String> {
        self.engines.iter().map(|engine| engine.model().to_owned()).collect()
    }

    /// Returns what the screen says first.
    fn intro(&self, no_traffic: bool) -> String {
        let engines: String = self.engines.iter().map(|engine| format!("  {}\n", engine.line())).collect();
        let (url, configuration) = (&self.server.url, self.folder.configuration());
        let last = if no_traffic {
            "Ctrl-C ends everything."
        } else {
            "Ctrl-C ends everything. Live, over the last 10 s: rate, share of each model, first tokens in time,\n\
             and their median and 90 % quantile beside the predicted ones."
        };
        format!(
            "BEAR demo: one router, three simulated engines, made-up prompts and answers.\n\n\
             Router {url} (its configuration: {})\nEngines\n{engines}\n{}\n{last}\n\n",
            configuration.display(),
            advice::commands(url),
        )
    }
}

/// What a background task of the traffic brings.
enum Done {
    /// A request that ended, and whether its decision was shown.
    Answer(Seen, bool),
    /// A decision in full.
    Explanation(String),
}

/// Sends the traffic until the end and returns what was seen, and for how long, seconds.
async fn drive(
    args: &Args,
    demo: &Demo,
    screen: &Screen,
    signalled: Signalled,
) -> anyhow::Result<(Tally, f64)> {
    let mut end = std::pin::pin!(wait_for_end(args.seconds, signalled));
    let mut show = Show::new(demo, screen);
    let mut traffic = Traffic::new(args.qps, args.seed);
    let started = Instant::now();
    let mut next = if args.no_traffic { None } else { traffic.next() };
    let mut ticks = interval(screen.period());
    ticks.tick().await;
    loop {
        let due = next.as_ref().map_or(f64::MAX, |ask| ask.at_s);
        tokio::select! {
            () = &mut end => break,
            Some(done) = show.tasks.join_next() => show.done(done.ok())?,
            Some(seen) = show.first_tokens.recv() => show.window.first_token(show.clock.elapsed_s(), seen),
            () = tokio::time::sleep_until(started + Duration::from_secs_f64(due.min(1e9))), if next.is_some() => {
                if let Some(ask) = std::mem::replace(&mut next, traffic.next()) {
                    show.send(ask);
                }
            }
            _ = ticks.tick() => {
                if !args.no_traffic {
                    screen.status(&show.window.line(show.clock.elapsed_s()))?;
                }
            }
        }
    }
    show.tasks.abort_all();
    Ok((show.tally, show.clock.elapsed_s()))
}

async fn wait_for_end(seconds: Option<f64>, signalled: Signalled) {
    let time_is_up = async {
        match seconds {
            Some(seconds) => sleep(Duration::from_secs_f64(seconds)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = signalled => {}
        () = time_is_up => {}
    }
}

/// The traffic under way and what is shown of it.
struct Show<'a> {
    demo: &'a Demo,
    screen: &'a Screen,
    clock: Stopwatch,
    number: u64,
    tasks: JoinSet<Done>,
    first_token_sender: mpsc::UnboundedSender<Seen>,
    first_tokens: mpsc::UnboundedReceiver<Seen>,
    window: Window,
    tally: Tally,
}

impl<'a> Show<'a> {
    fn new(demo: &'a Demo, screen: &'a Screen) -> Self {
        let (first_token_sender, first_tokens) = mpsc::unbounded_channel();
        Self {
            demo,
            screen,
            clock: Stopwatch::start(),
            number: 0,
            tasks: JoinSet::new(),
            first_token_sender,
            first_tokens,
            window: Window::new(demo.models()),
            tally: Tally::new(demo.models()),
        }
    }

    /// Sends one request.
    fn send(&mut self, ask: Ask) {
        self.number += 1;
        self.tally.sent();
        self.window.sent(self.clock.elapsed_s());
        let server = &self.demo.server;
        let explained = EXPLAINED.contains(&self.number);
        if explained {
            self.tasks.spawn(explain(server.clone(), ask.clone()));
        }
        let answer =
            client::send(server.client.clone(), server.url.clone(), ask, self.first_token_sender.clone());
        self.tasks.spawn(async move { Done::Answer(answer.await, explained) });
    }

    /// Notes what a task brought; nothing where it failed.
    fn done(&mut self, done: Option<Done>) -> anyhow::Result<()> {
        let (seen, explained) = match done {
            Some(Done::Explanation(text)) => return Ok(self.screen.print(&text)?),
            Some(Done::Answer(seen, explained)) => (seen, explained),
            None => (Seen::default(), false),
        };
        self.tally.ended(&seen);
        if !seen.answered() {
            self.window.failed(self.clock.elapsed_s());
        } else if explained {
            let command = advice::explain(&seen.request_id, &self.demo.folder.store_url());
            let text = format!("\nThat {} request was answered. What came of it:\n{command}\n\n", seen.task);
            self.screen.print(&text)?;
        }
        Ok(())
    }
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
        let args = Args { port: 0, seconds: None, qps: 6.0, no_traffic: true, seed: 1, keep: None };
        let demo = Demo::start(listen(0).await.unwrap(), &args, None).await.unwrap();
        let folder = demo.folder.configuration().parent().unwrap().to_path_buf();
        let (sender, mut first_tokens) = mpsc::unbounded_channel();
        let mut tally = Tally::new(demo.models());
        // Answers to questions are the shortest.
        for ask in Traffic::new(6.0, 2).filter(|ask| ask.task == "question-answering").take(3) {
            let seen =
                client::send(demo.server.client.clone(), demo.server.url.clone(), ask, sender.clone()).await;
            assert!(seen.model.as_deref().is_some_and(|model| model.starts_with("qwen3-")), "{seen:?}");
            assert!(seen.ttft_ms.is_some() && !seen.request_id.is_empty(), "{seen:?}");
            assert_eq!(first_tokens.recv().await.unwrap(), seen);
            tally.sent();
            tally.ended(&seen);
        }
        assert!(tally.summary(1.0).contains("3 answered, 0 failed, 0 cut short"));
        let ask = Traffic::new(6.0, 2).next().unwrap();
        let Done::Explanation(text) = explain(demo.server.clone(), ask).await else {
            panic!("an explanation")
        };
        assert!(text.contains("qwen3-32b-0") && text.contains("policy bear"), "{text}");
        assert!(demo.intro(false).contains(&demo.server.url));
        demo.end().await;
        assert!(!folder.exists());
    }
}
