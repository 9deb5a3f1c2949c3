//! A snapshot and the ledger as one replayable state: lengths for the residents, and what was sent
//! since. Nothing is counted twice.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{
    answers,
    ledger::{Entry, Ledger, Settled},
    remaining::{Whose, clamp, remaining_tokens},
};
use crate::domain::{
    Dispatched, Snapshot,
    snapshot::{EngineParams, Resident, WaitingBeyond},
};

/// Returns the remaining output tokens of every listed resident.
///
/// A resident of this router has its own prediction; one that settled since the capture has what its
/// stream showed after it; for a stranger `expected_tokens` (of its prompt tokens) gives the length.
pub(super) fn predicted_remaining(
    snapshot: &Snapshot,
    ledger: &Ledger,
    expected_tokens: &dyn Fn(u32) -> f64,
) -> HashMap<String, u32> {
    let live: HashMap<&str, &Arc<Entry>> = ledger.live().map(|entry| (&*entry.id, entry)).collect();
    let settled: HashMap<&str, &Settled> = ledger.settled().map(|gone| (&*gone.id, gone)).collect();
    let of = |resident: &Resident| {
        let id = resident.id.as_str();
        let produced = resident.output_tokens;
        let request_id = answers::request_id(id);
        if let Some(entry) = live.get(id).or_else(|| live.get(request_id)) {
            let cap = resident.max_tokens.or(entry.max_output_tokens);
            return remaining_tokens(Whose::Own, f64::from(entry.load.output_tokens), produced, cap);
        }
        match settled.get(id).or_else(|| settled.get(request_id)) {
            Some(gone) => clamp(gone.produced_tokens.saturating_sub(produced), produced, resident.max_tokens),
            None => {
                let expected = expected_tokens(resident.prompt_tokens);
                remaining_tokens(Whose::Stranger, expected, produced, resident.max_tokens)
            }
        }
    };
    let residents = snapshot.running.iter().chain(&snapshot.waiting);
    residents.map(|resident| (resident.id.clone(), of(resident))).collect()
}

/// Returns the sequences that the snapshot cannot know yet, in dispatch order.
///
/// Listed ones are in the snapshot. Of the others, one expected after the capture is on its way. One
/// expected before it has been there and finished if a snapshot listed it or its first token came; is
/// among the summed ones if there are any; and else is held to be on its way for `grace`.
pub(super) fn dispatched_since(
    snapshot: &Snapshot,
    remaining: &HashMap<String, u32>,
    ledger: &Ledger,
    grace: Duration,
) -> Arc<[Dispatched]> {
    let captured = snapshot.captured_unix_us;
    let on_its_way = |entry: &&Arc<Entry>| {
        if !fits(entry, &snapshot.engine) {
            return false;
        }
        let may_be_late = !entry.was_listed()
            && !entry.has_first_token()
            && snapshot.waiting_beyond == WaitingBeyond::default()
            && captured < entry.expected.after(grace);
        entry.expected > captured || may_be_late
    };
    let sequences = ledger.live().filter(on_its_way);
    let sequences = sequences.flat_map(|entry| answers::dispatched(entry, &snapshot.engine));
    sequences.filter(|sequence| !remaining.contains_key(&sequence.id)).collect()
}

/// Returns whether the engine takes a prompt of that length; it refuses others at once.
pub(super) fn fits(entry: &Entry, engine: &EngineParams) -> bool {
    entry.load.prompt_tokens < engine.max_model_len
}

/// Returns how many sequences wait or run by snapshot and ledger: the listed and the summed ones that
/// have not settled since, and those on their way.
pub(super) fn residents(
    snapshot: &Snapshot,
    remaining: &HashMap<String, u32>,
    ledger: &Ledger,
    on_their_way: usize,
) -> u32 {
    let listed = snapshot.running.len() + snapshot.waiting.len();
    let gone: usize = ledger.settled().map(|gone| answers::listed(&gone.id, gone.sequences, remaining)).sum();
    let known = (listed + on_their_way).saturating_sub(gone);
    u32::try_from(known).unwrap_or(u32::MAX).saturating_add(snapshot.waiting_beyond.requests)
}
