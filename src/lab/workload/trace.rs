//! Recorded lengths and shared prefixes (Azure, Mooncake), in recorded order.
//!
//! A recorded output is what a model of factor 1 answers. Mooncake's ids stand for 512 tokens with all before
//! them: equal ids give equal hashes of the 32 blocks of 16 tokens within. Words are made up; scores too, and only
//! where a task is named whose means they shall have.

use std::sync::Arc;

use rand::RngCore;
use serde::Deserialize;

use super::{
    Setup, Workload,
    blocks::mixed,
    four_tasks::TASKS,
    nature::AnswerLaw,
    parse,
    scores::mean_score,
    sketch::{Kind, Shared, Sketcher},
};
use crate::{
    domain::PREFIX_BLOCK_TOKENS,
    lab::{Item, LabError, trace},
    truth::lengths::{LogNormal, Task},
};

/// The registered name.
pub(super) const NAME: &str = "trace";
/// Tokens of one recorded block id.
const ID_TOKENS: u32 = 512;
/// Stands for a trace's blocks in hashes.
const COMMON: u64 = 0x7472_6163;
/// The words of prompts of no named task.
const PLAIN: Kind = Kind {
    name: "conversation",
    cues: &[],
    counted: 0.05,
    characters_per_token: 4.2,
    tokens_per_sentence: 20.0,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The trace.
    file: String,
    /// The task whose scores (paper, table 2) and words the requests get; absent: nobody judges them.
    #[serde(default)]
    task: Option<Task>,
    /// Whether it begins anew at its end.
    #[serde(default, rename = "loop")]
    again: bool,
}

struct Trace {
    rows: Vec<Row>,
    next: usize,
    again: bool,
    prompt: LogNormal,
    answers: AnswerLaw,
    sketcher: Sketcher,
    task: Arc<str>,
}

struct Row {
    prompt_tokens: u32,
    output_tokens: u32,
    hash_ids: Vec<u64>,
}

/// Makes the workload.
pub(super) fn build(setup: &Setup<'_>) -> Result<Box<dyn Workload>, LabError> {
    let Options { file, task, again } = parse(NAME, setup)?;
    let whole = |row: trace::TraceRow| {
        let (prompt_tokens, output_tokens) = (row.prompt_tokens?.max(1), row.output_tokens?.max(1));
        Some(Row { prompt_tokens, output_tokens, hash_ids: row.hash_ids })
    };
    let rows: Option<Vec<Row>> = trace::read(setup.files, &file)?.into_iter().map(whole).collect();
    let rows = rows.ok_or_else(|| LabError::Data {
        file,
        what: String::from("has requests without prompt and output tokens; it can time arrivals only"),
    })?;
    let prompt = fitted(rows.iter().map(|row| row.prompt_tokens));
    let output = fitted(rows.iter().map(|row| row.output_tokens));
    let kind = TASKS.iter().find(|facts| Some(facts.task) == task).map_or(PLAIN, |facts| facts.kind);
    let score = |parameters_b| task.map(|_| mean_score(task, parameters_b));
    Ok(Box::new(Trace {
        rows,
        next: 0,
        again,
        prompt,
        answers: AnswerLaw::new(setup.models, output, [1, u32::MAX], |model| score(model.parameters_b)),
        sketcher: Sketcher::new(kind, setup.feature_version, &Shared::new()),
        task: kind.name.into(),
    }))
}

/// Returns the lognormal with the moments of the logarithms.
fn fitted(tokens: impl Iterator<Item = u32> + Clone) -> LogNormal {
    let count = tokens.clone().count().max(1) as f64;
    let logs = tokens.map(|tokens| f64::from(tokens).ln());
    let mu = logs.clone().sum::<f64>() / count;
    let variance = logs.map(|log| (log - mu).powi(2)).sum::<f64>() / count;
    LogNormal { mu, sigma: variance.sqrt() }
}

impl Row {
    fn block_hashes(&self) -> Arc<[u64]> {
        let per_id = ID_TOKENS / PREFIX_BLOCK_TOKENS;
        let hashes = self.hash_ids.iter().flat_map(|id| {
            let key = mixed(COMMON, *id);
            (0..per_id).map(move |block| mixed(key, u64::from(block)))
        });
        // The last id may stand for less than all of its tokens.
        hashes.take((self.prompt_tokens / PREFIX_BLOCK_TOKENS) as usize).collect()
    }
}

impl Workload for Trace {
    fn next(&mut self, rng: &mut dyn RngCore) -> Option<Item> {
        if self.again && self.next == self.rows.len() {
            self.next = 0;
        }
        let row = self.rows.get(self.next)?;
        self.next += 1;
        let size = (f64::from(row.prompt_tokens).ln() - self.prompt.mu) / self.prompt.sigma.max(f64::EPSILON);
        let nature = self.answers.nature_of(row.output_tokens, size, rng);
        let visible_tokens = self.answers.visible_tokens(&nature);
        Some(Item {
            task: Arc::clone(&self.task),
            prompt_tokens: row.prompt_tokens,
            features: self.sketcher.draw(row.prompt_tokens, &nature, visible_tokens, rng),
            block_hashes: row.block_hashes(),
            answers: self.answers.draw_scores(row.output_tokens, &nature, rng),
            max_output_tokens: None,
            follow_up: None,
        })
    }
}
