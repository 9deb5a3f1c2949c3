//! `bear estimate` as a function: one JSON line in, one JSON line out.
//!
//! A bad line gives an error line with its number and the path of the offending value.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::replay::{Ended, Goal, Replayed, STEP_LIMIT, Scenario, Scratch, Start, StateError, Step};
use crate::{
    domain::{BatchTimeCoefficients, Dispatched, QueryLoad, Timestamp, snapshot::SCHEMA, snapshot::Snapshot},
    engine::{BatchTime, EngineError},
};

/// One input line.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InputLine {
    snapshot: Snapshot,
    calibration: BatchTimeCoefficients,
    now_unix_us: Timestamp,
    #[serde(default)]
    predicted_remaining: BTreeMap<String, f64>,
    #[serde(default)]
    dispatched: Vec<DispatchedLine>,
    query: QueryLine,
}

/// A dispatched request as a line gives it: its predicted length may be fractional.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DispatchedLine {
    id: String,
    at_unix_us: Timestamp,
    prompt_tokens: u32,
    #[serde(default)]
    cached_tokens: u32,
    #[serde(default)]
    cached_blocks_in_use: u32,
    output_tokens: f64,
    #[serde(default)]
    priority: i32,
}

/// The query as a line gives it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct QueryLine {
    prompt_tokens: u32,
    #[serde(default)]
    cached_tokens: u32,
    #[serde(default)]
    cached_blocks_in_use: u32,
    output_tokens: f64,
    #[serde(default)]
    priority: i32,
}

/// Most batches of one trace; later ones run untraced.
pub const MAX_TRACED_BATCHES: usize = 100_000;

/// Most ids that the batches of one trace name together, those past the last whole batch left out.
pub const MAX_TRACED_IDS: usize = 1_000_000;

/// The largest coefficient taken, seconds: one that lasts eleven days a token is a slip of units.
pub const MAX_COEFFICIENT_S: f64 = 1e6;

/// What one line asks for.
#[derive(Clone, Copy, Debug)]
pub struct LineOptions {
    /// Replays step by step.
    pub plain: bool,
    /// Adds the batches; replays step by step.
    pub trace: bool,
    /// Steps after which it gives up.
    pub step_limit: u64,
}

impl Default for LineOptions {
    fn default() -> Self {
        Self { plain: false, trace: false, step_limit: STEP_LIMIT }
    }
}

/// An answer; times are seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// From the query's arrival to its first token; null when it never comes.
    pub ttft_s: Option<f64>,
    /// Batches formed and run, and empty formations that preempted.
    pub steps: u64,
    /// Until a batch begins that has the query in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_s: Option<f64>,
    /// From there to the first token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill_s: Option<f64>,
    /// Why there is no TTFT: `unschedulable` or `limit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// The batches, where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batches: Option<Vec<AnswerBatch>>,
    /// Whether the trace reached its bound and says nothing of later batches.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub trace_truncated: bool,
}

/// One batch of a trace; times are seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AnswerBatch {
    /// From the capture.
    pub start_s: f64,
    /// By eq. 12; 0 for an empty formation that preempted.
    pub duration_s: f64,
    /// Tokens by id, in scheduling order.
    pub scheduled: Vec<(String, u32)>,
    /// Ids that lost their blocks for it.
    pub preempted: Vec<String>,
}

/// Why a line has no answer.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// Not the JSON that is expected.
    #[error("{}", on_one_line(source))]
    Parse {
        /// Where.
        path: String,
        /// What the parser says.
        source: serde_json::Error,
    },
    /// Another document.
    #[error("schema `{schema}` is not known; expected `{SCHEMA}`")]
    Schema {
        /// The schema given.
        schema: String,
    },
    /// A predicted length that is no count.
    #[error("{tokens} is not a number of tokens; predictions are finite and not negative")]
    Length {
        /// Where.
        path: String,
        /// The value.
        tokens: f64,
    },
    /// A coefficient that is no time.
    #[error("{value} is no time a batch could take; coefficients are seconds, from 0 to {MAX_COEFFICIENT_S}")]
    Coefficient {
        /// Its key.
        key: &'static str,
        /// The value.
        value: f64,
    },
    /// A state that cannot be replayed.
    #[error("{0}")]
    State(#[from] StateError),
}

impl LineError {
    /// Returns the path of the offending value.
    #[must_use]
    pub fn path(&self) -> String {
        match self {
            Self::Parse { path, .. } | Self::Length { path, .. } => path.clone(),
            Self::Schema { .. } => String::from("snapshot.schema"),
            Self::Coefficient { key, .. } => format!("calibration.{key}"),
            Self::State(StateError::Engine(error)) => match error {
                EngineError::UnknownScheduler { .. } => String::from("snapshot.engine.scheduler"),
                EngineError::BlockSizeZero => String::from("snapshot.engine.block_size"),
                EngineError::KvTooSmall { .. } => String::from("snapshot.engine.num_kv_blocks"),
                EngineError::BudgetUnderModelLen { .. } => {
                    String::from("snapshot.engine.max_num_batched_tokens")
                }
                _ => String::from("snapshot.engine"),
            },
            Self::State(error) => error.place().to_string(),
        }
    }

    /// Returns the error line for line `number` (from 1).
    #[must_use]
    pub fn to_line(&self, number: usize) -> Value {
        serde_json::json!({ "error": self.to_string(), "line": number, "path": self.path() })
    }
}

/// Returns the parser's message with the column only: it counts lines within the one it is given.
fn on_one_line(source: &serde_json::Error) -> String {
    let message = source.to_string();
    match message.rsplit_once(" at line ") {
        Some((message, _)) => format!("{message} at column {}", source.column()),
        None => message,
    }
}

/// Answers one input line.
///
/// # Errors
/// The line is not valid JSON of the expected form, or its state breaks a rule of the replay.
pub fn answer(line: &[u8], options: LineOptions) -> Result<Answer, LineError> {
    let mut json = serde_json::Deserializer::from_slice(line);
    let parsed: Result<InputLine, _> = serde_path_to_error::deserialize(&mut json);
    let input = parsed
        .map_err(|error| LineError::Parse { path: error.path().to_string(), source: error.into_inner() })?;
    json.end().map_err(|source| LineError::Parse { path: String::from("."), source })?;
    if input.snapshot.schema != SCHEMA {
        return Err(LineError::Schema { schema: input.snapshot.schema });
    }
    check_coefficients(&input.calibration)?;
    let mut predicted_remaining = HashMap::with_capacity(input.predicted_remaining.len());
    for (id, &tokens) in &input.predicted_remaining {
        predicted_remaining.insert(id.clone(), whole(tokens, || format!("predicted_remaining.{id}"))?);
    }
    let dispatched = input.dispatched.iter().enumerate().map(dispatched).collect::<Result<Vec<_>, _>>()?;
    let scenario = Scenario {
        snapshot: &input.snapshot,
        predicted_remaining: &predicted_remaining,
        dispatched: &dispatched,
        query: QueryLoad {
            prompt_tokens: input.query.prompt_tokens,
            cached_tokens: input.query.cached_tokens,
            cached_blocks_in_use: input.query.cached_blocks_in_use,
            output_tokens: whole(input.query.output_tokens, || String::from("query.output_tokens"))?,
            priority: input.query.priority,
        },
        now: input.now_unix_us,
        batch_time: BatchTime::from(&input.calibration),
    };
    Ok(replayed(&scenario, options)?)
}

fn check_coefficients(b: &BatchTimeCoefficients) -> Result<(), LineError> {
    let BatchTimeCoefficients { b0_s, b1_s, b2_s, b3_s, b4_s } = *b;
    let all = [("b0_s", b0_s), ("b1_s", b1_s), ("b2_s", b2_s), ("b3_s", b3_s), ("b4_s", b4_s)];
    match all.into_iter().find(|(_, value)| !(0.0..=MAX_COEFFICIENT_S).contains(value)) {
        Some((key, value)) => Err(LineError::Coefficient { key, value }),
        None => Ok(()),
    }
}

fn dispatched((i, line): (usize, &DispatchedLine)) -> Result<Dispatched, LineError> {
    Ok(Dispatched {
        id: line.id.clone(),
        at_unix_us: line.at_unix_us,
        prompt_tokens: line.prompt_tokens,
        cached_tokens: line.cached_tokens,
        cached_blocks_in_use: line.cached_blocks_in_use,
        output_tokens: whole(line.output_tokens, || format!("dispatched[{i}].output_tokens"))?,
        priority: line.priority,
    })
}

/// Takes a predicted length as given: rounded up, at least 1.
fn whole(tokens: f64, path: impl FnOnce() -> String) -> Result<u32, LineError> {
    if !tokens.is_finite() || tokens < 0.0 {
        return Err(LineError::Length { path: path(), tokens });
    }
    Ok((tokens.ceil() as u32).max(1))
}

fn replayed(scenario: &Scenario<'_>, options: LineOptions) -> Result<Answer, StateError> {
    let start = Start::new(scenario)?;
    let names = start.names().clone();
    let mut trace = options.trace.then(Trace::default);
    let goal = Goal { output_tokens: 1, step_limit: options.step_limit };
    let replayed = match options.plain || options.trace {
        true => start.plain(goal, |step: Step<'_>| {
            if let Some(trace) = &mut trace {
                trace.push(step, |slot| names.name(slot).id(scenario).into_owned());
            }
        }),
        false => start.fast(goal, &mut Scratch::default()),
    };
    let Replayed { ended, wait, ttft, steps, .. } = replayed;
    let reason = match ended {
        Ended::Reached => None,
        Ended::Unschedulable => Some("unschedulable"),
        Ended::Limit => Some("limit"),
    };
    let trace_truncated = trace.as_ref().is_some_and(|trace| trace.truncated);
    let prefill = ttft.zip(wait).map(|(ttft, wait)| ttft.saturating_sub(wait));
    Ok(Answer {
        ttft_s: ttft.map(exact_seconds),
        steps,
        wait_s: ttft.and(wait).map(exact_seconds),
        prefill_s: prefill.map(exact_seconds),
        reason,
        batches: trace.map(|trace| trace.batches),
        trace_truncated,
    })
}

/// The batches shown so far, within the bounds of a trace.
#[derive(Debug, Default)]
struct Trace {
    batches: Vec<AnswerBatch>,
    ids: usize,
    truncated: bool,
}

impl Trace {
    fn push(&mut self, step: Step<'_>, id: impl Fn(usize) -> String) {
        self.ids += step.members.len() + step.preempted.len();
        self.truncated |= self.batches.len() == MAX_TRACED_BATCHES || self.ids > MAX_TRACED_IDS;
        if self.truncated {
            return;
        }
        self.batches.push(AnswerBatch {
            start_s: exact_seconds(step.start),
            duration_s: exact_seconds(step.duration),
            scheduled: step.members.iter().map(|m| (id(m.slot), m.num_scheduled_tokens)).collect(),
            preempted: step.preempted.iter().map(|&slot| id(slot)).collect(),
        });
    }
}

/// Returns the double nearest to so many attoseconds; one division would round twice.
fn exact_seconds(attoseconds: i128) -> f64 {
    let (sign, digits) = (if attoseconds < 0 { "-" } else { "" }, attoseconds.unsigned_abs());
    let one = 10_u128.pow(18);
    let text = format!("{sign}{}.{:018}", digits / one, digits % one);
    text.parse().unwrap_or(attoseconds as f64 / 1e18)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Member;

    fn step(members: &[Member]) -> Step<'_> {
        Step { start: 0, duration: 1, members, preempted: &[] }
    }

    #[test]
    fn a_trace_ends_after_so_many_batches() {
        let mut trace = Trace::default();
        for _ in 0..MAX_TRACED_BATCHES {
            trace.push(step(&[]), |_| String::new());
        }
        assert_eq!((trace.batches.len(), trace.truncated), (MAX_TRACED_BATCHES, false));
        trace.push(step(&[]), |_| String::new());
        assert_eq!((trace.batches.len(), trace.truncated), (MAX_TRACED_BATCHES, true));
    }

    #[test]
    fn a_trace_ends_after_so_many_ids_and_stays_ended() {
        let member = Member {
            slot: 0,
            num_scheduled_tokens: 1,
            num_computed_tokens: 0,
            decodes: false,
            emits: false,
            origin: crate::engine::Origin::New,
        };
        let mut trace = Trace { ids: MAX_TRACED_IDS - 3, ..Trace::default() };
        for (members, shown) in [(2, 1), (2, 1), (0, 1)] {
            trace.push(step(&vec![member; members]), |_| String::from("r"));
            assert_eq!(trace.batches.len(), shown);
        }
        assert!(trace.truncated);
    }
}
