//! A query's features as a row holds them: shared with the request until they are written, text once read.

use std::{borrow::Cow, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::Error as _};
use serde_json::{Value, value::RawValue};

use crate::predict::QueryFeatures;

/// A query's features as they were at the decision: the sparse counts before any fitted projection
/// (pairs of bucket and count) and named scalars.
///
/// Cheap to make and to hold from a request's own features. Those of a stored row stay text: rows of an
/// earlier feature function can be read, whatever form they had.
#[derive(Clone, Debug)]
pub struct LoggedFeatures(Form);

#[derive(Clone, Debug)]
enum Form {
    Made(Arc<QueryFeatures>),
    Read { version: String, json: Box<str> },
}

impl LoggedFeatures {
    /// Takes features as a store kept them: their version and their JSON.
    #[must_use]
    pub fn read(version: String, json: impl Into<Box<str>>) -> Self {
        Self(Form::Read { version, json: json.into() })
    }

    /// Returns the feature function's version; rows of different versions do not mix.
    #[must_use]
    pub fn version(&self) -> &str {
        match &self.0 {
            Form::Made(features) => features.version(),
            Form::Read { version, .. } => version,
        }
    }

    /// Returns the features as JSON.
    ///
    /// # Errors
    /// Features that have no JSON form.
    pub fn json(&self) -> serde_json::Result<Cow<'_, str>> {
        match &self.0 {
            Form::Made(features) => serde_json::to_string(&**features).map(Cow::Owned),
            Form::Read { json, .. } => Ok(Cow::Borrowed(json)),
        }
    }

    /// Returns about how much memory they hold, bytes.
    pub(super) fn weight_bytes(&self) -> usize {
        match &self.0 {
            Form::Made(features) => {
                size_of::<QueryFeatures>() + features.version().len() + size_of_val(features.sparse_counts())
            }
            Form::Read { version, json } => version.len() + json.len(),
        }
    }
}

impl From<Arc<QueryFeatures>> for LoggedFeatures {
    fn from(features: Arc<QueryFeatures>) -> Self {
        Self(Form::Made(features))
    }
}

impl PartialEq for LoggedFeatures {
    /// Compares versions and values, whichever form each side has.
    fn eq(&self, other: &Self) -> bool {
        let values = |features: &Self| {
            let json = features.json().ok()?;
            serde_json::from_str::<Value>(&json).ok()
        };
        self.version() == other.version() && values(self) == values(other)
    }
}

impl Serialize for LoggedFeatures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Written<'a> {
            version: &'a str,
            values: Box<RawValue>,
        }
        let json = self.json().map_err(S::Error::custom)?.into_owned();
        let values = RawValue::from_string(json).map_err(S::Error::custom)?;
        Written { version: self.version(), values }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for LoggedFeatures {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Read {
            version: String,
            values: Value,
        }
        let Read { version, values } = Read::deserialize(deserializer)?;
        let json = serde_json::to_string(&values).map_err(D::Error::custom)?;
        Ok(Self::read(version, json))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::Predictor;

    #[test]
    fn made_and_read_features_are_the_same_in_every_form() {
        let made = Arc::new(Predictor::prior().describe("How many moons has Mars?"));
        let made = LoggedFeatures::from(made);
        let read = LoggedFeatures::read(made.version().to_owned(), made.json().unwrap());
        assert_eq!(made, read);
        let line = serde_json::to_string(&made).unwrap();
        assert_eq!(line, serde_json::to_string(&read).unwrap());
        assert_eq!(serde_json::from_str::<LoggedFeatures>(&line).unwrap(), made);
        let other = LoggedFeatures::from(Arc::new(Predictor::prior().describe("How many moons has it?")));
        assert_ne!(made, other);
        assert!(made.weight_bytes() > 0 && made.weight_bytes() < 4096);
    }
}
