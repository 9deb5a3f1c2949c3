//! From defaults, file, environment and flags to one raw configuration, with the place of every value.

use std::{fs, path::PathBuf};

use serde_json::Value;

use super::{Config, ConfigError, Place, place::Places};
use crate::domain::suggestion;

/// What environment variables start with: `BEAR__STORE__URL` sets `store.url`.
const PREFIX: &str = "BEAR__";

/// Where a configuration comes from; later ones win.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The YAML file; absent: defaults only.
    pub file: Option<PathBuf>,
    /// Environment variables, all of them or just ours.
    pub environment: Vec<(String, String)>,
    /// Values from the command line.
    pub flags: Vec<Flag>,
}

/// One value from the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The flag as the user wrote it, such as `--listen`.
    pub name: &'static str,
    /// The key it sets, such as `listen.address`.
    pub key: &'static str,
    /// The value as YAML text.
    pub value: String,
}

/// A raw configuration that parses but has not been checked.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The values.
    pub config: Config,
    pub(super) places: Places,
}

impl Loaded {
    /// Returns the place of a value by its dotted key (`instances.0.model`).
    #[must_use]
    pub fn place(&self, key: &str) -> Place {
        self.places.find(key)
    }
}

/// Reads defaults, file, environment and flags, in this order.
///
/// # Errors
/// A file that cannot be read, or a key or value that does not fit, with its place.
pub fn load(sources: &Sources) -> Result<Loaded, ConfigError> {
    let mut loaded = match &sources.file {
        None => Loaded { config: Config::default(), places: Places::default() },
        Some(path) => {
            let text = fs::read_to_string(path)
                .map_err(|source| ConfigError::Read { path: path.clone(), source })?;
            parse(path, &text)?
        }
    };
    let mut environment: Vec<_> =
        sources.environment.iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
    environment.sort();
    for (name, value) in environment {
        let keys: Vec<String> = name[PREFIX.len()..].split("__").map(str::to_lowercase).collect();
        set(&mut loaded, &keys, value, &Place::Environment(name.clone()))?;
    }
    for flag in &sources.flags {
        let keys: Vec<String> = flag.key.split('.').map(str::to_owned).collect();
        set(&mut loaded, &keys, &flag.value, &Place::Flag(flag.name.into()))?;
    }
    Ok(loaded)
}

/// Parses the text of a configuration file; `path` is only shown.
///
/// # Errors
/// A text that is no YAML, or a key or value that does not fit, with line and column.
pub fn parse(path: &std::path::Path, text: &str) -> Result<Loaded, ConfigError> {
    let blank = text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    let config = if blank {
        Config::default()
    } else {
        serde_saphyr::from_str(text).map_err(|error| explain(path, &error))?
    };
    Ok(Loaded { config, places: Places::of_file(path, text) })
}

fn explain(path: &std::path::Path, error: &serde_saphyr::Error) -> ConfigError {
    let error = error.without_snippet();
    let at = error.location();
    let place = Place::File {
        path: path.into(),
        line: at.map_or(1, |at| at.line()),
        column: at.map_or(1, |at| at.column()),
    };
    match error {
        serde_saphyr::Error::SerdeUnknownField { field, expected, .. } => {
            ConfigError::UnknownKey { place, key: field.clone(), suggestion: suggestion(field, expected) }
        }
        other => ConfigError::Malformed { place, problem: without_place(&other.to_string()) },
    }
}

/// Removes the location that the parser appends to its message; the place already shows it.
fn without_place(message: &str) -> String {
    let line = message.lines().next().unwrap_or(message);
    let line = line.strip_prefix("error: ").unwrap_or(line);
    match line.rfind(" at line ") {
        Some(end) => line[..end].to_owned(),
        None => line.to_owned(),
    }
}

/// Sets one value by its path of keys; list items go by their position or their id.
fn set(loaded: &mut Loaded, keys: &[String], text: &str, place: &Place) -> Result<(), ConfigError> {
    let malformed = |problem: String| ConfigError::Malformed { place: place.clone(), problem };
    let tree = serde_json::to_value(&loaded.config).map_err(|error| malformed(error.to_string()))?;
    let parsed = serde_saphyr::from_str::<Value>(text).unwrap_or_else(|_| Value::String(text.into()));
    let plain = Value::String(text.into());
    let mut failure = None;
    // A text such as `1` or `true` may be meant for a key that takes text.
    for value in [parsed, plain] {
        let mut changed = tree.clone();
        let path = put(&mut changed, keys, value, place)?;
        match serde_json::from_value(changed) {
            Ok(config) => {
                loaded.config = config;
                loaded.places.set(&path, place.clone());
                return Ok(());
            }
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    Err(malformed(failure.map_or_else(String::new, |error| error.to_string())))
}

/// Puts a value into the tree and returns its dotted path; only keys that exist can be set.
fn put(tree: &mut Value, keys: &[String], value: Value, place: &Place) -> Result<String, ConfigError> {
    let mut node = tree;
    let mut path = String::new();
    for key in keys {
        let unknown = |known: &[&str]| ConfigError::UnknownKey {
            place: place.clone(),
            key: key.clone(),
            suggestion: suggestion(key, known),
        };
        let (step, next) = match node {
            Value::Object(map) => {
                let known: Vec<String> = map.keys().cloned().collect();
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                let next = map.get_mut(key.as_str()).ok_or_else(|| unknown(&known))?;
                (key.clone(), next)
            }
            Value::Array(items) => {
                let ids: Vec<String> = items.iter().map(item_id).collect();
                let index = key
                    .parse()
                    .ok()
                    .filter(|index| *index < items.len())
                    .or_else(|| ids.iter().position(|id| id == key))
                    .ok_or_else(|| unknown(&ids.iter().map(String::as_str).collect::<Vec<_>>()))?;
                (index.to_string(), &mut items[index])
            }
            // A section that is null so far starts empty, and its type then says what it needs.
            Value::Null => {
                *node = Value::Object(serde_json::Map::new());
                let Value::Object(map) = node else { return Err(unknown(&[])) };
                (key.clone(), map.entry(key.clone()).or_insert(Value::Null))
            }
            _ => return Err(unknown(&[])),
        };
        path = if path.is_empty() { step } else { format!("{path}.{step}") };
        node = next;
    }
    *node = value;
    Ok(path)
}

/// Returns a list item's id as it can be written in a variable's name.
fn item_id(item: &Value) -> String {
    let id = item.get("id").and_then(Value::as_str).unwrap_or_default();
    id.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

impl From<Config> for Loaded {
    /// Takes values that were made in the program; none has a place in a file.
    fn from(config: Config) -> Self {
        Self { config, places: Places::default() }
    }
}
