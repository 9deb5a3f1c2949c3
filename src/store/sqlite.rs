//! Decisions in one SQLite file: write-ahead log, batched inserts, a file that may vanish under us.

use std::{borrow::Cow, path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use sqlx::{
    FromRow, QueryBuilder, Sqlite,
    migrate::Migrator,
    sqlite::{
        SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
        SqliteSynchronous,
    },
};

use super::{Cursor, DecisionRow, IfMissing, LoggedFeatures, Order, Origin, Store, StoreError, StoreFuture};
use crate::{
    domain::{Decision, Ending, Outcome, Reason, Timestamp},
    telemetry::without_secrets,
};

static MIGRATIONS: Migrator = sqlx::migrate!("migrations/sqlite");

/// How long a statement waits for another process's lock before it fails and is retried by its caller.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
/// One writer and a few readers (`bear explain`, the admin pages).
const CONNECTIONS: u32 = 4;

/// The columns in the order in which rows are written and read.
const COLUMNS: &str = "decided_at_us, request_id, attempt, attempt_id, requested_model, endpoint, query, \
     predictor_version, bear_version, config_digest, policy, reason, model, instance, lambda_per_usd, \
     delta_per_s, ttft_target_ms, propensity, predicted_ttft_s, predicted_wait_s, predicted_prefill_s, \
     predicted_output_tokens, predicted_accuracy, predicted_cost_usd, predicted_utility, estimate_source, \
     estimate_age_s, streamed, ending, ttft_s, e2e_s, prompt_tokens, cached_tokens, output_tokens, cost_usd, \
     outcome_instance, feature_version, features, candidates, prompt";

/// A store in one SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    url: String,
    pool: SqlitePool,
    file: Option<OpenFile>,
}

/// The file behind the open connections: a deleted one would swallow rows without an error.
#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    identity: u64,
}

impl SqliteStore {
    /// Opens the file of a `sqlite:` URL and brings its tables to the present schema.
    ///
    /// # Errors
    /// A malformed URL, a file that cannot be opened, or one written by a newer schema.
    pub async fn open(url: &str, missing: IfMissing) -> Result<Self, StoreError> {
        let parsed = SqliteConnectOptions::from_str(url);
        let path = parsed.as_ref().map_or_else(|_| PathBuf::new(), |parsed| parsed.get_filename().to_owned());
        let open = |source| {
            let tried = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
            StoreError::Open { url: without_secrets(url), place: tried.display().to_string(), source }
        };
        let options = parsed
            .map_err(open)?
            .create_if_missing(missing == IfMissing::Create)
            // Before the first table is made, so that pruning can give pages back to the disk.
            .auto_vacuum(SqliteAutoVacuum::Incremental)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(BUSY_TIMEOUT);
        let in_memory = url.contains(":memory:") || url.contains("mode=memory");
        let pool = SqlitePoolOptions::new()
            .max_connections(if in_memory { 1 } else { CONNECTIONS })
            .acquire_timeout(BUSY_TIMEOUT * 2)
            .connect_with(options)
            .await
            .map_err(open)?;
        MIGRATIONS
            .run(&pool)
            .await
            .map_err(|source| StoreError::Migrate { url: without_secrets(url), source })?;
        let file = if in_memory {
            None
        } else {
            let identity = identity(&path).await.map_err(|source| open(sqlx::Error::Io(source)))?;
            Some(OpenFile { path, identity })
        };
        Ok(Self { url: without_secrets(url), pool, file })
    }

    async fn check_present(&self) -> Result<(), StoreError> {
        let Some(file) = &self.file else { return Ok(()) };
        match identity(&file.path).await {
            Ok(now) if now == file.identity => Ok(()),
            _ => Err(StoreError::Gone { url: self.url.clone() }),
        }
    }

    async fn insert(&self, rows: &[DecisionRow]) -> Result<(), StoreError> {
        self.check_present().await?;
        if rows.is_empty() {
            return Ok(());
        }
        let records = rows.iter().map(Record::from_row).collect::<Result<Vec<_>, _>>()?;
        let mut query = QueryBuilder::<Sqlite>::new("INSERT INTO decisions (");
        query.push(COLUMNS).push(") ");
        query.push_values(records, |mut values, record| record.bind(&mut values));
        query.push(" ON CONFLICT (attempt_id) DO NOTHING");
        let failed = |source| StoreError::Query { action: "write decisions", source };
        query.build().execute(&self.pool).await.map_err(failed)?;
        Ok(())
    }

    async fn select(
        &self,
        mut query: QueryBuilder<Sqlite>,
    ) -> Result<Vec<(Cursor, DecisionRow)>, StoreError> {
        let failed = |source| StoreError::Query { action: "read decisions", source };
        let records: Vec<Record> = query.build_query_as().fetch_all(&self.pool).await.map_err(failed)?;
        records.into_iter().map(|record| Ok((Cursor(record.id), record.into_row()?))).collect()
    }
}

impl Store for SqliteStore {
    fn append<'a>(&'a self, rows: &'a [DecisionRow]) -> StoreFuture<'a, ()> {
        Box::pin(self.insert(rows))
    }

    fn attempts<'a>(&'a self, request_id: &'a str) -> StoreFuture<'a, Vec<DecisionRow>> {
        let mut query = select_from();
        query
            .push(" WHERE request_id = ")
            .push_bind(request_id.to_owned())
            .push(" ORDER BY decided_at_us, id");
        Box::pin(async move { Ok(self.select(query).await?.into_iter().map(|(_, row)| row).collect()) })
    }

    fn page(
        &self,
        order: Order,
        past: Option<Cursor>,
        limit: u32,
    ) -> StoreFuture<'_, Vec<(Cursor, DecisionRow)>> {
        let mut query = select_from();
        if let Some(Cursor(id)) = past {
            query
                .push(if order == Order::OldestFirst { " WHERE id > " } else { " WHERE id < " })
                .push_bind(id);
        }
        query.push(if order == Order::OldestFirst { " ORDER BY id" } else { " ORDER BY id DESC" });
        query.push(" LIMIT ").push_bind(i64::from(limit));
        Box::pin(self.select(query))
    }

    fn prune(&self, before: Timestamp) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            let failed = |source| StoreError::Query { action: "prune decisions", source };
            let done = sqlx::query("DELETE FROM decisions WHERE decided_at_us < ?")
                .bind(before.unix_us().cast_signed())
                .execute(&self.pool)
                .await
                .map_err(failed)?;
            sqlx::query("PRAGMA incremental_vacuum").execute(&self.pool).await.map_err(failed)?;
            Ok(done.rows_affected())
        })
    }
}

/// Opens a store for the registry.
pub(super) fn open(url: String, missing: IfMissing) -> StoreFuture<'static, Arc<dyn Store>> {
    Box::pin(async move { Ok(Arc::new(SqliteStore::open(&url, missing).await?) as Arc<dyn Store>) })
}

fn select_from() -> QueryBuilder<Sqlite> {
    let mut query = QueryBuilder::new("SELECT id, ");
    query.push(COLUMNS).push(" FROM decisions");
    query
}

#[cfg(unix)]
async fn identity(path: &std::path::Path) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(tokio::fs::metadata(path).await?.ino())
}

#[cfg(not(unix))]
async fn identity(path: &std::path::Path) -> std::io::Result<u64> {
    tokio::fs::metadata(path).await.map(|_| 0)
}

/// One row of the table, in the order of [`COLUMNS`].
#[derive(Debug, FromRow)]
struct Record {
    id: i64,
    decided_at_us: i64,
    request_id: String,
    attempt: i64,
    attempt_id: String,
    requested_model: Option<String>,
    endpoint: String,
    query: String,
    predictor_version: Option<String>,
    bear_version: Option<String>,
    config_digest: Option<String>,
    policy: String,
    reason: String,
    model: Option<String>,
    instance: Option<String>,
    lambda_per_usd: f64,
    delta_per_s: f64,
    ttft_target_ms: Option<f64>,
    propensity: f64,
    predicted_ttft_s: Option<f64>,
    predicted_wait_s: Option<f64>,
    predicted_prefill_s: Option<f64>,
    predicted_output_tokens: Option<f64>,
    predicted_accuracy: Option<f64>,
    predicted_cost_usd: Option<f64>,
    predicted_utility: Option<f64>,
    estimate_source: Option<String>,
    estimate_age_s: Option<f64>,
    streamed: bool,
    ending: String,
    ttft_s: Option<f64>,
    e2e_s: f64,
    prompt_tokens: Option<i64>,
    cached_tokens: Option<i64>,
    output_tokens: Option<i64>,
    cost_usd: Option<f64>,
    outcome_instance: i64,
    feature_version: Option<String>,
    features: Option<String>,
    candidates: String,
    prompt: Option<String>,
}

impl Record {
    fn from_row(row: &DecisionRow) -> Result<Self, StoreError> {
        let DecisionRow { decision, outcome, .. } = row;
        let chosen = decision.chosen();
        let fault =
            |source| StoreError::Row { attempt_id: outcome.attempt_id.clone(), action: "written", source };
        let features = row.features.as_ref().map(|f| f.json().map(Cow::into_owned)).transpose();
        let origin = row.origin.as_ref();
        Ok(Self {
            id: 0,
            decided_at_us: row.decided_at.unix_us().cast_signed(),
            request_id: decision.request_id.clone(),
            attempt: i64::from(decision.attempt),
            attempt_id: outcome.attempt_id.clone(),
            requested_model: decision.requested_model.clone(),
            endpoint: row.query.endpoint.clone(),
            query: serde_json::to_string(&row.query).map_err(fault)?,
            predictor_version: decision.predictor_version.clone(),
            bear_version: origin.map(|origin| origin.bear_version.clone()),
            config_digest: origin.map(|origin| origin.config_digest.clone()),
            policy: decision.policy.clone(),
            reason: decision.reason.label().into(),
            model: chosen.map(|c| c.model.clone()),
            instance: chosen.map(|c| c.instance.to_string()),
            lambda_per_usd: decision.lambda_per_usd,
            delta_per_s: decision.delta_per_s,
            ttft_target_ms: decision.ttft_target_ms,
            propensity: decision.propensity,
            predicted_ttft_s: chosen.and_then(|c| c.ttft_s),
            predicted_wait_s: chosen.and_then(|c| c.wait_s),
            predicted_prefill_s: chosen.and_then(|c| c.prefill_s),
            predicted_output_tokens: chosen.and_then(|c| c.output_tokens),
            predicted_accuracy: chosen.and_then(|c| c.accuracy),
            predicted_cost_usd: chosen.and_then(|c| c.cost_usd),
            predicted_utility: chosen.and_then(|c| c.utility),
            estimate_source: chosen.and_then(|c| c.source.clone()),
            estimate_age_s: chosen.and_then(|c| c.age_s),
            streamed: row.query.streamed,
            ending: outcome.ending.label().into(),
            ttft_s: outcome.ttft_s,
            e2e_s: outcome.e2e_s,
            prompt_tokens: outcome.prompt_tokens.map(i64::from),
            cached_tokens: outcome.cached_tokens.map(i64::from),
            output_tokens: outcome.output_tokens.map(i64::from),
            cost_usd: outcome.cost_usd,
            outcome_instance: i64::try_from(outcome.instance).unwrap_or(i64::MAX),
            feature_version: row.features.as_ref().map(|f| f.version().to_owned()),
            features: features.map_err(fault)?,
            candidates: serde_json::to_string(&decision.candidates).map_err(fault)?,
            prompt: row.prompt.clone(),
        })
    }

    fn bind(self, values: &mut sqlx::query_builder::Separated<'_, Sqlite, &'static str>) {
        values
            .push_bind(self.decided_at_us)
            .push_bind(self.request_id)
            .push_bind(self.attempt)
            .push_bind(self.attempt_id)
            .push_bind(self.requested_model)
            .push_bind(self.endpoint)
            .push_bind(self.query)
            .push_bind(self.predictor_version)
            .push_bind(self.bear_version)
            .push_bind(self.config_digest)
            .push_bind(self.policy)
            .push_bind(self.reason)
            .push_bind(self.model)
            .push_bind(self.instance)
            .push_bind(self.lambda_per_usd)
            .push_bind(self.delta_per_s)
            .push_bind(self.ttft_target_ms)
            .push_bind(self.propensity)
            .push_bind(self.predicted_ttft_s)
            .push_bind(self.predicted_wait_s)
            .push_bind(self.predicted_prefill_s)
            .push_bind(self.predicted_output_tokens)
            .push_bind(self.predicted_accuracy)
            .push_bind(self.predicted_cost_usd)
            .push_bind(self.predicted_utility)
            .push_bind(self.estimate_source)
            .push_bind(self.estimate_age_s)
            .push_bind(self.streamed)
            .push_bind(self.ending)
            .push_bind(self.ttft_s)
            .push_bind(self.e2e_s)
            .push_bind(self.prompt_tokens)
            .push_bind(self.cached_tokens)
            .push_bind(self.output_tokens)
            .push_bind(self.cost_usd)
            .push_bind(self.outcome_instance)
            .push_bind(self.feature_version)
            .push_bind(self.features)
            .push_bind(self.candidates)
            .push_bind(self.prompt);
    }

    fn into_row(self) -> Result<DecisionRow, StoreError> {
        let attempt_id = self.attempt_id;
        let fault = |source| StoreError::Row { attempt_id: attempt_id.clone(), action: "read", source };
        let label = |text: String| serde_json::Value::String(text);
        let reason: Reason = serde_json::from_value(label(self.reason)).map_err(fault)?;
        let ending: Ending = serde_json::from_value(label(self.ending)).map_err(fault)?;
        let query = serde_json::from_str(&self.query).map_err(fault)?;
        let features = self.feature_version.zip(self.features);
        let origin = self.bear_version.zip(self.config_digest);
        let decision = Decision {
            request_id: self.request_id,
            attempt: u32::try_from(self.attempt).unwrap_or(u32::MAX),
            requested_model: self.requested_model,
            predictor_version: self.predictor_version,
            policy: self.policy,
            reason,
            lambda_per_usd: self.lambda_per_usd,
            delta_per_s: self.delta_per_s,
            ttft_target_ms: self.ttft_target_ms,
            propensity: self.propensity,
            believed_latency_s: None,
            candidates: serde_json::from_str(&self.candidates).map_err(fault)?,
        };
        let tokens = |count: Option<i64>| count.and_then(|n| u32::try_from(n).ok());
        let outcome = Outcome {
            instance: usize::try_from(self.outcome_instance).unwrap_or(usize::MAX),
            ending,
            ttft_s: self.ttft_s,
            e2e_s: self.e2e_s,
            prompt_tokens: tokens(self.prompt_tokens),
            cached_tokens: tokens(self.cached_tokens),
            output_tokens: tokens(self.output_tokens),
            cost_usd: self.cost_usd,
            attempt_id,
        };
        let decided_at = Timestamp::from_unix_us(self.decided_at_us.max(0).cast_unsigned());
        Ok(DecisionRow {
            decided_at,
            decision,
            query,
            outcome,
            features: features.map(|(version, json)| LoggedFeatures::read(version, json)),
            prompt: self.prompt,
            origin: origin.map(|(bear_version, config_digest)| Origin { bear_version, config_digest }),
        })
    }
}
