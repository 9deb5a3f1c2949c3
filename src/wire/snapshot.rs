//! The JSON codec of `bear.snapshot.v1` and the rules a document must keep.
//!
//! A document that decodes here can be replayed: sizes, limits and ids have been checked, and every
//! error says where in the document it lies.

use std::collections::HashMap;

use crate::domain::{
    Snapshot,
    snapshot::{EngineParams, MAX_LISTED_WAITING, Resident, SCHEMA},
};

/// The most running requests a document may list: far above any engine's seats, and small enough
/// that a broken publisher cannot fill the memory.
pub const MAX_LISTED_RUNNING: usize = 16_384;

/// Why a document was refused.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// It is not JSON of the right shape.
    #[error("{path}: {source}")]
    Shape {
        /// Where, as `running[3].id`; `.` is the document itself.
        path: String,
        /// What serde says.
        #[source]
        source: serde_json::Error,
    },
    /// It carries another schema name.
    #[error("schema: expected `{SCHEMA}`, got `{got}`; is the publisher of another version?")]
    Schema {
        /// The name it carries.
        got: String,
    },
    /// A value breaks a rule.
    #[error("{path}: {rule}, got {got}")]
    Rule {
        /// Where.
        path: String,
        /// The rule.
        rule: &'static str,
        /// The offending value.
        got: String,
    },
}

impl SnapshotError {
    fn rule(path: impl Into<String>, rule: &'static str, got: impl ToString) -> Self {
        Self::Rule { path: path.into(), rule, got: got.to_string() }
    }
}

/// Reads and checks one document.
///
/// # Errors
/// [`SnapshotError`] with the place.
pub fn decode(json: &[u8]) -> Result<Snapshot, SnapshotError> {
    let snapshot: Snapshot = match serde_json::from_slice(json) {
        Ok(snapshot) => snapshot,
        Err(source) => return Err(place(json, source)),
    };
    validate(&snapshot)?;
    Ok(snapshot)
}

/// Reads a malformed document again, slowly, to learn where it is malformed.
fn place(json: &[u8], source: serde_json::Error) -> SnapshotError {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    match serde_path_to_error::deserialize::<_, Snapshot>(&mut deserializer) {
        Err(error) => SnapshotError::Shape { path: error.path().to_string(), source: error.into_inner() },
        Ok(_) => SnapshotError::Shape { path: String::from("."), source },
    }
}

/// Writes one document.
#[must_use]
pub fn encode(snapshot: &Snapshot) -> Vec<u8> {
    serde_json::to_vec(snapshot).unwrap_or_default()
}

/// Checks the rules of a document, however it came.
///
/// # Errors
/// [`SnapshotError`] with the place.
pub fn validate(snapshot: &Snapshot) -> Result<(), SnapshotError> {
    if snapshot.schema != SCHEMA {
        return Err(SnapshotError::Schema { got: snapshot.schema.clone() });
    }
    validate_engine(&snapshot.engine)?;
    if snapshot.free_kv_blocks > snapshot.engine.num_kv_blocks {
        return Err(SnapshotError::rule(
            "free_kv_blocks",
            "at most engine.num_kv_blocks",
            snapshot.free_kv_blocks,
        ));
    }
    if snapshot.running.len() > MAX_LISTED_RUNNING {
        return Err(SnapshotError::rule("running", "too many listed", snapshot.running.len()));
    }
    if snapshot.waiting.len() > MAX_LISTED_WAITING {
        return Err(SnapshotError::rule(
            "waiting",
            "at most 512 listed; sum the rest in waiting_beyond",
            snapshot.waiting.len(),
        ));
    }
    // Computed tokens of the running by id; a waiting one may have been preempted out of the batch in flight.
    let mut computed = HashMap::with_capacity(snapshot.running.len() + snapshot.waiting.len());
    for (list, residents) in [("running", &snapshot.running), ("waiting", &snapshot.waiting)] {
        for (i, resident) in residents.iter().enumerate() {
            let runs = (list == "running").then_some(resident.computed_tokens);
            let known = computed.insert(resident.id.as_str(), runs);
            if resident.id.is_empty() || known.is_some() {
                let path = format!("{list}[{i}].id");
                return Err(SnapshotError::rule(path, "ids are unique and not empty", &resident.id));
            }
            validate_resident(resident, &snapshot.engine, list, i)?;
        }
    }
    for (id, &tokens) in snapshot.in_flight.iter().flat_map(|batch| &batch.tokens) {
        if computed.get(id.as_str()).is_some_and(|runs| runs.is_some_and(|computed| tokens > computed)) {
            let path = format!("in_flight.tokens.{id}");
            let rule = "at most the resident's computed_tokens, which count the batch in flight";
            return Err(SnapshotError::rule(path, rule, tokens));
        }
    }
    Ok(())
}

fn validate_engine(engine: &EngineParams) -> Result<(), SnapshotError> {
    for (member, value) in [
        ("engine.max_num_batched_tokens", engine.max_num_batched_tokens),
        ("engine.max_num_seqs", engine.max_num_seqs),
        ("engine.block_size", engine.block_size),
        ("engine.num_kv_blocks", engine.num_kv_blocks),
        ("engine.max_model_len", engine.max_model_len),
    ] {
        if value == 0 {
            return Err(SnapshotError::rule(member, "at least 1", value));
        }
    }
    let capacity = u64::from(engine.num_kv_blocks) * u64::from(engine.block_size);
    if capacity < u64::from(engine.max_model_len) {
        return Err(SnapshotError::rule(
            "engine.num_kv_blocks",
            "its blocks hold at least one sequence of max_model_len",
            engine.num_kv_blocks,
        ));
    }
    if !engine.enable_chunked_prefill && engine.max_num_batched_tokens < engine.max_model_len {
        return Err(SnapshotError::rule(
            "engine.max_num_batched_tokens",
            "at least max_model_len without chunked prefill",
            engine.max_num_batched_tokens,
        ));
    }
    Ok(())
}

fn validate_resident(r: &Resident, engine: &EngineParams, list: &str, i: usize) -> Result<(), SnapshotError> {
    let rule = |member: &str, rule, got: &dyn ToString| {
        Err(SnapshotError::rule(format!("{list}[{i}].{member}"), rule, got.to_string()))
    };
    if r.prompt_tokens == 0 {
        return rule("prompt_tokens", "at least 1", &r.prompt_tokens);
    }
    let length = u64::from(r.prompt_tokens) + u64::from(r.output_tokens);
    if length >= u64::from(engine.max_model_len) {
        return rule("prompt_tokens", "with output_tokens below engine.max_model_len", &length);
    }
    if u64::from(r.computed_tokens) > length {
        return rule("computed_tokens", "at most prompt_tokens + output_tokens", &r.computed_tokens);
    }
    if r.kv_blocks > engine.num_kv_blocks {
        return rule("kv_blocks", "at most engine.num_kv_blocks", &r.kv_blocks);
    }
    match r.kv_blocks_exclusive {
        Some(exclusive) if exclusive > r.kv_blocks => {
            rule("kv_blocks_exclusive", "at most kv_blocks", &exclusive)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn document() -> Value {
        json!({"schema":"bear.snapshot.v1","instance":"a","nonce":"5f0c","seq":1841,
            "captured_unix_us":1_764_460_800_123_456_u64,
            "engine":{"scheduler":"vllm-v1","max_num_batched_tokens":8192,"max_num_seqs":256,"block_size":16,
                "num_kv_blocks":23550,"max_model_len":40960,"async_scheduling":true},
            "free_kv_blocks":23492,
            "in_flight":{"started_unix_us":1_764_460_800_110_000_u64,"tokens":{"r1":1}},
            "running":[{"id":"r1","prompt_tokens":900,"computed_tokens":904,"output_tokens":4,"kv_blocks":57,
                "kv_blocks_exclusive":57}],
            "waiting":[{"id":"r2","prompt_tokens":4000,"computed_tokens":0,"cached_tokens":512,
                "output_tokens":0,"max_tokens":800}]})
    }

    fn decode_with(pointer: &str, value: Value) -> Result<Snapshot, SnapshotError> {
        let mut document = document();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        document.pointer_mut(parent).unwrap()[key] = value;
        decode(document.to_string().as_bytes())
    }

    #[test]
    fn what_is_encoded_decodes() {
        let snapshot = decode(document().to_string().as_bytes()).unwrap();
        assert_eq!(snapshot.running[0].id, "r1");
        assert!(snapshot.engine.reserve_full_isl && snapshot.engine.enable_chunked_prefill);
        assert_eq!(decode(&encode(&snapshot)).unwrap(), snapshot);
    }

    #[test]
    fn a_request_preempted_out_of_the_batch_in_flight_may_wait() {
        let snapshot =
            decode_with("/in_flight", json!({"started_unix_us":1,"tokens":{"r1":1,"r2":7}})).unwrap();
        assert_eq!(snapshot.waiting[0].computed_tokens, 0);
    }

    #[test]
    fn errors_say_where() {
        for (pointer, value, path) in [
            ("/schema", json!("bear.snapshot.v2"), "schema"),
            ("/seq", json!(-1), "seq"),
            ("/extra", json!(1), "extra"),
            ("/engine/block_size", json!(0), "engine.block_size"),
            ("/engine/policy", json!("lifo"), "engine.policy"),
            ("/engine/num_kv_blocks", json!(2559), "engine.num_kv_blocks"),
            ("/engine/enable_chunked_prefill", json!(false), "engine.max_num_batched_tokens"),
            ("/free_kv_blocks", json!(23551), "free_kv_blocks"),
            ("/running", json!([{"id":"r1"}]), "running[0]"),
            ("/running", json!([1]), "running[0]"),
            ("/in_flight", json!({"started_unix_us":1,"tokens":{"a":-2}}), "in_flight.tokens.a"),
            ("/in_flight", json!({"started_unix_us":1,"tokens":{"r1":905}}), "in_flight.tokens.r1"),
        ] {
            let error = decode_with(pointer, value).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{path}:")), "{pointer}: {error}");
        }
        let resident = |change: &str, value: Value| {
            let mut document = document();
            document["running"][0][change] = value;
            decode(document.to_string().as_bytes()).unwrap_err().to_string()
        };
        for (member, value) in [
            ("id", json!("")),
            ("id", json!("r2")),
            ("prompt_tokens", json!(0)),
            ("prompt_tokens", json!(40956)),
            ("computed_tokens", json!(905)),
            ("kv_blocks", json!(23551)),
            ("kv_blocks_exclusive", json!(58)),
            ("output_tokens", json!(-1)),
        ] {
            let error = resident(member, value.clone());
            assert!(error.contains(&format!("[0].{member}:")), "{member} = {value}: {error}");
        }
        assert!(decode(b"{").unwrap_err().to_string().contains("EOF"));
    }

    #[test]
    fn a_long_queue_is_refused() {
        let mut snapshot = decode(document().to_string().as_bytes()).unwrap();
        let one = snapshot.waiting[0].clone();
        snapshot.waiting =
            (0..=MAX_LISTED_WAITING).map(|i| Resident { id: format!("w{i}"), ..one.clone() }).collect();
        assert!(validate(&snapshot).unwrap_err().to_string().starts_with("waiting: "));
        snapshot.waiting.pop();
        validate(&snapshot).unwrap();
    }
}
