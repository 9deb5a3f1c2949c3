//! `bear serve`: the router, from a configuration file to a graceful end.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc};

use anyhow::{Context, anyhow};
use clap::Parser;
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    task::JoinHandle,
};

use super::{config::load, runtime};
use crate::{
    config::{self, Checked, Flag},
    domain::Now,
    telemetry::{self, clock::LiveClock, prometheus},
};

/// Routes chat requests over the pool of a configuration file.
///
/// Clients speak OpenAI's API to it and name the model `auto` (or a concrete one). Ctrl-C ends it: it
/// takes no new requests, lets answers under way end, and writes the last decisions.
///
///   bear config check my-pool.yaml
///
///   bear serve my-pool.yaml
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The configuration file; config/examples holds some to start from.
    #[arg(value_name = "FILE", env = "BEAR_CONFIG", required_unless_present = "config")]
    file: Option<PathBuf>,
    /// The configuration file, in place of FILE.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen for clients, such as 0.0.0.0:8080; port 0 takes any free one [config: listen.address].
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// What to log: a level, or a filter such as info,bear::pool=debug [config: telemetry.log].
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
}

impl Args {
    fn flags(&self) -> Vec<Flag> {
        let listen = self.listen.map(|address| Flag {
            name: "--listen",
            key: "listen.address",
            value: address.to_string(),
        });
        let log = self.log.clone().map(|value| Flag { name: "--log", key: "telemetry.log", value });
        listen.into_iter().chain(log).collect()
    }
}

/// Runs `bear serve` until a signal ends it.
///
/// # Errors
/// A configuration that cannot be used, an address that cannot be listened on, or a failed listener.
pub fn run(args: Args) -> anyhow::Result<()> {
    let flags = args.flags();
    let loaded = load(args.config.or(args.file), flags)?;
    runtime()?.block_on(async {
        let checked = loaded.check()?;
        let guard = telemetry::init(&checked.config.telemetry)?;
        let served = serve(&checked).await;
        guard.shutdown().await;
        served
    })
}

async fn serve(checked: &Checked) -> anyhow::Result<()> {
    for warning in &checked.warnings {
        tracing::warn!("{warning}");
    }
    let metrics = checked.config.telemetry.prometheus.then(prometheus::install).transpose()?;
    let listener = listen(checked.config.listen.address).await?;
    let clock: Arc<dyn Now> = Arc::new(LiveClock::new());
    let running = config::assemble(checked, &clock, metrics)?;
    // Signals are caught before anybody is told that the router is there.
    let end = Signals::catch()?;
    let hangups = ignore_hangups()?;
    tracing::info!(
        address = %listener.local_addr()?,
        policy = checked.config.routing.policy.name,
        predictors = checked.predictor.version(),
        models = checked.models.len(),
        instances = checked.instances.len(),
        "listening"
    );
    let stats = running.serve(listener, end.wait()).await?;
    hangups.abort();
    tracing::info!(rows_written = stats.written, rows_lost = stats.dropped + stats.lost, "ended");
    Ok(())
}

/// Listens on an address, or says plainly why not.
pub(super) async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let told = |error: io::Error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            anyhow!("{address} is in use by another process (hint: stop it, or choose a port with --listen)")
        }
        io::ErrorKind::PermissionDenied => {
            anyhow!("not permitted to listen on {address} (hint: ports below 1024 need privileges)")
        }
        io::ErrorKind::AddrNotAvailable => anyhow!("{address} is no address of this machine"),
        _ => anyhow::Error::from(error).context(format!("cannot listen on {address}")),
    };
    TcpListener::bind(address).await.map_err(told)
}

/// Says at each SIGHUP that the configuration stays, where the default would end the process.
fn ignore_hangups() -> anyhow::Result<JoinHandle<()>> {
    let mut hangups = signal(SignalKind::hangup()).context("cannot catch signals")?;
    Ok(tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            tracing::warn!(
                "SIGHUP: reloading the configuration is not supported yet; the present one stays in force \
                 (restart to change it)"
            );
        }
    }))
}

/// SIGINT and SIGTERM.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Starts catching them.
    pub(super) fn catch() -> anyhow::Result<Self> {
        let catch = |kind| signal(kind).context("cannot catch signals");
        Ok(Self { interrupt: catch(SignalKind::interrupt())?, terminate: catch(SignalKind::terminate())? })
    }

    /// Waits for one; a further one ends the process at once.
    pub(super) async fn wait(mut self) {
        self.next().await;
        tracing::info!("ending; a second signal ends at once");
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(1);
        });
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
