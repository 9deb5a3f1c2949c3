//! Every model's way of counting, and what engines have counted before.

use std::{
    collections::HashMap,
    hash::BuildHasher,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use moka::sync::Cache;

use super::{TokenizeError, TokenizerConfig, files::ModelFiles};
use crate::{
    domain::{CountSource, Now, PromptCount, Timestamp},
    wire::openai::{Input, Prompt, Request},
};

/// Mean bytes of a token where nothing better is known: English text under the vocabularies of 2024–2026
/// has 4 to 4.5, code and other scripts fewer, so this rather over- than undercounts.
const BYTES_PER_TOKEN: usize = 4;
/// Tokens that a chat template puts around one message: role, marks and line feeds (Qwen3: 5).
const TOKENS_PER_MESSAGE: u32 = 5;
/// Prompts whose counts are kept; each costs about 100 bytes.
const KEPT_COUNTS: u64 = 16_384;
/// How long an engine is not asked after it failed to count in time.
const ENGINE_REST: Duration = Duration::from_secs(5);

/// A request's identity for remembered counts: two independent keyed hashes.
pub(in crate::gateway) type Fingerprint = (u64, u64);

/// How every model of the pool counts, in pool order.
pub struct Tokenizers {
    models: Vec<(Option<Arc<ModelFiles>>, bool)>,
    /// Counts that an engine gave: each saves a round trip. The router's own tokenizers are faster
    /// (about 45 tokens a microsecond) than a lookup is worth.
    engine_counts: Cache<(usize, Fingerprint), u32>,
    /// When each model's engine may be asked again, microseconds since the Unix epoch.
    engine_rests: Vec<AtomicU64>,
    hashers: [std::hash::RandomState; 2],
}

impl Tokenizers {
    /// Loads the files of every model; models with the same folder share one tokenizer.
    ///
    /// # Errors
    /// [`TokenizeError`] naming the file.
    pub fn load(configs: &[TokenizerConfig], clock: &Arc<dyn Now>) -> Result<Self, TokenizeError> {
        let mut loaded: HashMap<&PathBuf, Arc<ModelFiles>> = HashMap::new();
        let mut models = Vec::with_capacity(configs.len());
        for config in configs {
            let files = match &config.files {
                None => None,
                Some(folder) => match loaded.get(folder) {
                    Some(files) => Some(Arc::clone(files)),
                    None => {
                        let files = Arc::new(ModelFiles::load(folder, Arc::clone(clock))?);
                        loaded.insert(folder, Arc::clone(&files));
                        Some(files)
                    }
                },
            };
            models.push((files, config.engine));
        }
        let hashers = [std::hash::RandomState::new(), std::hash::RandomState::new()];
        let engine_rests = models.iter().map(|_| AtomicU64::new(0)).collect();
        Ok(Self { models, engine_counts: Cache::new(KEPT_COUNTS), engine_rests, hashers })
    }

    /// Counts a prompt under every wanted model's own files, and by bytes under the others.
    pub fn count(&self, request: &Request, body_bytes: usize, wanted: Option<usize>) -> Vec<PromptCount> {
        let fallback = by_bytes(request, body_bytes);
        let mut done: Vec<(*const ModelFiles, PromptCount)> = Vec::new();
        let mut counts = Vec::with_capacity(self.models.len());
        for (i, (files, _)) in self.models.iter().enumerate() {
            let wanted = wanted.is_none_or(|only| only == i);
            let Some(files) = files.as_ref().filter(|_| wanted) else {
                counts.push(fallback);
                continue;
            };
            let known = done.iter().find(|(seen, _)| *seen == Arc::as_ptr(files)).map(|(_, count)| *count);
            let count = known.unwrap_or_else(|| files.count(request).unwrap_or(fallback));
            if known.is_none() {
                done.push((Arc::as_ptr(files), count));
            }
            counts.push(count);
        }
        counts
    }

    /// Estimates a prompt by its bytes under every model.
    pub(in crate::gateway) fn estimate(&self, request: &Request, body_bytes: usize) -> Vec<PromptCount> {
        vec![by_bytes(request, body_bytes); self.models.len()]
    }

    /// Returns whether model `i`'s engine is to be asked for a count that its files did not give.
    pub(in crate::gateway) fn asks_engine(&self, i: usize, now: Timestamp) -> bool {
        let rested = |until: &AtomicU64| until.load(Ordering::Relaxed) <= now.unix_us();
        self.models.get(i).is_some_and(|(_, engine)| *engine) && self.engine_rests.get(i).is_some_and(rested)
    }

    /// Leaves model `i`'s engine alone for a while: it failed to count, and each try costs a wait.
    pub(in crate::gateway) fn rest_engine(&self, i: usize, now: Timestamp) {
        if let Some(until) = self.engine_rests.get(i) {
            until.store(now.after(ENGINE_REST).unix_us(), Ordering::Relaxed);
        }
    }

    /// Returns a body's identity for [`Self::engine_count`].
    pub(in crate::gateway) fn fingerprint(&self, body: &[u8]) -> Fingerprint {
        (self.hashers[0].hash_one(body), self.hashers[1].hash_one(body))
    }

    /// Returns the remembered engine count of a body under model `i`.
    pub(in crate::gateway) fn engine_count(&self, i: usize, of: Fingerprint) -> Option<u32> {
        self.engine_counts.get(&(i, of))
    }

    /// Remembers an engine's count.
    pub(in crate::gateway) fn remember(&self, i: usize, of: Fingerprint, tokens: u32) {
        self.engine_counts.insert((i, of), tokens);
    }
}

/// Estimates a prompt's tokens from its bytes, at least 1.
fn by_bytes(request: &Request, body_bytes: usize) -> PromptCount {
    let of_bytes = |bytes: usize| u32::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u32::MAX);
    let of_ids = |ids: &[u32]| u32::try_from(ids.len()).unwrap_or(u32::MAX);
    let mut longest = None;
    let (bytes, extra) = match &request.input {
        Input::Messages(messages) => {
            let tools = request.template.get("tools").map_or(0, |tools| tools.to_string().len());
            let each = u32::try_from(messages.len()).unwrap_or(u32::MAX).saturating_mul(TOKENS_PER_MESSAGE);
            (request.prompt_text().len() + tools, each)
        }
        Input::Prompts(prompts) => {
            let each = prompts.iter().map(|prompt| match prompt {
                Prompt::Text(text) => of_bytes(text.len()),
                Prompt::Tokens(ids) => of_ids(ids),
            });
            longest = each.max();
            prompts.iter().fold((0, 0_u32), |(bytes, ids), prompt| match prompt {
                Prompt::Text(text) => (bytes + text.len(), ids),
                Prompt::Tokens(tokens) => (bytes, ids.saturating_add(of_ids(tokens))),
            })
        }
        Input::Opaque => (body_bytes, 0),
    };
    let exact = bytes == 0 && extra > 0 && matches!(request.input, Input::Prompts(_));
    let tokens = of_bytes(bytes).saturating_add(extra).max(1);
    let source = if exact { CountSource::Tokenizer } else { CountSource::Bytes };
    PromptCount { tokens, longest_tokens: longest.unwrap_or(tokens).max(1), source }
}
