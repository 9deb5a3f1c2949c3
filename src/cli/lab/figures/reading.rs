//! Reads results and scenarios from disk.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};

use crate::{
    cli::lab::supplies::SCENARIOS,
    lab::{RunLine, Scenario},
};

/// Returns every run line of a folder, files by name; of a file being written the last line may be cut short.
pub(super) fn read_results(folder: &Path) -> anyhow::Result<Vec<RunLine>> {
    let mut lines = Vec::new();
    let files = files_of(folder, "jsonl").with_context(|| {
        format!("cannot read the results `{}`; `bear lab run` makes it", folder.display())
    })?;
    ensure!(!files.is_empty(), "`{}` holds no *.jsonl file; `bear lab run` writes them", folder.display());
    for file in files {
        let text = read(&file)?;
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            match serde_json::from_str(line) {
                Ok(line) => lines.push(line),
                Err(error) if error.is_eof() && !text.ends_with('\n') && text.ends_with(line) => {}
                Err(error) => {
                    let place = format!("`{}` line {} is not a run", file.display(), number + 1);
                    return Err(anyhow::Error::new(error).context(place));
                }
            }
        }
    }
    Ok(lines)
}

/// Returns the scenarios of a folder, or those that ship.
pub(super) fn read_scenarios(folder: Option<&Path>) -> anyhow::Result<Vec<Scenario>> {
    let Some(folder) = folder else {
        return SCENARIOS.iter().map(|built_in| Ok(Scenario::parse(built_in.text, built_in.name)?)).collect();
    };
    let files = files_of(folder, "yaml")
        .with_context(|| format!("cannot read the scenarios `{}`", folder.display()))?;
    let scenarios = files.iter().filter(|file| file.file_stem().is_some_and(|stem| stem != "notes"));
    scenarios.map(|file| Ok(Scenario::parse(&read(file)?, &file.display().to_string())?)).collect()
}

fn files_of(folder: &Path, extension: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() && path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns a file's text.
pub(super) fn read(file: &Path) -> anyhow::Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read `{}`", file.display()))
}
