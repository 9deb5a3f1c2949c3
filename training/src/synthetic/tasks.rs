//! The four tasks of the paper's workload: their lengths (specs, lognormal) and mean scores (Table 2).

/// The mean and standard deviation of a length's logarithm, tokens.
#[derive(Clone, Copy, Debug)]
pub struct LogNormal {
    /// Mean of the logarithm.
    pub mu: f64,
    /// Standard deviation of the logarithm.
    pub sigma: f64,
}

/// Kinds of prompt the generator can write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A short instruction, with or without a text to work on.
    Instruction,
    /// A question over ten documents.
    Documents,
    /// A long report to summarise.
    Report,
    /// A story to write.
    Story,
}

/// One task.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// Its name in evaluations.
    pub name: &'static str,
    /// How its prompts are written.
    pub kind: Kind,
    /// Prompt lengths, feature tokens.
    pub prompt: LogNormal,
    /// Output lengths of a model with factor 1, tokens.
    pub output: LogNormal,
    /// Mean score between 0 and 1 of each of [`MODELS`].
    pub scores: [f64; 3],
}

/// One model of the paper's pool.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Its id.
    pub id: &'static str,
    /// Its factor on output lengths.
    pub output_factor: f64,
}

/// The paper's three models, smallest first.
pub const MODELS: [Model; 3] = [
    Model { id: "qwen3-0.6b", output_factor: 0.9 },
    Model { id: "qwen3-8b", output_factor: 1.0 },
    Model { id: "qwen3-32b", output_factor: 1.05 },
];

/// Prompt tokens are kept within these.
pub(super) const PROMPT_CLIP: (f64, f64) = (8.0, 30_000.0);
/// Output tokens are kept within these.
pub(super) const OUTPUT_CLIP: (f64, f64) = (2.0, 2_000.0);

/// The four tasks, a quarter of the prompts each: lengths are the project's own choice, scores are Table 2's.
pub const TASKS: [Task; 4] = [
    Task {
        name: "instruction-following",
        kind: Kind::Instruction,
        prompt: LogNormal { mu: 3.9, sigma: 0.6 },
        output: LogNormal { mu: 5.5, sigma: 0.8 },
        scores: [0.5349, 0.8267, 0.8885],
    },
    Task {
        name: "question-answering",
        kind: Kind::Documents,
        prompt: LogNormal { mu: 7.25, sigma: 0.25 },
        output: LogNormal { mu: 3.8, sigma: 0.8 },
        scores: [0.4098, 0.8828, 0.9269],
    },
    Task {
        name: "summarisation",
        kind: Kind::Report,
        prompt: LogNormal { mu: 9.1, sigma: 0.5 },
        output: LogNormal { mu: 6.3, sigma: 0.25 },
        scores: [0.2902, 0.8662, 0.9593],
    },
    Task {
        name: "creative-writing",
        kind: Kind::Story,
        prompt: LogNormal { mu: 3.9, sigma: 0.3 },
        output: LogNormal { mu: 6.55, sigma: 0.3 },
        scores: [0.1773, 0.5747, 0.8069],
    },
];
