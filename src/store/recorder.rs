//! The queue between requests and the store: recording never waits, and a broken store costs rows, not requests.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use metrics::{counter, gauge};
use tokio::{
    sync::{Notify, mpsc},
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{DecisionRow, IfMissing, Origin, Store, StoreConfig, StoreError, entry};
use crate::telemetry::{
    names::{self, label},
    without_secrets,
};

/// Rows a transaction; larger ones gain nothing measurable in SQLite.
const BATCH_ROWS: usize = 128;
/// First wait after a failure; it doubles up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// Longest wait between two tries of a failing store.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Longest that one write may take before it counts as failed; appending twice is harmless.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// Takes rows from requests and has them written. Clones share one queue and one writer.
#[derive(Clone, Debug)]
pub struct Recorder(Option<Arc<Shared>>);

/// What became of the recorded rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecorderStats {
    /// Rows written.
    pub written: u64,
    /// Rows waiting.
    pub queued: u64,
    /// Rows lost because the queue was full, by count or by memory, or closed.
    pub dropped: u64,
    /// Rows the store refused as faulty.
    pub rejected: u64,
    /// Rows unwritten when the shutdown's limit ran out.
    pub lost: u64,
    /// Writes that failed and were, or will be, tried again.
    pub failures: u64,
}

#[derive(Debug)]
struct Shared {
    sender: mpsc::Sender<DecisionRow>,
    keep_prompts: bool,
    state: Arc<State>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct State {
    /// Most that waiting rows may hold together, bytes.
    limit_bytes: u64,
    accepted: AtomicU64,
    written: AtomicU64,
    dropped: AtomicU64,
    rejected: AtomicU64,
    lost: AtomicU64,
    /// What the rows hold that are neither written nor given up, bytes.
    waiting_bytes: AtomicU64,
    /// Tries that failed and will be repeated.
    failures: AtomicU64,
    /// Whether the queue was found full since it was last half empty.
    full: AtomicBool,
    stopping: AtomicBool,
    stop: Notify,
}

impl Recorder {
    /// Returns a recorder that keeps nothing.
    #[must_use]
    pub const fn off() -> Self {
        Self(None)
    }

    /// Starts the writer task on the present tokio runtime. The store may be unreachable: it is opened
    /// in the task, and again whenever it fails. Without a URL nothing is kept.
    ///
    /// # Errors
    /// [`StoreError::UnknownScheme`] where the URL names no known database.
    pub fn start(config: &StoreConfig) -> Result<Self, StoreError> {
        Self::start_as(config, Origin::default())
    }

    /// Starts like [`Recorder::start`] and writes into each row which router it comes from.
    ///
    /// # Errors
    /// As there.
    pub fn start_as(config: &StoreConfig, origin: Origin) -> Result<Self, StoreError> {
        let Some(url) = &config.url else { return Ok(Self::off()) };
        entry(url)?;
        let (sender, receiver) = mpsc::channel(config.queue.max(1));
        let limit_bytes = u64::from(config.queue_mib) << 20;
        let state = Arc::new(State { limit_bytes, ..State::default() });
        let writer = Writer { url: url.clone(), origin, store: None, up: None, state: Arc::clone(&state) };
        let writer = Mutex::new(Some(tokio::spawn(writer.run(receiver))));
        let keep_prompts = config.keep_prompts;
        Ok(Self(Some(Arc::new(Shared { sender, keep_prompts, state, writer }))))
    }

    /// Hands a row to the writer without waiting. The prompt is removed unless the operator keeps
    /// prompts; a row that finds the queue full, by rows or by memory, is counted and dropped.
    pub fn record(&self, mut row: DecisionRow) {
        let Some(shared) = &self.0 else { return };
        if !shared.keep_prompts {
            row.prompt = None;
        }
        let state = &shared.state;
        let bytes = row.weight_bytes();
        let waiting = state.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        let cause = if waiting + bytes > state.limit_bytes {
            "memory"
        } else {
            match shared.sender.try_send(row) {
                Ok(()) => {
                    state.accepted.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Err(mpsc::error::TrySendError::Full(_)) => "full",
                Err(mpsc::error::TrySendError::Closed(_)) => "shutdown",
            }
        };
        state.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        state.dropped.fetch_add(1, Ordering::Relaxed);
        counter!(names::STORE_DROPPED.name, label::CAUSE => cause).increment(1);
        if cause != "shutdown" && !state.full.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                cause,
                rows = shared.sender.max_capacity(),
                bytes = state.limit_bytes,
                "the store's queue is full; decision rows are dropped until it drains"
            );
        }
    }

    /// Returns whether prompts are to be kept, so that a caller need not copy one in vain.
    #[must_use]
    pub fn keeps_prompts(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.keep_prompts)
    }

    /// Returns what became of the rows so far.
    #[must_use]
    pub fn stats(&self) -> RecorderStats {
        self.0.as_ref().map_or_else(RecorderStats::default, |shared| shared.state.stats())
    }

    /// Stops taking rows, writes those that wait for at most `limit`, and returns what became of all.
    pub async fn shutdown(&self, limit: Duration) -> RecorderStats {
        let Some(shared) = &self.0 else { return RecorderStats::default() };
        shared.state.stopping.store(true, Ordering::SeqCst);
        shared.state.stop.notify_one();
        let writer = shared.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut writer) = writer
            && timeout(limit, &mut writer).await.is_err()
        {
            writer.abort();
            // The task ends at its next await point; its counters are final after that.
            let _ended = writer.await;
            let lost = shared.state.stats().queued;
            shared.state.lost.fetch_add(lost, Ordering::Relaxed);
            counter!(names::STORE_DROPPED.name, label::CAUSE => "shutdown").increment(lost);
            tracing::warn!(rows = lost, "the store took no rows in time; decision rows are lost at shutdown");
        }
        shared.state.stats()
    }
}

impl State {
    fn stats(&self) -> RecorderStats {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (written, rejected, lost) = (get(&self.written), get(&self.rejected), get(&self.lost));
        let queued = get(&self.accepted).saturating_sub(written + rejected + lost);
        let (dropped, failures) = (get(&self.dropped), get(&self.failures));
        RecorderStats { written, queued, dropped, rejected, lost, failures }
    }
}

/// The task that owns the database.
struct Writer {
    url: String,
    origin: Origin,
    store: Option<Arc<dyn Store>>,
    /// Whether the last try succeeded; absent before the first.
    up: Option<bool>,
    state: Arc<State>,
}

impl Writer {
    async fn run(mut self, mut rows: mpsc::Receiver<DecisionRow>) {
        let opened = self.open().await.map(|_| ());
        self.note(opened.as_ref().err());
        let mut batch = Vec::with_capacity(BATCH_ROWS);
        loop {
            tokio::select! {
                biased;
                () = self.state.stop.notified() => { rows.close(); continue }
                count = rows.recv_many(&mut batch, BATCH_ROWS) => if count == 0 { return },
            }
            for row in &mut batch {
                row.origin.get_or_insert_with(|| self.origin.clone());
            }
            self.write(&mut batch, &mut rows).await;
            let waiting = rows.len();
            gauge!(names::STORE_QUEUE.name).set(waiting as f64);
            let held_bytes = self.state.waiting_bytes.load(Ordering::Relaxed);
            let drained = waiting <= rows.max_capacity() / 2 && held_bytes <= self.state.limit_bytes / 2;
            if drained && self.state.full.swap(false, Ordering::Relaxed) {
                let dropped = self.state.dropped.load(Ordering::Relaxed);
                tracing::info!(dropped, "the store's queue has drained; decision rows are kept again");
            }
        }
    }

    /// Writes a batch however long the store fails, and leaves it empty.
    async fn write(&mut self, batch: &mut Vec<DecisionRow>, rows: &mut mpsc::Receiver<DecisionRow>) {
        let mut wait = FIRST_WAIT;
        let mut size = batch.len();
        while !batch.is_empty() {
            size = size.clamp(1, batch.len());
            let outcome = self.append(&batch[..size]).await;
            match outcome {
                Ok(()) => {
                    self.note(None);
                    self.count(&self.state.written, size);
                    counter!(names::STORE_WRITTEN.name).increment(size as u64);
                    self.release(batch.drain(..size));
                    wait = FIRST_WAIT;
                }
                Err(error) if is_permanent(&error) && size > 1 => size = 1,
                Err(error) if is_permanent(&error) => {
                    tracing::error!(error = chain(&error), "the store refused a decision row; it is dropped");
                    self.count(&self.state.rejected, 1);
                    counter!(names::STORE_DROPPED.name, label::CAUSE => "rejected").increment(1);
                    self.release(batch.drain(..1));
                }
                Err(error) => {
                    self.note(Some(&error));
                    self.count(&self.state.failures, 1);
                    self.store = None;
                    gauge!(names::STORE_QUEUE.name).set(rows.len() as f64);
                    self.pause(wait, rows).await;
                    wait = (wait * 2).min(LONGEST_WAIT);
                }
            }
        }
    }

    async fn append(&mut self, rows: &[DecisionRow]) -> Result<(), StoreError> {
        let store = self.open().await?;
        let late = |_| StoreError::Late { limit_s: WRITE_LIMIT.as_secs() };
        timeout(WRITE_LIMIT, store.append(rows)).await.map_err(late)?
    }

    async fn open(&mut self) -> Result<Arc<dyn Store>, StoreError> {
        if let Some(store) = &self.store {
            return Ok(Arc::clone(store));
        }
        let store = super::open(&self.url, IfMissing::Create).await?;
        self.store = Some(Arc::clone(&store));
        Ok(store)
    }

    /// Waits before the next try; a stop cuts the wait short, and later waits stay short.
    async fn pause(&self, wait: Duration, rows: &mut mpsc::Receiver<DecisionRow>) {
        if self.state.stopping.load(Ordering::SeqCst) {
            rows.close();
            return sleep(FIRST_WAIT).await;
        }
        tokio::select! {
            () = sleep(wait) => {}
            () = self.state.stop.notified() => rows.close(),
        }
    }

    /// Logs a change between working and failing, once.
    fn note(&mut self, error: Option<&StoreError>) {
        let up = error.is_none();
        gauge!(names::STORE_UP.name).set(f64::from(u8::from(up)));
        if self.up.replace(up) == Some(up) {
            return;
        }
        match error {
            None => tracing::info!(url = without_secrets(&self.url), "the store takes decision rows"),
            Some(error) => tracing::warn!(
                url = without_secrets(&self.url),
                error = chain(error),
                "the store is failing; requests flow, decision rows wait in the queue"
            ),
        }
    }

    /// Gives back what rows held that need not wait any more.
    fn release(&self, rows: impl Iterator<Item = DecisionRow>) {
        let bytes = rows.map(|row| row.weight_bytes()).sum();
        self.state.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn count(&self, counter: &AtomicU64, rows: usize) {
        counter.fetch_add(rows as u64, Ordering::Relaxed);
    }
}

/// Whether trying again cannot help: the fault is in the row.
fn is_permanent(error: &StoreError) -> bool {
    match error {
        StoreError::Row { .. } => true,
        StoreError::Query { source: sqlx::Error::Encode(_), .. } => true,
        StoreError::Query { source: sqlx::Error::Database(fault), .. } => {
            !matches!(fault.kind(), sqlx::error::ErrorKind::Other)
        }
        _ => false,
    }
}

fn chain(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
