//! JSON lines of prompts in, one JSON line each out, for the subcommands that describe prompts.

use std::{io::Write, path::Path};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::json_lines::{self, Line, Verdict};
use crate::{config::read_bundle, predict::Predictor};

/// A prompt's id, given back as it came.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum PromptId {
    /// Text.
    Text(String),
    /// An integer.
    Number(serde_json::Number),
}

impl<'de> Deserialize<'de> for PromptId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self::Text(text)),
            Value::Number(number) if !number.is_f64() => Ok(Self::Number(number)),
            other => Err(serde::de::Error::custom(format!("{other} is neither text nor an integer"))),
        }
    }
}

/// One line of the input; fields beside these (an evaluation's score, say) are passed over.
#[derive(Debug, Deserialize)]
pub(super) struct PromptLine {
    /// The prompt's id.
    pub(super) prompt_id: PromptId,
    /// Its text.
    pub(super) prompt: String,
}

/// Answers each line of `file` (`-`: standard input) on standard output.
///
/// A line that is no prompt gives `{"line","error"}` in its place, the rest goes on, and the end is an error.
pub(super) fn answer(file: &Path, answer: impl Fn(&PromptLine) -> Value) -> anyhow::Result<()> {
    json_lines::answer(file, |line, output| answer_line(line, output, &answer))
}

fn answer_line(
    line: Line<'_>,
    output: &mut dyn Write,
    answer: &impl Fn(&PromptLine) -> Value,
) -> anyhow::Result<Verdict> {
    let mut json = serde_json::Deserializer::from_slice(line.bytes);
    let parsed =
        serde_path_to_error::deserialize::<_, PromptLine>(&mut json).map_err(|error| error.to_string());
    let parsed = parsed.and_then(|parsed| json.end().map(|()| parsed).map_err(|error| error.to_string()));
    let (value, verdict) = match parsed {
        Ok(prompt) => (answer(&prompt), Verdict::Answered),
        Err(error) => (json!({"line": line.number, "error": error}), Verdict::Bad),
    };
    write!(output, "{value}").context("cannot write to standard output")?;
    Ok(verdict)
}

/// Loads the bundle in a folder.
pub(super) fn load_bundle(folder: &Path) -> anyhow::Result<Predictor> {
    let cannot = || {
        let folder = folder.display();
        format!("the bundle `{folder}` cannot be used; --bundle DIR names a folder made by bear-train")
    };
    let files = read_bundle(folder).with_context(cannot)?;
    Predictor::from_bundle(&files).with_context(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(input: &str) -> (Vec<Value>, usize) {
        let echo = |line: &PromptLine| json!([line.prompt_id, line.prompt]);
        let mut output = Vec::new();
        let answer = |line: Line<'_>, output: &mut dyn Write| answer_line(line, output, &echo);
        let (_, bad) = json_lines::answer_lines(input.as_bytes(), &mut output, answer).unwrap();
        (serde_json::Deserializer::from_slice(&output).into_iter().map(Result::unwrap).collect(), bad)
    }

    #[test]
    fn every_line_has_its_answer_and_errors_stay_in_place() {
        let (lines, bad) = answered(concat!(
            r#"{"prompt_id":"a","prompt":"one","score":1}"#,
            "\n\n",
            r#"{"prompt_id":"b"}"#,
            "\n",
            r#"{"prompt_id":7,"prompt":"three"}"#,
        ));
        assert_eq!((lines.len(), bad), (3, 1));
        assert_eq!(lines[0], json!(["a", "one"]));
        assert_eq!(lines[1]["line"], 3);
        assert!(lines[1]["error"].as_str().unwrap().contains("`prompt`"));
        assert_eq!(lines[2], json!([7, "three"]), "an integer comes back as one");
    }

    #[test]
    fn errors_name_the_field() {
        for (line, words) in [
            (r#"{"prompt_id":1.5,"prompt":"x"}"#, "prompt_id: 1.5 is neither text nor an integer"),
            (r#"{"prompt_id":null,"prompt":"x"}"#, "prompt_id: null"),
            (r#"{"prompt_id":"1","prompt":["x"]}"#, "prompt: invalid type"),
            (r#"{"prompt_id":"1","prompt":"x"} {}"#, "trailing"),
        ] {
            let (lines, bad) = answered(line);
            let error = lines[0]["error"].as_str().unwrap();
            assert!(bad == 1 && error.contains(words), "{line}: {error}");
        }
    }

    #[test]
    fn a_folder_that_is_no_bundle_names_the_option() {
        let folder = tempfile::tempdir().unwrap();
        let error = format!("{:#}", load_bundle(folder.path()).err().unwrap());
        assert!(error.contains("manifest.json") && error.contains("--bundle"), "{error}");
        let error = format!("{:#}", load_bundle(&folder.path().join("absent")).err().unwrap());
        assert!(error.contains("absent") && error.contains("--bundle"), "{error}");
    }
}
