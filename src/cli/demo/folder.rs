//! A folder for one run of the demo: its database, configuration and bundle. It goes when the demo ends,
//! unless it was asked to stay.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

macro_rules! bundle_file {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../../../models/demo/", $name)))
    };
}

/// The demonstration bundle's files.
const BUNDLE: &[(&str, &[u8])] = &[
    bundle_file!("manifest.json"),
    bundle_file!("accuracy.txt"),
    bundle_file!("output_length.txt"),
    bundle_file!("pca.bin"),
    bundle_file!("feature_tokenizer.json"),
    bundle_file!("card.md"),
];

/// The folder; dropping it removes it with everything in it, unless it is kept.
pub(super) struct Folder {
    path: PathBuf,
    kept: bool,
}

impl Folder {
    /// Makes a temporary folder that is not there yet and puts the bundle into it.
    pub(super) fn temporary() -> anyhow::Result<Self> {
        let parent = std::env::temp_dir();
        let path = (0..1_000)
            .map(|number| parent.join(format!("bear-demo-{}-{number}", std::process::id())))
            .find_map(|path| match fs::create_dir(&path) {
                Ok(()) => Some(Ok(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
                Err(error) => Some(Err(error)),
            })
            .context("too many folders of the demo are left over")?
            .with_context(|| format!("cannot make a folder in {}", parent.display()))?;
        Self { path, kept: false }.with_bundle()
    }

    /// Makes a folder that stays, or takes an empty one, and puts the bundle into it.
    pub(super) fn kept(path: &Path) -> anyhow::Result<Self> {
        let told = || format!("cannot make the folder {}", path.display());
        let path = std::path::absolute(path).with_context(told)?;
        fs::create_dir_all(&path).with_context(told)?;
        if fs::read_dir(&path).with_context(told)?.next().is_some() {
            bail!("{} is not empty (hint: --keep takes a new or an empty folder)", path.display());
        }
        Self { path, kept: true }.with_bundle()
    }

    fn with_bundle(self) -> anyhow::Result<Self> {
        self.write_bundle().context("cannot write the demonstration bundle")?;
        Ok(self)
    }

    /// Returns whether it stays.
    pub(super) const fn is_kept(&self) -> bool {
        self.kept
    }

    /// Returns where the configuration is written.
    pub(super) fn configuration(&self) -> PathBuf {
        self.path.join("bear.yaml")
    }

    fn write_bundle(&self) -> io::Result<()> {
        let bundle = self.bundle();
        fs::create_dir(&bundle)?;
        BUNDLE.iter().try_for_each(|(name, bytes)| fs::write(bundle.join(name), bytes))
    }

    /// Returns the bundle's folder.
    pub(super) fn bundle(&self) -> PathBuf {
        self.path.join("bundle")
    }

    /// Returns the database's URL.
    pub(super) fn store_url(&self) -> String {
        format!("sqlite://{}", self.path.join("bear.db").display())
    }

    /// Writes the configuration and returns its path.
    pub(super) fn write_configuration(&self, yaml: &str) -> anyhow::Result<PathBuf> {
        let path = self.configuration();
        fs::write(&path, yaml).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // What cannot be removed lies in the system's folder for temporary files and goes with it.
        _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_folders_are_apart_and_vanish() {
        let (one, two) = (Folder::temporary().unwrap(), Folder::temporary().unwrap());
        assert_ne!(one.store_url(), two.store_url());
        let path = one.write_configuration("a: 1").unwrap();
        assert!(path.exists());
        drop(one);
        assert!(!path.exists());
    }
    #[test]
    fn a_kept_folder_stays_and_is_not_written_over() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("new/demo");
        let folder = Folder::kept(&path).unwrap();
        folder.write_configuration("a: 1").unwrap();
        assert!(folder.is_kept() && path.join("bundle/manifest.json").exists());
        let error = Folder::kept(&path).err().unwrap().to_string();
        assert!(error.contains("--keep"), "{error}");
        drop(folder);
        assert!(path.join("bear.yaml").exists());
    }
}
