//! The lines of finished runs on disk: one file a scenario, in the order of its grid, resumable.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;

use crate::lab::{RunKey, RunLine};

/// A scenario's file of results: finished lines, and those of a run that was interrupted.
pub(super) struct Results {
    path: PathBuf,
    partial: PathBuf,
    /// The lines as they were written: read and written again, a number could lose its last digit.
    done: HashMap<String, String>,
    journal: Option<File>,
}

impl Results {
    /// Opens a file of results in `folder`; what lies there of earlier runs is taken over.
    pub(super) fn open(folder: &Path, name: &str) -> anyhow::Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let path = folder.join(format!("{name}.jsonl"));
        let partial = folder.join(format!("{name}.jsonl.part"));
        let mut results = Self { path, partial, done: HashMap::new(), journal: None };
        for file in [results.path.clone(), results.partial.clone()] {
            results.take(&file)?;
        }
        Ok(results)
    }

    fn take(&mut self, file: &Path) -> anyhow::Result<()> {
        if !file.exists() {
            return Ok(());
        }
        let reader =
            BufReader::new(File::open(file).with_context(|| format!("cannot read {}", file.display()))?);
        for line in reader.lines() {
            let line = line.with_context(|| format!("cannot read {}", file.display()))?;
            // A line that was cut short, or is of another version, is run again.
            if let Ok(run) = serde_json::from_str::<RunLine>(&line) {
                self.done.insert(identity(&run.key), line);
            }
        }
        Ok(())
    }

    /// Returns whether a run is finished.
    pub(super) fn has(&self, key: &RunKey) -> bool {
        self.done.contains_key(&identity(key))
    }

    /// Returns a finished run.
    pub(super) fn get(&self, key: &RunKey) -> Option<RunLine> {
        self.done.get(&identity(key)).and_then(|line| serde_json::from_str(line).ok())
    }

    /// Keeps a finished run, safe from an interruption.
    pub(super) fn add(&mut self, run: &RunLine) -> anyhow::Result<()> {
        let told = || format!("cannot write {}", self.partial.display());
        let journal = match &mut self.journal {
            Some(journal) => journal,
            None => {
                let file =
                    OpenOptions::new().create(true).append(true).open(&self.partial).with_context(told)?;
                self.journal.insert(file)
            }
        };
        let line = serde_json::to_string(run)?;
        journal.write_all(format!("{line}\n").as_bytes()).with_context(told)?;
        self.done.insert(identity(&run.key), line);
        Ok(())
    }

    /// Writes the lines of these runs in this order, and no others.
    pub(super) fn finish(&mut self, keys: &[RunKey]) -> anyhow::Result<()> {
        let told = || format!("cannot write {}", self.path.display());
        let new = self.path.with_extension("jsonl.new");
        let mut out = BufWriter::new(File::create(&new).with_context(told)?);
        for line in keys.iter().filter_map(|key| self.done.get(&identity(key))) {
            writeln!(out, "{line}").with_context(told)?;
        }
        out.flush().with_context(told)?;
        fs::rename(&new, &self.path).with_context(told)?;
        self.journal = None;
        if self.partial.exists() {
            fs::remove_file(&self.partial).with_context(told)?;
        }
        Ok(())
    }
}

fn identity(key: &RunKey) -> String {
    format!("{}|{}|{}|{}", key.digest, key.seed, key.router, key.scenario)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Metrics;

    fn line(seed: u64) -> RunLine {
        let key = RunKey {
            scenario: String::from("s"),
            point: Default::default(),
            router: String::from("bear"),
            options: Default::default(),
            seed,
            digest: String::from("d"),
        };
        RunLine { key, metrics: Metrics { requests: seed, ..Metrics::default() }, requests: Vec::new() }
    }

    #[test]
    fn an_interrupted_grid_goes_on_and_ends_in_the_grids_order() {
        let folder = tempfile::tempdir().unwrap();
        let mut results = Results::open(folder.path(), "s").unwrap();
        results.add(&line(3)).unwrap();
        results.add(&line(1)).unwrap();
        drop(results);
        let cut = folder.path().join("s.jsonl.part");
        OpenOptions::new().append(true).open(&cut).unwrap().write_all(b"{\"key\":").unwrap();
        let mut results = Results::open(folder.path(), "s").unwrap();
        assert!(results.has(&line(3).key) && !results.has(&line(2).key));
        results.add(&line(2)).unwrap();
        let keys: Vec<RunKey> = (1..=3).map(|seed| line(seed).key).collect();
        results.finish(&keys).unwrap();
        assert!(!cut.exists());
        let text = fs::read_to_string(folder.path().join("s.jsonl")).unwrap();
        let seeds: Vec<u64> =
            text.lines().map(|l| serde_json::from_str::<RunLine>(l).unwrap().key.seed).collect();
        assert_eq!(seeds, [1, 2, 3]);
        assert!(Results::open(folder.path(), "s").unwrap().get(&line(2).key).unwrap() == line(2));
    }
}
