//! Reads a bundle's files from its folder: the manifest and what it lists, whatever else lies there.

use std::{collections::BTreeMap, fs, io, path::Path};

use thiserror::Error;

use crate::predict::bundle::{MANIFEST, listed_files};

/// A bundle's file or folder that cannot be read.
#[derive(Debug, Error)]
#[error("cannot read {path}: {source}", path = .path.display())]
pub struct BundleFileError {
    /// The file or folder.
    pub path: Box<Path>,
    /// Why.
    pub source: io::Error,
}

/// Reads the files of the bundle in `folder`, symbolic links followed.
///
/// What is not there is left out: [`Predictor::from_bundle`](crate::predict::Predictor::from_bundle) names it.
///
/// # Errors
/// The folder or a file that is there cannot be read.
pub fn read_bundle(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, BundleFileError> {
    let fault = |path: &Path, source| BundleFileError { path: path.into(), source };
    // A folder that cannot be read is told as such, not as one that lacks a manifest.
    fs::read_dir(folder).map_err(|error| fault(folder, error))?;
    let read = |name: &str| {
        let path = folder.join(name);
        let bytes = path.is_file().then(|| fs::read(&path)).transpose();
        bytes.map_err(|error| fault(&path, error))
    };
    let mut files = BTreeMap::new();
    let Some(manifest) = read(MANIFEST)? else { return Ok(files) };
    for name in listed_files(&manifest) {
        if let Some(bytes) = read(&name)? {
            files.insert(name, bytes);
        }
    }
    files.insert(MANIFEST.to_owned(), manifest);
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = r#"{"files":{"a.txt":{},"absent.txt":{},"../outside":{}}}"#;

    fn names(folder: &Path) -> Vec<String> {
        read_bundle(folder).unwrap().into_keys().collect()
    }

    #[test]
    fn only_what_the_manifest_lists_is_read() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("bundle");
        fs::create_dir(&folder).unwrap();
        assert!(names(&folder).is_empty());
        for (name, text) in [("manifest.json", LISTED), ("a.txt", "a"), ("notes.txt", ""), ("../outside", "")]
        {
            fs::write(folder.join(name), text).unwrap();
        }
        assert_eq!(names(&folder), ["a.txt", "manifest.json"]);
        fs::write(folder.join(MANIFEST), "{").unwrap();
        assert_eq!(names(&folder), ["manifest.json"]);
    }

    #[cfg(unix)]
    #[test]
    fn symbolic_links_are_followed() {
        let parent = tempfile::tempdir().unwrap();
        let (real, linked) = (parent.path().join("real"), parent.path().join("linked"));
        fs::create_dir(&real).unwrap();
        fs::create_dir(&linked).unwrap();
        for (name, text) in [("manifest.json", LISTED), ("a.txt", "a")] {
            fs::write(real.join(name), text).unwrap();
            std::os::unix::fs::symlink(real.join(name), linked.join(name)).unwrap();
        }
        assert_eq!(names(&linked), ["a.txt", "manifest.json"]);
    }

    #[test]
    fn an_absent_folder_is_named() {
        let folder = tempfile::tempdir().unwrap().path().join("absent");
        assert!(read_bundle(&folder).unwrap_err().to_string().contains("absent"));
    }
}
