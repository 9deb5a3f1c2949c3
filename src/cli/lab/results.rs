//! The lines of finished runs on disk: one file a scenario, in the order of its grid, resumable.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

use crate::lab::{RunKey, RunLine};

/// A scenario's file of results: finished lines, and those of a run that was interrupted.
pub(super) struct Results {
    path: PathBuf,
    partial: PathBuf,
    done: HashMap<String, Done>,
    /// Identities in the order in which their lines were found.
    order: Vec<String>,
    journal: Option<File>,
}

/// A finished run, its line as it was written: read and written again, a number could lose its last digit.
struct Done {
    key: RunKey,
    line: String,
}

impl Results {
    /// Opens a file of results in `folder`; what lies there of earlier runs in the same world is taken over.
    ///
    /// # Errors
    /// The file cannot be read, or holds runs of another world.
    pub(super) fn open(folder: &Path, name: &str, world: &str) -> anyhow::Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let [path, partial] = files(folder, name);
        let mut results = Self { path, partial, done: HashMap::new(), order: Vec::new(), journal: None };
        for file in [results.path.clone(), results.partial.clone()] {
            results.take(&file, world)?;
        }
        Ok(results)
    }

    /// Removes a scenario's file of results.
    pub(super) fn discard(folder: &Path, name: &str) -> anyhow::Result<()> {
        for file in files(folder, name).iter().filter(|file| file.exists()) {
            fs::remove_file(file).with_context(|| format!("cannot remove {}", file.display()))?;
        }
        Ok(())
    }

    fn take(&mut self, file: &Path, world: &str) -> anyhow::Result<()> {
        if !file.exists() {
            return Ok(());
        }
        let told = || format!("cannot read {}", file.display());
        let lines: Vec<String> = BufReader::new(File::open(file).with_context(told)?)
            .lines()
            .collect::<Result<_, _>>()
            .with_context(told)?;
        let last = lines.len();
        for (line, number) in lines.into_iter().zip(1..) {
            let Ok(run) = serde_json::from_str::<RunLine>(&line) else {
                // The last line may have been cut short: it is played again.
                if number == last {
                    break;
                }
                bail!("{}, line {number}, is not a run of this version of bear {HINT}", file.display());
            };
            if run.key.world != world {
                bail!(
                    "{} holds runs under other settings, or of another version of bear (line {number}: {} s measured, \
                     λ {}, router `{}`); runs that cannot be compared do not share a file {HINT}",
                    file.display(),
                    run.setting.duration_s,
                    run.setting.lambda_per_usd,
                    run.key.router
                );
            }
            self.keep(run.key, line);
        }
        Ok(())
    }

    fn keep(&mut self, key: RunKey, line: String) {
        let id = identity(&key);
        if self.done.insert(id.clone(), Done { key, line }).is_none() {
            self.order.push(id);
        }
    }

    /// Returns whether a run is finished.
    pub(super) fn has(&self, key: &RunKey) -> bool {
        self.done.contains_key(&identity(key))
    }

    /// Returns a finished run.
    pub(super) fn get(&self, key: &RunKey) -> Option<RunLine> {
        self.done.get(&identity(key)).and_then(|done| serde_json::from_str(&done.line).ok())
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
        self.keep(run.key.clone(), line);
        Ok(())
    }

    /// Writes the lines of these runs in this order, then the other lines that were there.
    ///
    /// A router that ran at a point of this grid under other options has no place beside these: its lines go.
    pub(super) fn finish(&mut self, keys: &[RunKey]) -> anyhow::Result<()> {
        let digests: BTreeMap<String, &str> =
            keys.iter().map(|key| (cell(key), key.digest.as_str())).collect();
        self.write(keys, |key| digests.get(&cell(key)).is_none_or(|digest| *digest == key.digest))
    }

    /// Writes the lines of these trials in this order, each once, then all other lines that were there: a router
    /// is tried at one point under many options and durations.
    pub(super) fn finish_trials(&mut self, keys: &[RunKey]) -> anyhow::Result<()> {
        self.write(keys, |_| true)
    }

    fn write(&mut self, keys: &[RunKey], stays: impl Fn(&RunKey) -> bool) -> anyhow::Result<()> {
        let told = || format!("cannot write {}", self.path.display());
        let mut listed = BTreeSet::new();
        let mut order: Vec<String> =
            keys.iter().map(identity).filter(|id| listed.insert(id.clone())).collect();
        let others = self.order.iter().filter(|id| !listed.contains(*id) && stays(&self.done[*id].key));
        order.extend(others.cloned());
        let new = self.path.with_extension("jsonl.new");
        let mut out = BufWriter::new(File::create(&new).with_context(told)?);
        for done in order.iter().filter_map(|id| self.done.get(id)) {
            writeln!(out, "{}", done.line).with_context(told)?;
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

/// What to do about lines that cannot stay.
const HINT: &str = "(hint: choose another folder with --results, or --fresh to play everything anew)";

fn files(folder: &Path, name: &str) -> [PathBuf; 2] {
    ["jsonl", "jsonl.part"].map(|extension| folder.join(format!("{name}.{extension}")))
}

/// Names a run.
fn identity(key: &RunKey) -> String {
    format!("{}|{}", key.digest, key.seed)
}

/// Names the runs of one router at one point, whatever its options.
fn cell(key: &RunKey) -> String {
    format!("{}|{}", key.router, serde_json::to_string(&key.point).unwrap_or_default())
}

#[cfg(test)]
mod tests;
