//! What a proxied answer says about itself, read without building it.

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{ErrorCode, Usage};

/// The data of the event that ends a stream.
pub const DONE: &str = "[DONE]";

/// What one streamed event holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkFacts {
    /// Choices with a non-empty content, reasoning, refusal, tool-call or text delta.
    pub content_choices: u32,
    /// Token counts, where the event carries them.
    pub usage: Option<Usage>,
    /// It carries usage and no choice: the chunk that `include_usage` adds.
    pub usage_only: bool,
    /// It is the end marker.
    pub done: bool,
    /// The error it reports.
    pub error: Option<ErrorFacts>,
}

/// What an error event says of the error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorFacts {
    /// The HTTP status in its `code`; absent: another code or none.
    pub status: Option<u16>,
}

/// Reads the data of one event of a chat or completion stream; anything else yields no facts.
#[must_use]
pub fn observe_chunk(data: &str) -> ChunkFacts {
    if data.trim_ascii() == DONE {
        return ChunkFacts { done: true, ..ChunkFacts::default() };
    }
    let Ok(chunk) = serde_json::from_str::<Chunk<'_>>(data) else { return ChunkFacts::default() };
    let filled = chunk.choices.iter().flatten().filter(|choice| choice.has_content()).count();
    // Odd counts or codes do not hide the rest of the event.
    let usage: Option<Usage> = chunk.usage.and_then(|usage| serde_json::from_str(usage.get()).ok());
    ChunkFacts {
        content_choices: u32::try_from(filled).unwrap_or(u32::MAX),
        usage,
        usage_only: usage.is_some() && chunk.choices.is_some_and(|choices| choices.is_empty()),
        done: false,
        error: chunk.error.and_then(error_facts),
    }
}

/// Reads the `error` member of an event; absent where it is empty.
fn error_facts(error: &RawValue) -> Option<ErrorFacts> {
    #[derive(Deserialize)]
    struct Coded {
        #[serde(default)]
        code: Option<ErrorCode>,
    }
    serde_json::from_str::<Filled>(error.get()).ok().filter(|error| error.0)?;
    let code = serde_json::from_str::<Coded>(error.get()).ok().and_then(|coded| coded.code);
    Some(ErrorFacts { status: code.and_then(|code| code.status()) })
}

/// Reads the token counts of a whole answer; absent where it has none or is no JSON object.
#[must_use]
pub fn usage_of_answer(body: &[u8]) -> Option<Usage> {
    #[derive(Deserialize)]
    struct Answer {
        usage: Option<Usage>,
    }
    serde_json::from_slice::<Answer>(body).ok()?.usage
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(default)]
    choices: Option<Vec<Choice>>,
    #[serde(default, borrow)]
    usage: Option<&'a RawValue>,
    #[serde(default, borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Option<DeltaFacts>,
    #[serde(default)]
    text: Filled,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DeltaFacts {
    content: Filled,
    reasoning: Filled,
    reasoning_content: Filled,
    refusal: Filled,
    tool_calls: Filled,
    function_call: Filled,
}

impl Choice {
    fn has_content(&self) -> bool {
        self.text.0
            || self.delta.as_ref().is_some_and(|d| {
                [&d.content, &d.reasoning, &d.reasoning_content, &d.refusal, &d.tool_calls, &d.function_call]
                    .iter()
                    .any(|part| part.0)
            })
    }
}

/// Whether a value is a non-empty text, list or object.
#[derive(Default)]
struct Filled(bool);

impl<'de> Deserialize<'de> for Filled {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FilledVisitor)
    }
}

struct FilledVisitor;

impl<'de> Visitor<'de> for FilledVisitor {
    type Value = Filled;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Filled, E> {
        Ok(Filled(false))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Filled, E> {
        Ok(Filled(false))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Filled, E> {
        Ok(Filled(false))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Filled, E> {
        Ok(Filled(false))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Filled, E> {
        Ok(Filled(false))
    }

    fn visit_str<E>(self, text: &str) -> Result<Filled, E> {
        Ok(Filled(!text.is_empty()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Filled, A::Error> {
        let mut filled = false;
        while seq.next_element::<IgnoredAny>()?.is_some() {
            filled = true;
        }
        Ok(Filled(filled))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Filled, A::Error> {
        let mut filled = false;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            filled = true;
        }
        Ok(Filled(filled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_chunk_is_no_content() {
        let facts = observe_chunk(r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#);
        assert_eq!(facts, ChunkFacts::default());
    }

    #[test]
    fn every_kind_of_delta_counts() {
        for delta in [
            r#"{"content":"a"}"#,
            r#"{"content":null,"reasoning":"a"}"#,
            r#"{"reasoning_content":"a","new":{"x":[1]}}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":""}}]}"#,
            r#"{"function_call":{"name":"f"}}"#,
            r#"{"refusal":"no"}"#,
        ] {
            let data = format!(r#"{{"choices":[{{"delta":{delta}}},{{"delta":{{"content":""}}}}]}}"#);
            assert_eq!(observe_chunk(&data).content_choices, 1, "{delta}");
        }
        assert_eq!(
            observe_chunk(r#"{"choices":[{"text":"a"},{"text":"b"}],"usage":null}"#).content_choices,
            2
        );
        for delta in ["null", "{}", r#"{"tool_calls":[]}"#, r#"{"content":null}"#, r#"{"content":5}"#] {
            let data = format!(r#"{{"choices":[{{"delta":{delta}}}]}}"#);
            assert_eq!(observe_chunk(&data).content_choices, 0, "{delta}");
        }
    }

    #[test]
    fn usage_chunks_are_told_from_chunks_with_usage() {
        let usage = r#""usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}"#;
        let only = observe_chunk(&format!(r#"{{"choices":[],{usage}}}"#));
        assert!(only.usage_only && only.usage.unwrap().completion_tokens == Some(2));
        let with = observe_chunk(&format!(r#"{{"choices":[{{"delta":{{"content":"a"}}}}],{usage}}}"#));
        assert!(!with.usage_only && with.usage.is_some());
        assert!(!observe_chunk(r#"{"choices":[],"usage":null,"prompt_filter_results":[1]}"#).usage_only);
    }

    #[test]
    fn ends_errors_and_noise() {
        assert!(observe_chunk("[DONE]").done && observe_chunk(" [DONE] ").done);
        for (data, error) in [
            (r#"{"error":{"message":"x"}}"#, Some(None)),
            (r#"{"error":{"message":"x","code":"bad"}}"#, Some(None)),
            (r#"{"error":{"message":"x","code":[1]}}"#, Some(None)),
            (r#"{"error":"x"}"#, Some(None)),
            (
                r#"{"error":{"message":"x","type":"BadRequestError","param":null,"code":400}}"#,
                Some(Some(400)),
            ),
            (r#"{"error":null}"#, None),
            (r#"{"error":{}}"#, None),
        ] {
            assert_eq!(observe_chunk(data).error.map(|facts| facts.status), error, "{data}");
        }
        let odd = observe_chunk(r#"{"choices":[{"text":"a"}],"usage":{"prompt_tokens":-1}}"#);
        assert_eq!((odd.content_choices, odd.usage), (1, None));
        assert_eq!(observe_chunk("{broken"), ChunkFacts::default());
        assert_eq!(observe_chunk("7"), ChunkFacts::default());
    }

    #[test]
    fn a_whole_answers_usage() {
        let body = br#"{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":1}}}"#;
        let usage = usage_of_answer(body).unwrap();
        assert_eq!(
            (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens()),
            (Some(3), Some(2), Some(1))
        );
        assert_eq!(usage_of_answer(b"oops"), None);
        assert_eq!(usage_of_answer(br#"{"usage":null}"#), None);
    }
}
