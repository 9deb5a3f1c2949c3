//! What a snapshot must satisfy before decisions rest on it.

use std::{collections::HashSet, time::Duration};

use crate::domain::{
    InstanceSpec, Snapshot, Timestamp,
    snapshot::{MAX_LISTED_WAITING, Resident, SCHEMA},
};

/// Returns what is wrong with a snapshot; absent: nothing.
pub(super) fn fault(
    snapshot: &Snapshot,
    spec: &InstanceSpec,
    received: Timestamp,
    lead: Duration,
) -> Option<String> {
    if snapshot.schema != SCHEMA {
        return Some(format!("its schema is `{}`, this version reads `{SCHEMA}`", snapshot.schema));
    }
    if snapshot.dp_rank != spec.dp_rank {
        let (told, asked) = (snapshot.dp_rank, spec.dp_rank);
        return Some(format!("it is of dp_rank {told}, the instance is configured as {asked}"));
    }
    if snapshot.captured_unix_us > received.after(lead) {
        let ahead_s = snapshot.captured_unix_us.since(received).as_secs_f64();
        return Some(format!("it was captured {ahead_s:.3} s ahead of its receipt; check the hosts' clocks"));
    }
    engine_fault(snapshot).or_else(|| residents_fault(snapshot))
}

fn engine_fault(snapshot: &Snapshot) -> Option<String> {
    let engine = &snapshot.engine;
    let counts = [
        ("max_num_batched_tokens", engine.max_num_batched_tokens),
        ("max_num_seqs", engine.max_num_seqs),
        ("block_size", engine.block_size),
        ("num_kv_blocks", engine.num_kv_blocks),
        ("max_model_len", engine.max_model_len),
    ];
    if let Some((key, _)) = counts.into_iter().find(|(_, value)| *value == 0) {
        return Some(format!("engine.{key} is 0"));
    }
    let kv_tokens = u64::from(engine.num_kv_blocks) * u64::from(engine.block_size);
    if kv_tokens < u64::from(engine.max_model_len) {
        return Some(format!(
            "its {kv_tokens} tokens of KV blocks hold no sequence of max_model_len {}",
            engine.max_model_len
        ));
    }
    let exclusive = snapshot.running.iter().filter_map(|resident| resident.kv_blocks_exclusive);
    let claimed = exclusive.map(u64::from).sum::<u64>() + u64::from(snapshot.free_kv_blocks);
    (claimed > u64::from(engine.num_kv_blocks)).then(|| {
        format!("free and exclusive blocks are {claimed}, num_kv_blocks is {}", engine.num_kv_blocks)
    })
}

fn residents_fault(snapshot: &Snapshot) -> Option<String> {
    if snapshot.waiting.len() > MAX_LISTED_WAITING {
        return Some(format!(
            "it lists {} waiting, at most {MAX_LISTED_WAITING} may be; sum the rest in waiting_beyond",
            snapshot.waiting.len()
        ));
    }
    let mut seen = HashSet::with_capacity(snapshot.running.len() + snapshot.waiting.len());
    snapshot.running.iter().chain(&snapshot.waiting).find_map(|resident| {
        if seen.insert(resident.id.as_str()) {
            resident_fault(resident, snapshot.engine.max_model_len)
        } else {
            Some(format!("resident `{}` is listed twice", resident.id))
        }
    })
}

fn resident_fault(resident: &Resident, max_model_len: u32) -> Option<String> {
    let tokens = u64::from(resident.prompt_tokens) + u64::from(resident.output_tokens);
    let what = if resident.prompt_tokens == 0 {
        String::from("has no prompt tokens")
    } else if tokens > u64::from(max_model_len) {
        format!("has {tokens} tokens, max_model_len is {max_model_len}")
    } else if u64::from(resident.computed_tokens) > tokens {
        format!("has {} tokens computed of {tokens}", resident.computed_tokens)
    } else if resident.kv_blocks_exclusive.is_some_and(|exclusive| exclusive > resident.kv_blocks) {
        String::from("holds more blocks exclusively than at all")
    } else {
        return None;
    };
    Some(format!("resident `{}` {what}", resident.id))
}
