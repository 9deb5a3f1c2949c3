//! Chat messages: their check, the kinds of input they carry, and their text.

use serde_json::{Map, Value};

use super::RequestError;
use crate::domain::Modalities;

/// Returns the kind of input a content part carries: `image_url` and `input_image` are `image`.
#[must_use]
pub fn modality_of_part(part_type: &str) -> &str {
    match part_type {
        "text" | "input_text" | "output_text" | "refusal" | "thinking" => "text",
        other => {
            let other = other.strip_prefix("input_").unwrap_or(other);
            ["_url", "_pil", "_embeds"].iter().find_map(|end| other.strip_suffix(end)).unwrap_or(other)
        }
    }
}

/// Members that tell what a content part without `type` carries, text last (vLLM 0.32,
/// `entrypoints/chat_utils.py`, infers likewise).
const PART_MEMBERS: [&str; 11] = [
    "image_url",
    "image_pil",
    "image_embeds",
    "input_image",
    "audio_url",
    "input_audio",
    "audio_embeds",
    "video_url",
    "file",
    "refusal",
    "text",
];

/// Returns a content part's type: as written, else by its members; absent: left to the engine.
fn type_of_part(part: &Map<String, Value>) -> Result<Option<&str>, NoText> {
    match part.get("type") {
        Some(Value::String(kind)) => Ok(Some(kind)),
        None | Some(Value::Null) => Ok(PART_MEMBERS.into_iter().find(|member| part.contains_key(*member))),
        Some(_) => Err(NoText),
    }
}

/// A part's `type` is neither a text nor null.
struct NoText;

/// Checks the messages and adds the kinds of input besides text to `modalities`.
pub(super) fn check(messages: &[Value], modalities: &mut Modalities) -> Result<(), RequestError> {
    if messages.is_empty() {
        return Err(RequestError::bad("messages", "at least one message"));
    }
    for (i, message) in messages.iter().enumerate() {
        let at = |member: &str| format!("messages[{i}]{member}");
        let Value::Object(members) = message else {
            return Err(RequestError::bad(at(""), "an object"));
        };
        if !members.get("role").is_some_and(Value::is_string) {
            return Err(RequestError::bad(at(".role"), "a text"));
        }
        match members.get("content") {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(Value::Array(parts)) => {
                for (j, part) in parts.iter().enumerate() {
                    let kind = match part {
                        Value::String(_) => Some("text"),
                        Value::Object(part) => type_of_part(part).map_err(|NoText| {
                            RequestError::bad(at(&format!(".content[{j}].type")), "a text")
                        })?,
                        _ => return Err(RequestError::bad(at(&format!(".content[{j}]")), "an object")),
                    };
                    let modality = kind.map_or("text", modality_of_part);
                    if modality != "text" && !modalities.contains(modality) {
                        modalities.insert(modality.to_owned());
                    }
                }
            }
            Some(_) => return Err(RequestError::bad(at(".content"), "a text, a list of parts or null")),
        }
    }
    Ok(())
}

/// Appends the text of the messages to `out`, one line feed between contents.
pub(super) fn text(messages: &[Value], out: &mut String) {
    let mut add = |text: &str| {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(text);
    };
    for message in messages {
        match message.get("content") {
            Some(Value::String(text)) => add(text),
            Some(Value::Array(parts)) => {
                for part in parts {
                    if let Some(text) = part.as_str().or_else(|| part.get("text").and_then(Value::as_str)) {
                        add(text);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn part_types_map_to_kinds() {
        for (part, kind) in [
            ("text", "text"),
            ("image_url", "image"),
            ("input_image", "image"),
            ("input_audio", "audio"),
            ("audio_url", "audio"),
            ("video_url", "video"),
            ("image_embeds", "image"),
            ("file", "file"),
            ("hologram", "hologram"),
        ] {
            assert_eq!(modality_of_part(part), kind);
        }
    }

    #[test]
    fn a_part_without_type_is_known_by_its_members() {
        for (part, kinds) in [
            (json!({"text": "x"}), &[][..]),
            (json!({"image_url": {"url": "data:x"}}), &["image"]),
            (json!({"type": null, "input_audio": {}}), &["audio"]),
            (json!({"text": "x", "video_url": "v"}), &["video"]),
            (json!({"hologram": 1}), &[]),
        ] {
            let mut modalities = Modalities::new();
            check(&[json!({"role": "user", "content": [part.clone()]})], &mut modalities).unwrap();
            assert!(modalities.iter().eq(kinds), "{part}: {modalities:?}");
        }
    }

    #[test]
    fn bad_messages_are_named() {
        for (messages, param) in [
            (json!([]), "messages"),
            (json!([1]), "messages[0]"),
            (json!([{"role": "user"}, {"content": "x"}]), "messages[1].role"),
            (json!([{"role": "user", "content": 1}]), "messages[0].content"),
            (json!([{"role": "user", "content": [{"type": 3}]}]), "messages[0].content[0].type"),
            (json!([{"role": "user", "content": [1]}]), "messages[0].content[0]"),
        ] {
            let error = check(messages.as_array().unwrap(), &mut Modalities::new()).unwrap_err();
            assert_eq!(error.param(), Some(param));
        }
    }
}
