//! Reads results from disk.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};

use crate::lab::RunLine;

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
    comparable(&lines, folder)?;
    Ok(lines)
}

/// Refuses results of one scenario that were played under different settings.
fn comparable(lines: &[RunLine], folder: &Path) -> anyhow::Result<()> {
    let mut worlds: BTreeMap<&str, &RunLine> = BTreeMap::new();
    for line in lines {
        let first = worlds.entry(&line.key.scenario).or_insert(line);
        ensure!(
            first.key.world == line.key.world,
            "`{}` holds runs of scenario `{}` under different settings ({} s and {} s measured, λ {} and {}); \
             give each its own folder",
            folder.display(),
            line.key.scenario,
            first.setting.duration_s,
            line.setting.duration_s,
            first.setting.lambda_per_usd,
            line.setting.lambda_per_usd,
        );
    }
    Ok(())
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
