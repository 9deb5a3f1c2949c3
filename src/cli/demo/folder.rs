//! A folder for one run of the demo: its database, configuration and bundle; gone when the demo ends.

use std::{fs, io, path::PathBuf};

use anyhow::Context;

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

/// The folder; dropping it removes it with everything in it.
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes a folder that is not there yet and puts the bundle into it.
    pub(super) fn create() -> anyhow::Result<Self> {
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
        let folder = Self { path };
        folder.write_bundle().context("cannot write the demonstration bundle")?;
        Ok(folder)
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
        let path = self.path.join("bear.yaml");
        fs::write(&path, yaml).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed lies in the system's folder for temporary files and goes with it.
        _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_folders_are_apart_and_vanish() {
        let (one, two) = (Folder::create().unwrap(), Folder::create().unwrap());
        assert_ne!(one.store_url(), two.store_url());
        let path = one.write_configuration("a: 1").unwrap();
        assert!(path.exists());
        drop(one);
        assert!(!path.exists());
    }
}
