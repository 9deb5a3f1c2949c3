//! Where a profile comes from: built in by name, or a file of the same form.

use std::path::Path;

use super::SimEngineError;
use crate::truth::{PROFILES, Profile, ProfileEntry};

/// Loads the built-in profile of this name, or the file at this path.
///
/// # Errors
/// Fails on an unknown name, an unreadable file, and a profile that breaks a rule.
pub fn load_profile(name_or_file: &str) -> Result<Profile, SimEngineError> {
    if ProfileEntry::find(name_or_file).is_some() {
        return Ok(Profile::built_in(name_or_file)?);
    }
    let path = Path::new(name_or_file);
    let is_file =
        path.extension().is_some_and(|e| e == "yaml" || e == "yml") || path.components().count() > 1;
    if !is_file && !path.exists() {
        let known = PROFILES.iter().map(|p| p.name).collect::<Vec<_>>().join(", ");
        return Err(SimEngineError::UnknownProfile { name: name_or_file.to_string(), known });
    }
    let text = std::fs::read_to_string(path)
        .map_err(|source| SimEngineError::ReadProfile { path: path.to_path_buf(), source })?;
    Ok(Profile::parse(&text, name_or_file)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_same_form_loads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.yaml");
        let text = PROFILES[1].truth.replace("model: qwen3-8b", "model: my-model");
        std::fs::write(&path, text).unwrap();
        let mine = load_profile(&path.display().to_string()).unwrap();
        assert_eq!(mine.model, "my-model");
        assert_eq!(mine.batch_time, Profile::built_in(PROFILES[1].name).unwrap().batch_time);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = load_profile("nowhere/my.yaml").unwrap_err();
        assert!(matches!(&error, SimEngineError::ReadProfile { path, .. } if path.ends_with("my.yaml")));
    }
}
