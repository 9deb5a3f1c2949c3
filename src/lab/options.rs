//! Options of named variants: parsed, refused with their key, and searched for the files that they name.

use std::{collections::BTreeMap, sync::Arc};

use serde::{de::DeserializeOwned, de::Error as _};
use serde_json::{Map, Value};

use super::LabError;

/// Files handed in by the name that options give them, unpacked.
pub type Files = BTreeMap<String, Arc<[u8]>>;

/// The key whose text names a data file, wherever it stands in a variant's options.
const FILE_KEY: &str = "file";

/// Parses the options of `kind` `name`.
pub(super) fn parse<T: DeserializeOwned>(
    kind: &'static str,
    name: &str,
    options: &Map<String, Value>,
) -> Result<T, LabError> {
    serde_json::from_value(Value::Object(options.clone())).map_err(|source| LabError::Options {
        kind,
        name: name.to_owned(),
        source,
    })
}

/// Refuses options of `kind` `name`.
pub(super) fn refused(kind: &'static str, name: &str, what: &str) -> LabError {
    LabError::Options { kind, name: name.to_owned(), source: serde_json::Error::custom(what) }
}

/// Refuses options of `kind` `name` unless the value of `key` is finite and above 0.
pub(super) fn positive(kind: &'static str, name: &str, key: &str, value: f64) -> Result<f64, LabError> {
    if value.is_finite() && value > 0.0 {
        return Ok(value);
    }
    Err(refused(kind, name, &format!("`{key}` is {value}; it must be a finite number above 0")))
}

/// Returns the text of the file that options name.
pub(super) fn text<'a>(files: &'a Files, file: &str) -> Result<&'a str, LabError> {
    let error = |what: String| LabError::Data { file: file.to_owned(), what };
    let bytes = files.get(file).ok_or_else(|| error(String::from("was not handed in")))?;
    str::from_utf8(bytes).map_err(|source| error(format!("is not text: {source}")))
}

/// Returns the names of the data files that a variant's options name, in their order: the text of every key
/// `file`, also inside lists and nested options.
#[must_use]
pub fn data_files(options: &Map<String, Value>) -> Vec<String> {
    let mut found = Vec::new();
    options.iter().for_each(|(key, value)| collect(key, value, &mut found));
    found
}

fn collect(key: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) if key == FILE_KEY => found.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect("", item, found)),
        Value::Object(fields) => fields.iter().for_each(|(key, value)| collect(key, value, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_are_found_in_nested_options() {
        let Value::Object(options) =
            json!({"file": "a.csv", "parts": [{"options": {"file": "b.jsonl"}}], "task": "file"})
        else {
            panic!("an object");
        };
        assert_eq!(data_files(&options), ["a.csv", "b.jsonl"]);
    }
}
