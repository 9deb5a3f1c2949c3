//! Evaluations: JSON lines in (gzip by suffix), prompts described once and their text dropped.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
};

use bear::predict::{FeatureTokens, QueryFeatures, digest::hex, features};
use flate2::read::MultiGzDecoder;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// The `scorer` of generated evaluations.
pub const SYNTHETIC_SCORER: &str = "synthetic";

/// Why evaluations cannot be used.
#[derive(Debug, Error)]
pub enum EvaluationError {
    /// A file cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A line cannot be used.
    #[error("{path}:{line}: {source}")]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong, with the field's name.
        #[source]
        source: RowError,
    },
    /// There is nothing to train on.
    #[error(
        "{paths}: no evaluations; each line is {{\"prompt_id\",\"prompt\",\"model\",\"score\",\"output_tokens\"?}}"
    )]
    Empty {
        /// The files.
        paths: String,
    },
}

/// What is wrong with one evaluation.
#[derive(Debug, Error)]
pub enum RowError {
    /// Not a JSON object.
    #[error("not a JSON object: {0}")]
    Json(#[source] serde_json::Error),
    /// A field is not there.
    #[error("`{0}` is missing")]
    Missing(&'static str),
    /// A field is of another kind.
    #[error("`{field}` is {found}, not {expected}")]
    Kind {
        /// Its name.
        field: &'static str,
        /// What it is.
        found: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// A number is out of range.
    #[error("`{field}` is {value}, outside {range}")]
    Range {
        /// Its name.
        field: &'static str,
        /// Its value.
        value: f64,
        /// The range.
        range: &'static str,
    },
    /// Text and features both or neither.
    #[error("`prompt` and `features`: one of them is needed, not {0}")]
    Content(&'static str),
    /// The features cannot be read.
    #[error("`features`: {0}")]
    Features(#[source] serde_json::Error),
    /// The features are of another version.
    #[error("`features` have version `{found}`, this trainer uses `{expected}`; give the prompt instead")]
    FeatureVersion {
        /// Theirs.
        found: String,
        /// The trainer's.
        expected: String,
    },
    /// Nothing is known of the model.
    #[error("`model` is `{model}`, which the models file does not have (it has {known})")]
    UnknownModel {
        /// The model.
        model: String,
        /// Those known.
        known: String,
    },
    /// One id, two prompts.
    #[error("`prompt_id` {0} stands for two different prompts")]
    TwoPrompts(String),
}

/// What an evaluation says of its prompt.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Its text.
    Prompt(String),
    /// Its features, as a decision row logs them.
    Features(Box<QueryFeatures>),
}

/// One answer of one model, judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The prompt's id.
    pub prompt_id: String,
    /// The prompt.
    pub content: Content,
    /// The model's id.
    pub model: String,
    /// The judge's score between 0 and 1.
    pub score: f64,
    /// The answer's length, tokens.
    pub output_tokens: Option<f64>,
    /// The kind of task.
    pub task: Option<String>,
    /// Who judged.
    pub scorer: Option<String>,
}

impl Evaluation {
    /// Returns the JSON line, without its newline.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut line = Map::new();
        line.insert("prompt_id".into(), self.prompt_id.clone().into());
        match &self.content {
            Content::Prompt(text) => line.insert("prompt".into(), text.clone().into()),
            Content::Features(features) => {
                line.insert("features".into(), serde_json::to_value(features).unwrap_or_default())
            }
        };
        line.insert("model".into(), self.model.clone().into());
        line.insert("score".into(), self.score.into());
        let optional = [
            ("output_tokens", self.output_tokens.map(Value::from)),
            ("task", self.task.clone().map(Value::from)),
            ("scorer", self.scorer.clone().map(Value::from)),
        ];
        line.extend(optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        Value::Object(line).to_string()
    }

    /// Reads a JSON line. Fields that training has no use for are passed over.
    ///
    /// # Errors
    /// Says which field is missing or wrong.
    pub fn from_json(line: &str) -> Result<Self, RowError> {
        let mut fields: Map<String, Value> = serde_json::from_str(line).map_err(RowError::Json)?;
        let prompt_id = text(&mut fields, "prompt_id")?.ok_or(RowError::Missing("prompt_id"))?;
        let content = match (text(&mut fields, "prompt")?, fields.remove("features")) {
            (Some(prompt), None) => Content::Prompt(prompt),
            (None, Some(features)) => {
                Content::Features(serde_json::from_value(features).map_err(RowError::Features)?)
            }
            (None, None) => return Err(RowError::Content("neither")),
            (Some(_), Some(_)) => return Err(RowError::Content("both")),
        };
        let model = text(&mut fields, "model")?.ok_or(RowError::Missing("model"))?;
        let score = number(&mut fields, "score")?.ok_or(RowError::Missing("score"))?;
        if !(0.0..=1.0).contains(&score) {
            return Err(RowError::Range { field: "score", value: score, range: "[0,1]" });
        }
        let output_tokens = number(&mut fields, "output_tokens")?;
        if let Some(value) = output_tokens.filter(|tokens| *tokens < 0.0) {
            return Err(RowError::Range { field: "output_tokens", value, range: "[0,∞)" });
        }
        let (task, scorer) = (text(&mut fields, "task")?, text(&mut fields, "scorer")?);
        Ok(Self { prompt_id, content, model, score, output_tokens, task, scorer })
    }
}

fn text(fields: &mut Map<String, Value>, field: &'static str) -> Result<Option<String>, RowError> {
    match fields.remove(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(RowError::Kind { field, found: kind(&other), expected: "text" }),
    }
}

fn number(fields: &mut Map<String, Value>, field: &'static str) -> Result<Option<f64>, RowError> {
    match fields.remove(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) => Ok(number.as_f64()),
        Some(other) => Err(RowError::Kind { field, found: kind(&other), expected: "a number" }),
    }
}

const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A model's facts, as `models.json` gives them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFacts {
    /// Parameters, billions.
    pub parameters_b: f64,
    /// Context length, tokens.
    pub max_model_len: u32,
}

/// One prompt of a corpus.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    /// Its id.
    pub id: String,
    /// Its features.
    pub features: QueryFeatures,
    /// Digest of its text, so that one id cannot stand for two prompts; none where features came in.
    text_digest: Option<[u8; 32]>,
}

/// One evaluation without its prompt's text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Position of its prompt in [`Corpus::prompts`].
    pub prompt: usize,
    /// Position of its model in [`Corpus::models`].
    pub model: usize,
    /// Score between 0 and 1.
    pub score: f64,
    /// Output tokens.
    pub output_tokens: Option<f64>,
}

/// All evaluations, described.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Corpus {
    /// The prompts, in order of appearance.
    pub prompts: Vec<Prompt>,
    /// The models, in order of their names: a model's position is its category.
    pub models: Vec<String>,
    /// The evaluations, in order.
    pub rows: Vec<Row>,
    /// SHA-256 over the lines as read.
    pub sha256: String,
    /// Whether some row was generated (its scorer is [`SYNTHETIC_SCORER`]): a bundle trained on it says so.
    pub synthetic: bool,
}

/// Reads evaluations from `paths`, describing each prompt once; `progress` is told after each line.
///
/// # Errors
/// Names the file, line and field of the first thing that is wrong: a malformed line, a model that `models`
/// lacks, one id for two prompts, features of another version.
pub fn read(
    paths: &[PathBuf],
    models: &BTreeMap<String, ModelFacts>,
    tokens: &dyn FeatureTokens,
    mut progress: impl FnMut(),
) -> Result<Corpus, EvaluationError> {
    let mut reader = Reader::new(models, tokens);
    for path in paths {
        for (index, line) in open(path)?.lines().enumerate() {
            let line = line.map_err(|source| EvaluationError::Io { path: path.clone(), source })?;
            if line.trim().is_empty() {
                continue;
            }
            let place = |source| EvaluationError::Line { path: path.clone(), line: index + 1, source };
            reader.add(&line).map_err(place)?;
            progress();
        }
    }
    reader.finish(paths)
}

/// Describes generated evaluations, as [`read`] would read them from a file of their JSON lines.
///
/// # Errors
/// As [`read`]; places are named `generated`.
pub fn collect(
    rows: &[Evaluation],
    models: &BTreeMap<String, ModelFacts>,
    tokens: &dyn FeatureTokens,
) -> Result<Corpus, EvaluationError> {
    let path = PathBuf::from("generated");
    let mut reader = Reader::new(models, tokens);
    for (index, row) in rows.iter().enumerate() {
        let place = |source| EvaluationError::Line { path: path.clone(), line: index + 1, source };
        reader.add(&row.to_json()).map_err(place)?;
    }
    reader.finish(&[path])
}

fn open(path: &Path) -> Result<Box<dyn BufRead>, EvaluationError> {
    let file = File::open(path).map_err(|source| EvaluationError::Io { path: path.to_owned(), source })?;
    if path.extension().is_some_and(|suffix| suffix == "gz") {
        return Ok(Box::new(BufReader::new(MultiGzDecoder::new(file))));
    }
    Ok(Box::new(BufReader::new(file)))
}

struct Reader<'a> {
    tokens: &'a dyn FeatureTokens,
    known: &'a BTreeMap<String, ModelFacts>,
    corpus: Corpus,
    by_id: HashMap<String, usize>,
    digest: Sha256,
}

impl<'a> Reader<'a> {
    fn new(known: &'a BTreeMap<String, ModelFacts>, tokens: &'a dyn FeatureTokens) -> Self {
        Self { tokens, known, corpus: Corpus::default(), by_id: HashMap::new(), digest: Sha256::new() }
    }

    fn finish(self, paths: &[PathBuf]) -> Result<Corpus, EvaluationError> {
        let Self { mut corpus, digest, .. } = self;
        if corpus.rows.is_empty() {
            let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            return Err(EvaluationError::Empty { paths: paths.join(", ") });
        }
        sort_models(&mut corpus);
        corpus.sha256 = hex(&digest.finalize());
        Ok(corpus)
    }

    fn add(&mut self, line: &str) -> Result<(), RowError> {
        self.digest.update(line);
        self.digest.update(b"\n");
        let evaluation = Evaluation::from_json(line)?;
        if !self.known.contains_key(&evaluation.model) {
            let known = self.known.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(RowError::UnknownModel { model: evaluation.model, known });
        }
        let prompt = self.prompt(evaluation.prompt_id, evaluation.content)?;
        let models = &mut self.corpus.models;
        let model = models.iter().position(|name| *name == evaluation.model).unwrap_or_else(|| {
            models.push(evaluation.model);
            models.len() - 1
        });
        self.corpus.synthetic |= evaluation.scorer.as_deref() == Some(SYNTHETIC_SCORER);
        let (score, output_tokens) = (evaluation.score, evaluation.output_tokens);
        self.corpus.rows.push(Row { prompt, model, score, output_tokens });
        Ok(())
    }

    /// Finds the prompt or describes it.
    fn prompt(&mut self, id: String, content: Content) -> Result<usize, RowError> {
        let text_digest = match &content {
            Content::Prompt(text) => Some(<[u8; 32]>::from(Sha256::digest(text))),
            Content::Features(_) => None,
        };
        if let Some(index) = self.by_id.get(&id) {
            let known = &self.corpus.prompts[*index];
            let same = match &content {
                Content::Prompt(_) => known.text_digest == text_digest,
                Content::Features(features) => known.features == **features,
            };
            return if same { Ok(*index) } else { Err(RowError::TwoPrompts(id)) };
        }
        let features = match content {
            Content::Prompt(text) => features::describe(&text, self.tokens),
            Content::Features(features) if features.version() == self.tokens.version() => *features,
            Content::Features(features) => {
                let (found, expected) = (features.version().to_owned(), self.tokens.version().to_owned());
                return Err(RowError::FeatureVersion { found, expected });
            }
        };
        let index = self.corpus.prompts.len();
        self.by_id.insert(id.clone(), index);
        self.corpus.prompts.push(Prompt { id, features, text_digest });
        Ok(index)
    }
}

/// Numbers the models by name, so that categories do not depend on the order of the rows.
fn sort_models(corpus: &mut Corpus) {
    let mut sorted = corpus.models.clone();
    sorted.sort();
    let position: Vec<usize> = corpus
        .models
        .iter()
        .map(|name| sorted.iter().position(|other| other == name).unwrap_or_default())
        .collect();
    corpus.rows.iter_mut().for_each(|row| row.model = position[row.model]);
    corpus.models = sorted;
}

#[cfg(test)]
mod tests;
