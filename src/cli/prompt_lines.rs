//! JSON lines of prompts in, one JSON line each out, for the subcommands that describe prompts.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::Path,
};

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::predict::Predictor;

/// One line of the input; fields beside these (an evaluation's score, say) are passed over.
#[derive(Debug, Deserialize)]
pub(super) struct PromptLine {
    /// The prompt's id, given back.
    pub(super) prompt_id: String,
    /// Its text.
    pub(super) prompt: String,
}

/// Answers each line of `file` (`-`: standard input) on standard output.
///
/// A line that is no prompt gives `{"line","error"}` in its place, the rest goes on, and the end is an error.
pub(super) fn answer(file: &Path, answer: impl Fn(&PromptLine) -> Value) -> anyhow::Result<()> {
    let input: Box<dyn BufRead> = if file == Path::new("-") {
        Box::new(BufReader::new(io::stdin()))
    } else {
        let opened = File::open(file).with_context(|| format!("cannot open `{}`", file.display()))?;
        Box::new(BufReader::new(opened))
    };
    let mut output = BufWriter::new(io::stdout().lock());
    let (lines, bad) = answer_lines(input, &mut output, answer)?;
    output.flush().context("cannot write to standard output")?;
    ensure!(bad == 0, "{bad} of {lines} lines had errors; see their output lines");
    Ok(())
}

/// Returns how many lines were read and how many of them had errors; blank lines are passed over.
fn answer_lines(
    input: impl BufRead,
    output: &mut impl Write,
    answer: impl Fn(&PromptLine) -> Value,
) -> anyhow::Result<(usize, usize)> {
    let (mut lines, mut bad) = (0, 0);
    for (index, line) in input.split(b'\n').enumerate() {
        let line = line.with_context(|| format!("cannot read line {}", index + 1))?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        lines += 1;
        let value = match serde_json::from_slice::<PromptLine>(&line) {
            Ok(line) => answer(&line),
            Err(error) => {
                bad += 1;
                json!({"line": index + 1, "error": error.to_string()})
            }
        };
        writeln!(output, "{value}").context("cannot write to standard output")?;
    }
    Ok((lines, bad))
}

/// Loads the bundle in a folder.
pub(super) fn load_bundle(folder: &Path) -> anyhow::Result<Predictor> {
    let describe = || format!("cannot read the bundle `{}` (a folder made by bear-train)", folder.display());
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).with_context(describe)? {
        let entry = entry.with_context(describe)?;
        if entry.file_type().with_context(describe)?.is_file() {
            let name = entry.file_name().to_string_lossy().into_owned();
            files.insert(name, fs::read(entry.path()).with_context(describe)?);
        }
    }
    Predictor::from_bundle(&files)
        .with_context(|| format!("the bundle `{}` cannot be used", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_its_answer_and_errors_stay_in_place() {
        let input = b"{\"prompt_id\":\"a\",\"prompt\":\"one\",\"score\":1}\n\n{\"prompt_id\":\"b\"}\n{\"prompt_id\":\"c\",\"prompt\":\"three\"}\n";
        let mut output = Vec::new();
        let counts =
            answer_lines(&input[..], &mut output, |line| json!([line.prompt_id, line.prompt])).unwrap();
        assert_eq!(counts, (3, 1));
        let lines: Vec<Value> =
            output.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
        assert_eq!(lines[0], json!(["a", "one"]));
        assert_eq!(lines[1]["line"], 3);
        assert!(lines[1]["error"].as_str().unwrap().contains("prompt"));
        assert_eq!(lines[2], json!(["c", "three"]));
    }

    #[test]
    fn a_folder_that_is_no_bundle_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let error = format!("{:#}", load_bundle(folder.path()).err().unwrap());
        assert!(error.contains("manifest.json"), "{error}");
        let error = format!("{:#}", load_bundle(&folder.path().join("absent")).err().unwrap());
        assert!(error.contains("bear-train"), "{error}");
    }
}
