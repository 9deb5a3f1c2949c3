//! What every store promises, and what the recorder promises whatever its store does. A further
//! database joins by a module like [`sqlite`] that runs the same functions on a URL of its own.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{path::Path, time::Duration};

use bear::{
    domain::{Candidate, Decision, Ending, Ineligible, InstanceId, Outcome, Reason, Timestamp},
    store::{
        self, DecisionRow, IfMissing, LoggedFeatures, LoggedQuery, Order, Origin, Recorder, RecorderStats,
        StoreConfig, StoreError,
    },
    telemetry::{names, prometheus},
};

/// Longest that a test waits for the writer task; only a failing test waits that long.
const PATIENCE: Duration = Duration::from_secs(30);

fn candidate(instance: &str, chosen: bool) -> Candidate {
    Candidate {
        instance: InstanceId::from(instance),
        model: "qwen3-8b".into(),
        prompt_tokens: 900,
        count_source: "tokenizer".into(),
        accuracy: Some(0.71),
        output_tokens: Some(212.5),
        cost_usd: Some(1.25e-4),
        utility: Some(0.6475),
        predictor: "bundle".into(),
        wait_s: Some(0.013),
        prefill_s: Some(0.047),
        ttft_s: Some(0.06),
        spread_s: None,
        least_ttft_s: None,
        source: Some("bea".into()),
        no_estimate: None,
        age_s: Some(0.021),
        ineligible: None,
        feasible: Some(true),
        interchangeable: chosen,
        chosen,
    }
}

/// Returns a row with every field set.
pub(crate) fn full_row(request: &str, attempt: &str, decided_at_us: u64) -> DecisionRow {
    let refused = Candidate {
        ineligible: Some(Ineligible::ContextLength { needed_tokens: 900, max_model_len_tokens: 512 }),
        accuracy: None,
        ttft_s: None,
        least_ttft_s: Some(0.35),
        ..candidate("small-0", false)
    };
    DecisionRow {
        decided_at: Timestamp::from_unix_us(decided_at_us),
        decision: Decision {
            request_id: request.into(),
            attempt: 2,
            requested_model: Some("auto".into()),
            predictor_version: Some("demo@1f2e".into()),
            policy: "bear".into(),
            reason: Reason::MaxUtility,
            lambda_per_usd: 500.0,
            delta_per_s: 0.25,
            ttft_target_ms: Some(300.0),
            propensity: 0.5,
            believed_latency_s: None,
            candidates: vec![refused, candidate("qwen3-8b-0", true)],
        },
        query: LoggedQuery {
            endpoint: "chat".into(),
            streamed: true,
            choices: 2,
            max_output_tokens: Some(512),
            min_accuracy: Some(0.5),
            max_cost_usd: Some(1e-3),
            ttft_target_ms: Some(300.0),
            tpot_target_ms: Some(50.0),
            tenant: Some("team-a".into()),
            priority: -1,
            adapter: Some("lora-1".into()),
            modalities: vec!["image".into()],
            tools: true,
            structured_output: true,
        },
        outcome: Outcome {
            attempt_id: attempt.into(),
            instance: 1,
            ending: Ending::TimedOut,
            ttft_s: Some(0.0625),
            e2e_s: 3.5,
            prompt_tokens: Some(901),
            cached_tokens: Some(512),
            output_tokens: Some(230),
            cost_usd: Some(1.3e-4),
        },
        features: Some(LoggedFeatures::read("f1".into(), r#"{"counts":[[3,-1],[17,2]],"tokens":900}"#)),
        prompt: Some("What is \"42\"?\n".into()),
        origin: Some(Origin { bear_version: "0.0.1".into(), config_digest: "00ff".into() }),
    }
}

/// Returns a row with every absence that is allowed.
fn bare_row(request: &str, attempt: &str, decided_at_us: u64) -> DecisionRow {
    let mut row = full_row(request, attempt, decided_at_us);
    row.decision.ttft_target_ms = None;
    row.decision.requested_model = None;
    row.decision.predictor_version = None;
    row.query = LoggedQuery::default();
    row.decision.candidates.clear();
    row.outcome = Outcome {
        attempt_id: attempt.into(),
        instance: 0,
        ending: Ending::Cancelled,
        ttft_s: None,
        e2e_s: 0.0,
        prompt_tokens: None,
        cached_tokens: None,
        output_tokens: None,
        cost_usd: None,
    };
    row.features = None;
    row.prompt = None;
    row.origin = None;
    row
}

async fn round_trip(url: &str) {
    let store = store::open(url, IfMissing::Create).await.unwrap();
    let rows = [full_row("r1", "a1", 5), bare_row("r2", "a2", 6), full_row("r1", "a3", 7)];
    store.append(&rows).await.unwrap();
    assert_eq!(store.attempts("r1").await.unwrap(), [rows[0].clone(), rows[2].clone()]);
    assert_eq!(store.decision("r1").await.unwrap(), Some(rows[2].clone()), "the last attempt");
    assert_eq!(store.decision("r2").await.unwrap(), Some(rows[1].clone()));
    assert_eq!(store.decision("r3").await.unwrap(), None);
    let again = store::open(url, IfMissing::Create).await.unwrap();
    assert_eq!(again.recent(2).await.unwrap(), [rows[2].clone(), rows[1].clone()], "kept over a reopening");
}

async fn batches_and_pages(url: &str) {
    let store = store::open(url, IfMissing::Create).await.unwrap();
    let rows: Vec<_> = (0..300_u64).map(|i| full_row(&format!("r{i}"), &format!("a{i}"), i)).collect();
    store.append(&[]).await.unwrap();
    store.append(&rows[..200]).await.unwrap();
    store.append(&rows[150..]).await.unwrap();
    let mut read = Vec::new();
    let mut past = None;
    loop {
        let page = store.page(Order::OldestFirst, past, 128).await.unwrap();
        let Some((cursor, _)) = page.last() else { break };
        past = Some(*cursor);
        read.extend(page.into_iter().map(|(_, row)| row));
    }
    assert_eq!(read, rows, "each attempt once, in the order of writing");
    let newest = store.page(Order::NewestFirst, None, 2).await.unwrap();
    let before = store.page(Order::NewestFirst, Some(newest[1].0), 1).await.unwrap();
    assert_eq!(before[0].1, rows[297]);
}

async fn pruning(url: &str) {
    let store = store::open(url, IfMissing::Create).await.unwrap();
    store.append(&[full_row("old", "a1", 10), full_row("new", "a2", 20)]).await.unwrap();
    assert_eq!(store.prune(Timestamp::from_unix_us(20)).await.unwrap(), 1);
    assert_eq!(store.decision("old").await.unwrap(), None);
    assert!(store.decision("new").await.unwrap().is_some());
}

async fn recording(url: &str) {
    let config = StoreConfig { url: Some(url.into()), queue: 1000, ..StoreConfig::default() };
    let origin = Origin { config_digest: "c0ffee".into(), ..Origin::default() };
    let recorder = Recorder::start_as(&config, origin.clone()).unwrap();
    for i in 0..500 {
        recorder.record(DecisionRow { origin: None, ..full_row(&format!("r{i}"), &format!("a{i}"), i) });
    }
    let stats = recorder.shutdown(PATIENCE).await;
    assert_eq!(stats, RecorderStats { written: 500, ..RecorderStats::default() });
    let store = store::open(url, IfMissing::Create).await.unwrap();
    let row = store.decision("r7").await.unwrap().unwrap();
    assert_eq!(row.prompt, None, "prompts are kept only where the operator asks");
    assert_eq!(row.features, full_row("r7", "a7", 7).features);
    assert_eq!(row.origin, Some(origin), "each row says who wrote it");

    let keeping = Recorder::start(&StoreConfig { keep_prompts: true, ..config }).unwrap();
    keeping.record(full_row("kept", "kept", 1));
    keeping.shutdown(PATIENCE).await;
    assert!(store.decision("kept").await.unwrap().unwrap().prompt.is_some());
    keeping.record(full_row("late", "late", 1));
    assert_eq!(keeping.stats().dropped, 1, "a row after the shutdown is counted, not waited for");
}

fn sqlite_url(path: &Path) -> String {
    format!("sqlite://{}", path.display())
}

async fn until(recorder: &Recorder, what: &str, reached: impl Fn(RecorderStats) -> bool) -> RecorderStats {
    let waiting = async {
        while !reached(recorder.stats()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "never {what}: {:?}", recorder.stats());
    recorder.stats()
}

mod sqlite {
    use super::*;

    async fn on_a_fresh_file<F: Future<Output = ()>>(check: impl FnOnce(String) -> F) {
        let folder = tempfile::tempdir().unwrap();
        check(sqlite_url(&folder.path().join("bear.db"))).await;
    }

    #[tokio::test]
    async fn keeps_every_field() {
        on_a_fresh_file(|url| async move { round_trip(&url).await }).await;
    }

    #[tokio::test]
    async fn takes_batches_once_and_gives_pages() {
        on_a_fresh_file(|url| async move { batches_and_pages(&url).await }).await;
    }

    #[tokio::test]
    async fn prunes() {
        on_a_fresh_file(|url| async move { pruning(&url).await }).await;
    }

    #[tokio::test]
    async fn is_fed_by_the_recorder() {
        on_a_fresh_file(|url| async move { recording(&url).await }).await;
    }

    /// On one thread the writer cannot run between two calls, so the counts are exact.
    #[tokio::test]
    async fn a_full_queue_drops_and_counts_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let url = sqlite_url(&folder.path().join("bear.db"));
        let config = StoreConfig { url: Some(url.clone()), queue: 4, ..StoreConfig::default() };
        let recorder = Recorder::start(&config).unwrap();
        let (metrics, exposition) = prometheus::recorder().unwrap();
        metrics::with_local_recorder(&metrics, || {
            for i in 0..10 {
                recorder.record(full_row(&format!("r{i}"), &format!("a{i}"), i));
            }
        });
        assert_eq!(recorder.stats(), RecorderStats { queued: 4, dropped: 6, ..RecorderStats::default() });
        let line = format!(r#"{}{{cause="full"}} 6"#, names::STORE_DROPPED.name);
        assert!(exposition.render().contains(&line), "{}", exposition.render());
        until(&recorder, "written", |stats| stats.written == 4).await;
        recorder.record(full_row("after", "after", 11));
        let stats = recorder.shutdown(PATIENCE).await;
        assert_eq!(stats, RecorderStats { written: 5, dropped: 6, ..RecorderStats::default() });
    }

    /// The queue would take thousands of rows, but not their prompts.
    #[tokio::test]
    async fn rows_that_hold_much_are_bounded_by_memory() {
        let folder = tempfile::tempdir().unwrap();
        let url = Some(sqlite_url(&folder.path().join("bear.db")));
        let config = StoreConfig { url, keep_prompts: true, queue_mib: 1, ..StoreConfig::default() };
        let recorder = Recorder::start(&config).unwrap();
        let long = |i: u64| DecisionRow {
            prompt: Some("x".repeat(300 << 10)),
            ..full_row(&format!("r{i}"), &format!("a{i}"), i)
        };
        (0..10).for_each(|i| recorder.record(long(i)));
        assert_eq!(recorder.stats(), RecorderStats { queued: 3, dropped: 7, ..RecorderStats::default() });
        until(&recorder, "written", |stats| stats.written == 3).await;
        (10..13).for_each(|i| recorder.record(long(i)));
        let stats = recorder.shutdown(PATIENCE).await;
        assert_eq!(stats, RecorderStats { written: 6, dropped: 7, ..RecorderStats::default() });
    }

    /// Rows are never numbered twice, and pruning gives the disk its pages back.
    #[tokio::test]
    async fn pruning_shrinks_the_file_and_keeps_cursors_apart() {
        let folder = tempfile::tempdir().unwrap();
        let url = sqlite_url(&folder.path().join("bear.db"));
        let store = store::open(&url, IfMissing::Create).await.unwrap();
        let rows: Vec<_> = (0..100_u64).map(|i| full_row("r", &format!("a{i}"), i)).collect();
        store.append(&rows).await.unwrap();
        let before = store.page(Order::NewestFirst, None, 1).await.unwrap()[0].0;
        let other = sqlx::SqlitePool::connect(&url).await.unwrap();
        let count = |pragma: &'static str| sqlx::query_scalar::<_, i64>(pragma).fetch_one(&other);
        let pages = count("PRAGMA page_count").await.unwrap();
        assert_eq!(store.prune(Timestamp::from_unix_us(100)).await.unwrap(), 100);
        assert_eq!(count("PRAGMA freelist_count").await.unwrap(), 0, "no page is kept in vain");
        assert!(count("PRAGMA page_count").await.unwrap() < pages);
        store.append(&[full_row("r", "next", 200)]).await.unwrap();
        assert!(store.page(Order::NewestFirst, None, 1).await.unwrap()[0].0 > before);
    }

    #[tokio::test]
    async fn a_store_that_is_missing_at_the_start_is_reached_later() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("not-yet");
        let url = sqlite_url(&missing.join("bear.db"));
        let error = store::open(&url, IfMissing::Create).await.err().unwrap();
        assert!(matches!(error, StoreError::Open { .. }), "{error}");
        let recorder =
            Recorder::start(&StoreConfig { url: Some(url.clone()), ..StoreConfig::default() }).unwrap();
        recorder.record(full_row("r1", "a1", 1));
        assert_eq!(recorder.stats().queued, 1);
        std::fs::create_dir(&missing).unwrap();
        until(&recorder, "written", |stats| stats.written == 1).await;
        assert!(store::open(&url, IfMissing::Create).await.unwrap().decision("r1").await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_store_that_never_comes_back_does_not_hold_up_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let url = sqlite_url(&folder.path().join("missing/bear.db"));
        let recorder = Recorder::start(&StoreConfig { url: Some(url), ..StoreConfig::default() }).unwrap();
        recorder.record(full_row("r1", "a1", 1));
        recorder.record(full_row("r2", "a2", 2));
        let stats = recorder.shutdown(Duration::from_millis(50)).await;
        assert_eq!(stats, RecorderStats { lost: 2, failures: stats.failures, ..RecorderStats::default() });
    }

    #[tokio::test]
    async fn a_deleted_database_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bear.db");
        let url = sqlite_url(&file);
        let recorder =
            Recorder::start(&StoreConfig { url: Some(url.clone()), ..StoreConfig::default() }).unwrap();
        recorder.record(full_row("before", "a1", 1));
        until(&recorder, "written", |stats| stats.written == 1).await;
        std::fs::remove_file(&file).unwrap();
        recorder.record(full_row("after", "a2", 2));
        until(&recorder, "written again", |stats| stats.written == 2).await;
        let stats = recorder.shutdown(PATIENCE).await;
        assert!(stats.failures > 0, "the writer noticed that the file was gone");
        let known = RecorderStats { written: 2, failures: stats.failures, ..RecorderStats::default() };
        assert_eq!(stats, known);
        let store = store::open(&url, IfMissing::Create).await.unwrap();
        assert!(store.decision("after").await.unwrap().is_some());
        assert!(store.decision("before").await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_locked_database_delays_rows_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let url = sqlite_url(&folder.path().join("bear.db"));
        store::open(&url, IfMissing::Create).await.unwrap();
        let other = sqlx::SqlitePool::connect(&url).await.unwrap();
        let mut lock = other.acquire().await.unwrap();
        sqlx::query("BEGIN IMMEDIATE").execute(&mut *lock).await.unwrap();
        let recorder =
            Recorder::start(&StoreConfig { url: Some(url.clone()), ..StoreConfig::default() }).unwrap();
        for i in 0..5 {
            recorder.record(full_row(&format!("r{i}"), &format!("a{i}"), i));
        }
        let stats = until(&recorder, "held up by the lock", |stats| stats.failures > 0).await;
        assert_eq!((stats.written, stats.queued), (0, 5), "{stats:?}");
        sqlx::query("COMMIT").execute(&mut *lock).await.unwrap();
        let stats = until(&recorder, "written", |stats| stats.written == 5).await;
        assert_eq!((stats.rejected, stats.dropped), (0, 0), "a lock is no fault of the rows");
    }

    #[tokio::test]
    async fn a_mistyped_name_does_not_become_a_database() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bear.bd");
        assert!(store::open(&sqlite_url(&file), IfMissing::Fail).await.is_err());
        assert!(!file.exists());
        store::open(&sqlite_url(&file), IfMissing::Create).await.unwrap();
        assert!(store::open(&sqlite_url(&file), IfMissing::Fail).await.is_ok());
    }

    #[tokio::test]
    async fn a_file_that_is_no_database_is_a_clear_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bear.db");
        std::fs::write(&file, "this is a diary, not a database, and it is long enough to be read as one")
            .unwrap();
        let error = store::open(&sqlite_url(&file), IfMissing::Create).await.err().unwrap();
        assert!(error.to_string().contains("bear.db"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap().split(' ').next(), Some("this"), "left alone");
    }
}

#[tokio::test]
async fn an_unknown_database_fails_at_the_start_with_the_known_ones() {
    let url = Some("mysql://root:hunter2@db/bear".to_owned());
    let error = Recorder::start(&StoreConfig { url, ..StoreConfig::default() }).unwrap_err();
    assert!(error.to_string().contains("`mysql://root:***@db/bear`"), "{error}");
    assert!(error.to_string().contains("sqlite:"), "{error}");
}

#[tokio::test]
async fn without_a_url_nothing_is_kept_and_nothing_is_counted() {
    let recorder = Recorder::start(&StoreConfig { url: None, ..StoreConfig::default() }).unwrap();
    recorder.record(full_row("r1", "a1", 1));
    assert_eq!(recorder.shutdown(PATIENCE).await, RecorderStats::default());
}
