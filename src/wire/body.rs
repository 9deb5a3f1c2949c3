//! Edits of a JSON body that leave every other byte as the client sent it.
//!
//! The top level is scanned for member spans; the edits are spliced in between. A key that occurs
//! twice is edited at each place, so that it does not matter which one a parser keeps.

use std::{borrow::Cow, ops::Range};

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// Why a body cannot be scanned or edited.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// It is not JSON, or not an object.
    #[error("the body is not a JSON object: {0}")]
    NotAnObject(#[source] serde_json::Error),
    /// A member that must be an object is something else.
    #[error("`{key}` must be an object or null")]
    MemberNotAnObject {
        /// The member.
        key: &'static str,
    },
}

/// One member of an object: its key, unescaped, and its value as written.
#[derive(Debug)]
pub struct Member<'a> {
    /// The key, unescaped.
    pub key: Cow<'a, str>,
    /// The value's own bytes.
    pub value: &'a RawValue,
}

/// The members of one JSON object in the order written, duplicates included.
#[derive(Debug)]
pub struct Members<'a>(Vec<Member<'a>>);

impl<'a> Members<'a> {
    /// Scans one object.
    ///
    /// # Errors
    /// [`BodyError::NotAnObject`] when `json` is malformed, has trailing bytes or is no object.
    pub fn scan(json: &'a [u8]) -> Result<Self, BodyError> {
        serde_json::from_slice(json).map_err(BodyError::NotAnObject)
    }

    /// Returns the value that a parser keeps for `key`: the last one written.
    #[must_use]
    pub fn last(&self, key: &str) -> Option<&'a RawValue> {
        self.all(key).last()
    }

    /// Returns every value written for `key`.
    pub fn all<'s>(&'s self, key: &'s str) -> impl Iterator<Item = &'a RawValue> + 's {
        self.0.iter().filter(move |member| member.key == key).map(|member| member.value)
    }

    /// Returns whether the object is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the members in the order written.
    pub fn iter(&self) -> std::slice::Iter<'_, Member<'a>> {
        self.0.iter()
    }
}

/// A key that borrows from the input unless it holds escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Key<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object key")
            }
            fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(key)))
            }
            fn visit_str<E>(self, key: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(key.to_owned())))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::with_capacity(16);
                while let Some(Key(key)) = map.next_key()? {
                    members.push(Member { key, value: map.next_value().map_err(A::Error::custom)? });
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

/// The changes wanted in a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edits<'a> {
    /// The new value of the top-level `model`.
    pub model: Option<&'a str>,
    /// Whether `stream_options.include_usage` must be true.
    pub include_usage: bool,
}

/// Returns the body with the edits made, or the very same bytes when none is needed.
///
/// A body without `model` gets none: there is nothing to replace. Without any edit it is not looked at.
///
/// # Errors
/// [`BodyError::NotAnObject`] for anything but a JSON object, [`BodyError::MemberNotAnObject`] when
/// `stream_options` is neither an object nor null.
pub fn edit(body: &Bytes, edits: Edits<'_>) -> Result<Bytes, BodyError> {
    if edits == Edits::default() {
        return Ok(body.clone());
    }
    let members = Members::scan(body)?;
    let mut splices = Vec::new();
    if let Some(model) = edits.model {
        let quoted = serde_json::Value::from(model).to_string();
        for value in members.all("model") {
            splices.push((span(body, value), quoted.clone()));
        }
    }
    if edits.include_usage {
        include_usage(body, &members, &mut splices)?;
    }
    if splices.is_empty() {
        return Ok(body.clone());
    }
    splices.sort_by_key(|(range, _)| range.start);
    Ok(splice(body, &splices))
}

fn include_usage(
    body: &[u8],
    members: &Members<'_>,
    splices: &mut Vec<(Range<usize>, String)>,
) -> Result<(), BodyError> {
    let mut present = false;
    for options in members.all("stream_options") {
        present = true;
        let range = span(body, options);
        if options.get() == "null" {
            splices.push((range, String::from(r#"{"include_usage":true}"#)));
            continue;
        }
        let inner = Members::scan(options.get().as_bytes())
            .map_err(|_| BodyError::MemberNotAnObject { key: "stream_options" })?;
        let mut flagged = false;
        for flag in inner.all("include_usage") {
            flagged = true;
            if flag.get() != "true" {
                splices.push((span(body, flag), String::from("true")));
            }
        }
        if !flagged {
            splices.push(first_member(range.start + 1, "\"include_usage\":true", inner.is_empty()));
        }
    }
    if !present {
        let open = body.iter().position(|b| *b == b'{').unwrap_or(0);
        let member = "\"stream_options\":{\"include_usage\":true}";
        splices.push(first_member(open + 1, member, members.is_empty()));
    }
    Ok(())
}

fn first_member(at: usize, member: &str, only: bool) -> (Range<usize>, String) {
    (at..at, format!("{member}{}", if only { "" } else { "," }))
}

/// Returns where `value` lies in the body it was scanned from.
fn span(body: &[u8], value: &RawValue) -> Range<usize> {
    let start = (value.get().as_ptr() as usize).saturating_sub(body.as_ptr() as usize);
    start..start + value.get().len()
}

fn splice(body: &[u8], splices: &[(Range<usize>, String)]) -> Bytes {
    let grown: usize = splices.iter().map(|(_, text)| text.len()).sum();
    let mut out = Vec::with_capacity(body.len() + grown);
    let mut from = 0;
    for (range, text) in splices {
        out.extend_from_slice(&body[from..range.start]);
        out.extend_from_slice(text.as_bytes());
        from = range.end;
    }
    out.extend_from_slice(&body[from..]);
    out.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn edited(body: &str, model: Option<&str>, include_usage: bool) -> String {
        let out = edit(&Bytes::copy_from_slice(body.as_bytes()), Edits { model, include_usage }).unwrap();
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn replaces_the_model_and_nothing_else() {
        for (body, want) in [
            (r#"{"model":"auto"}"#, r#"{"model":"m"}"#),
            (" {\n \"model\" :\t\"auto\" , \"x\": 1.50e+2 } ", " {\n \"model\" :\t\"m\" , \"x\": 1.50e+2 } "),
            (
                r#"{"metadata":{"model":"auto"},"model":"auto"}"#,
                r#"{"metadata":{"model":"auto"},"model":"m"}"#,
            ),
            (
                r#"{"a":"\"model\":\"auto\"","mod\u0065l":"auto"}"#,
                r#"{"a":"\"model\":\"auto\"","mod\u0065l":"m"}"#,
            ),
            (r#"{"model":"auto","é":"日本 😀","model":"b"}"#, r#"{"model":"m","é":"日本 😀","model":"m"}"#),
            (r#"{"x":1}"#, r#"{"x":1}"#),
        ] {
            assert_eq!(edited(body, Some("m"), false), want);
        }
    }

    #[test]
    fn a_model_name_is_escaped() {
        assert_eq!(edited(r#"{"model":1}"#, Some("a\"b\\"), false), r#"{"model":"a\"b\\"}"#);
    }

    #[test]
    fn asks_for_usage_in_every_starting_state() {
        for (body, want) in [
            (r#"{"stream":true}"#, r#"{"stream_options":{"include_usage":true},"stream":true}"#),
            (r"{ }", r#"{"stream_options":{"include_usage":true} }"#),
            (r#"{"stream_options": null}"#, r#"{"stream_options": {"include_usage":true}}"#),
            (r#"{"stream_options": { } }"#, r#"{"stream_options": {"include_usage":true } }"#),
            (r#"{"stream_options":{"a":1}}"#, r#"{"stream_options":{"include_usage":true,"a":1}}"#),
            (
                r#"{"stream_options":{"include_usage": false}}"#,
                r#"{"stream_options":{"include_usage": true}}"#,
            ),
            (
                r#"{"stream_options":{"include_usage": null}}"#,
                r#"{"stream_options":{"include_usage": true}}"#,
            ),
            (r#"{"stream_options":{"include_usage":true}}"#, r#"{"stream_options":{"include_usage":true}}"#),
        ] {
            assert_eq!(edited(body, None, true), want);
        }
    }

    #[test]
    fn unchanged_bodies_are_the_same_allocation() {
        let body = Bytes::from_static(br#"{"stream_options":{"include_usage":true}}"#);
        for include_usage in [true, false] {
            let out = edit(&body, Edits { model: None, include_usage }).unwrap();
            assert_eq!(out.as_ptr(), body.as_ptr());
        }
    }

    #[test]
    fn refuses_what_is_no_object() {
        for body in ["", "[]", "{", "{}x", "1", "\u{feff}{}"] {
            let edits = Edits { model: Some("m"), include_usage: false };
            let out = edit(&Bytes::copy_from_slice(body.as_bytes()), edits);
            assert!(matches!(out, Err(BodyError::NotAnObject(_))), "{body:?}");
        }
        let out =
            edit(&Bytes::from_static(br#"{"stream_options":3}"#), Edits { model: None, include_usage: true });
        assert!(matches!(out, Err(BodyError::MemberNotAnObject { key: "stream_options" })));
    }

    fn arbitrary_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,12}".prop_map(Value::from),
            Just(json!({"model": "inner", "stream_options": {"include_usage": false}})),
        ];
        leaf.prop_recursive(3, 24, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("\\PC{0,6}", inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn edits_change_only_what_they_name(
            before in prop::collection::btree_map("[^ms]\\PC{0,6}", arbitrary_json(), 0..4),
            after in prop::collection::btree_map("[^ms]\\PC{0,6}", arbitrary_json(), 0..4),
            pretty in any::<bool>(),
            model in "\\PC{0,10}",
        ) {
            let mut object: serde_json::Map<String, Value> = before.into_iter().collect();
            object.insert("model".into(), "auto".into());
            object.extend(after);
            let value = Value::Object(object);
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            let out = edited(&text, Some(&model), true);

            let mut want = value.clone();
            want["model"] = model.clone().into();
            want["stream_options"] = json!({"include_usage": true});
            prop_assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), want);

            let undone = out.replacen("\"stream_options\":{\"include_usage\":true},", "", 1);
            let quoted = Value::from(model).to_string();
            let at = undone.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
            let tail = text.bytes().rev().zip(undone.bytes().rev()).take_while(|(a, b)| a == b).count();
            prop_assert!(at + tail + "\"auto\"".len() >= text.len(), "bytes outside the value differ");
            prop_assert_eq!(undone.len() + "\"auto\"".len(), text.len() + quoted.len());
        }
    }
}
