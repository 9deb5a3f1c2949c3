//! Where each value of the configuration came from, so that a mistake in it can be pointed at.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::Spanned;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A position in the file; line and column count from 1.
    File {
        /// The file.
        path: PathBuf,
        /// Its line.
        line: u64,
        /// Its column, characters.
        column: u64,
    },
    /// An environment variable.
    Environment(String),
    /// A command-line flag.
    Flag(String),
    /// The defaults: nothing was given.
    Default,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line, column } => write!(f, "{}:{line}:{column}", path.display()),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => write!(f, "{name}"),
            Self::Default => f.write_str("the defaults"),
        }
    }
}

/// The places of all values, by dotted path (`instances.0.model`).
#[derive(Clone, Debug, Default)]
pub(super) struct Places(BTreeMap<String, Place>);

impl Places {
    /// Reads the places of a YAML text that has already been found well-formed.
    pub(super) fn of_file(path: &std::path::Path, text: &str) -> Self {
        let mut places = Self::default();
        // A text that the typed parse took has a tree; an empty one has none.
        let options = serde_saphyr::options! {
            non_finite_float_policy: serde_saphyr::NonFiniteFloatPolicy::PassThrough,
        };
        if let Ok(tree) = serde_saphyr::from_str_with_options::<Spanned<Node>>(text, options) {
            places.walk(path, String::new(), &tree);
        }
        places
    }

    /// Notes that a value was overridden elsewhere.
    pub(super) fn set(&mut self, key: &str, place: Place) {
        self.0.insert(key.into(), place);
    }

    /// Returns the place of a value, or of the nearest enclosing one that was given.
    pub(super) fn find(&self, key: &str) -> Place {
        let mut key = key;
        loop {
            if let Some(place) = self.0.get(key) {
                return place.clone();
            }
            match key.rsplit_once('.') {
                Some((outer, _)) => key = outer,
                None => return Place::Default,
            }
        }
    }

    fn walk(&mut self, path: &std::path::Path, key: String, node: &Spanned<Node>) {
        let join = |name: &str| if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
        match &node.value {
            Node::Scalar => {}
            Node::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.walk(path, join(&index.to_string()), item);
                }
            }
            Node::Map(entries) => {
                for (name, value) in entries {
                    self.walk(path, join(name), value);
                }
            }
        }
        if !key.is_empty() {
            let at = node.referenced;
            self.0.insert(key, Place::File { path: path.into(), line: at.line(), column: at.column() });
        }
    }
}

/// A YAML value reduced to its shape.
#[derive(Debug)]
enum Node {
    Scalar,
    List(Vec<Spanned<Node>>),
    Map(Vec<(String, Spanned<Node>)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(name) = map.next_key::<Key>()? {
            entries.push((name.0, map.next_value()?));
        }
        Ok(Node::Map(entries))
    }
}

/// A mapping key as text, whatever scalar it is.
struct Key(String);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Key)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_value_has_its_line_and_column() {
        let text = "routing:\n  policy: {name: bear}\n# note\nmodels:\n  - id: a\n  - id: b\n    price: {x: 1.5, y: null}\n";
        let places = Places::of_file(Path::new("bear.yaml"), text);
        for (key, at) in [
            ("routing.policy.name", "bear.yaml:2:18"),
            ("models.1.id", "bear.yaml:6:9"),
            ("models.1.price.y", "bear.yaml:7:24"),
            ("models.1.price.missing", "bear.yaml:7:12"),
            ("elsewhere", "the defaults"),
        ] {
            assert_eq!(places.find(key).to_string(), at, "{key}");
        }
    }

    #[test]
    fn an_override_hides_the_file() {
        let mut places = Places::of_file(Path::new("bear.yaml"), "store: {url: x}");
        places.set("store.url", Place::Environment("BEAR__STORE__URL".into()));
        assert_eq!(places.find("store.url").to_string(), "environment variable BEAR__STORE__URL");
    }
}
