//! The parts of a request that routing, tokenising and the simulated engine look at.

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::message;
use crate::{
    domain::{Modalities, Needs},
    wire::body::{BodyError, Members},
};

/// Which members a body is expected to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `messages`.
    Chat,
    /// `prompt`.
    Completion,
    /// Neither is looked at: the request is only proxied.
    Opaque,
}

/// Why a request body was refused.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// It is not a JSON object.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// A member is missing.
    #[error("`{param}` is required")]
    Missing {
        /// The member.
        param: &'static str,
    },
    /// A member has a value that cannot be.
    #[error("`{param}` must be {expected}")]
    Bad {
        /// The member's path.
        param: String,
        /// What it must be.
        expected: &'static str,
    },
}

impl RequestError {
    pub(super) fn bad(param: impl Into<String>, expected: &'static str) -> Self {
        Self::Bad { param: param.into(), expected }
    }

    /// Returns the member at fault, where there is one.
    #[must_use]
    pub fn param(&self) -> Option<&str> {
        match self {
            Self::Body(BodyError::MemberNotAnObject { key }) => Some(key),
            Self::Body(BodyError::NotAnObject(_)) => None,
            Self::Missing { param } => Some(param),
            Self::Bad { param, .. } => Some(param),
        }
    }
}

/// One prompt of a completion request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Text.
    Text(String),
    /// Token ids of the model's own tokenizer.
    Tokens(Vec<u32>),
}

/// What the model is asked to continue.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Chat messages as sent; each is an object with a `role`.
    Messages(Vec<Value>),
    /// One or more prompts.
    Prompts(Vec<Prompt>),
    /// Not looked at ([`Shape::Opaque`]).
    Opaque,
}

/// A request, as far as it is looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The named model.
    pub model: String,
    /// What to continue.
    pub input: Input,
    /// What it demands of a model.
    pub needs: Needs,
    /// Whether the answer is streamed.
    pub stream: bool,
    /// `stream_options.include_usage`.
    pub include_usage: bool,
    /// `max_completion_tokens`, else `max_tokens`.
    pub max_tokens: Option<u32>,
    /// Answers asked for (`n`), at least 1.
    pub n: u32,
    /// Engine priority; smaller is sooner.
    pub priority: i32,
    /// Keep generating past the end token (vLLM's extension).
    pub ignore_eos: bool,
    /// `user`, where it is a text.
    pub user: Option<String>,
    /// `metadata.ttft_target_ms`: a positive number, or one written as text.
    pub ttft_target_ms: Option<f64>,
    /// `metadata.task`.
    pub task: Option<String>,
    /// Members that a chat template reads besides the messages: `tools`, `documents`,
    /// `add_generation_prompt`, `continue_final_message`, `chat_template_kwargs`.
    pub template: Map<String, Value>,
}

/// Members handed on to the chat template.
const TEMPLATE_MEMBERS: [&str; 5] =
    ["tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template_kwargs"];

/// Members that ask for structured output when neither null nor empty (vLLM's extensions).
const STRUCTURED_MEMBERS: [&str; 6] = [
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "guided_decoding",
];

impl Request {
    /// Reads a body of the given shape.
    ///
    /// # Errors
    /// [`RequestError`] naming the member at fault.
    pub fn parse(body: &[u8], shape: Shape) -> Result<Self, RequestError> {
        let members = Members::scan(body)?;
        let model: String =
            read(&members, "model", "a text")?.ok_or(RequestError::Missing { param: "model" })?;
        let mut needs = Needs::default();
        let input = read_input(&members, shape, &mut needs.modalities)?;
        let mut template = Map::new();
        if shape == Shape::Chat {
            needs.tools = asks_for_tools(&members);
            for key in TEMPLATE_MEMBERS {
                if let Some(value) = read::<Value>(&members, key, "JSON")? {
                    template.insert(key.to_owned(), value);
                }
            }
        }
        needs.structured_output = asks_for_structure(&members);
        let metadata = read_metadata(&members)?;
        Ok(Self {
            model,
            input,
            needs,
            stream: read(&members, "stream", "true or false")?.unwrap_or(false),
            include_usage: read_include_usage(&members)?,
            max_tokens: match whole(&members, "max_completion_tokens")? {
                Some(tokens) => Some(tokens),
                None => whole(&members, "max_tokens")?,
            },
            n: match whole(&members, "n")? {
                Some(0) => return Err(RequestError::bad("n", "a whole number from 1")),
                given => given.unwrap_or(1),
            },
            priority: read(&members, "priority", "a whole number")?.unwrap_or(0),
            ignore_eos: read(&members, "ignore_eos", "true or false")?.unwrap_or(false),
            user: lenient(&members, "user"),
            ttft_target_ms: metadata.0,
            task: metadata.1,
            template,
        })
    }

    /// Returns all text of the messages or prompts, one line feed between; what features are made of.
    #[must_use]
    pub fn prompt_text(&self) -> String {
        let mut out = String::new();
        match &self.input {
            Input::Messages(messages) => message::text(messages, &mut out),
            Input::Prompts(prompts) => {
                for prompt in prompts {
                    if let Prompt::Text(text) = prompt {
                        if !out.is_empty() {
                            out.push('\n');
                        }
                        out.push_str(text);
                    }
                }
            }
            Input::Opaque => {}
        }
        out
    }
}

/// Reads a member; null counts as absent.
fn read<'a, T: Deserialize<'a>>(
    members: &Members<'a>,
    key: &'static str,
    expected: &'static str,
) -> Result<Option<T>, RequestError> {
    match members.last(key) {
        None => Ok(None),
        Some(raw) if raw.get() == "null" => Ok(None),
        Some(raw) => serde_json::from_str(raw.get()).map(Some).map_err(|_| RequestError::bad(key, expected)),
    }
}

/// Reads a member, taking one of another type as absent.
fn lenient<'a, T: Deserialize<'a>>(members: &Members<'a>, key: &'static str) -> Option<T> {
    read(members, key, "").ok().flatten()
}

/// Reads a count; `3.0` is taken as 3.
fn whole(members: &Members<'_>, key: &'static str) -> Result<Option<u32>, RequestError> {
    let Some(number) = read::<f64>(members, key, "a whole number from 0")? else { return Ok(None) };
    if number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number) {
        Ok(Some(number as u32))
    } else {
        Err(RequestError::bad(key, "a whole number from 0"))
    }
}

fn read_input(
    members: &Members<'_>,
    shape: Shape,
    modalities: &mut Modalities,
) -> Result<Input, RequestError> {
    match shape {
        Shape::Opaque => Ok(Input::Opaque),
        Shape::Chat => {
            let messages: Vec<Value> = read(members, "messages", "a list of messages")?
                .ok_or(RequestError::Missing { param: "messages" })?;
            message::check(&messages, modalities)?;
            Ok(Input::Messages(messages))
        }
        Shape::Completion => {
            let prompt = members
                .last("prompt")
                .filter(|raw| raw.get() != "null")
                .ok_or(RequestError::Missing { param: "prompt" })?;
            read_prompts(prompt).map(Input::Prompts)
        }
    }
}

fn read_prompts(raw: &RawValue) -> Result<Vec<Prompt>, RequestError> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(String),
        Texts(Vec<String>),
        Tokens(Vec<u32>),
        TokenLists(Vec<Vec<u32>>),
    }
    let expected = "a text, a list of token ids, or a list of either";
    match serde_json::from_str(raw.get()) {
        Ok(Written::Text(text)) => Ok(vec![Prompt::Text(text)]),
        Ok(Written::Texts(texts)) if !texts.is_empty() => Ok(texts.into_iter().map(Prompt::Text).collect()),
        Ok(Written::Tokens(tokens)) if !tokens.is_empty() => Ok(vec![Prompt::Tokens(tokens)]),
        Ok(Written::TokenLists(lists)) if lists.iter().all(|list| !list.is_empty()) => {
            Ok(lists.into_iter().map(Prompt::Tokens).collect())
        }
        _ => Err(RequestError::bad("prompt", expected)),
    }
}

fn asks_for_tools(members: &Members<'_>) -> bool {
    ["tools", "functions"]
        .iter()
        .any(|key| lenient::<Vec<serde::de::IgnoredAny>>(members, key).is_some_and(|tools| !tools.is_empty()))
}

fn asks_for_structure(members: &Members<'_>) -> bool {
    let format: Option<Value> = lenient(members, "response_format");
    let formatted = format
        .as_ref()
        .and_then(|format| format.get("type").and_then(Value::as_str))
        .is_some_and(|kind| kind != "text");
    formatted || STRUCTURED_MEMBERS.iter().any(|key| lenient::<serde::de::IgnoredAny>(members, key).is_some())
}

fn read_include_usage(members: &Members<'_>) -> Result<bool, RequestError> {
    let Some(options) = read::<Members<'_>>(members, "stream_options", "an object or null")? else {
        return Ok(false);
    };
    Ok(read::<bool>(&options, "include_usage", "true or false")
        .map_err(|_| RequestError::bad("stream_options.include_usage", "true or false"))?
        .unwrap_or(false))
}

fn read_metadata(members: &Members<'_>) -> Result<(Option<f64>, Option<String>), RequestError> {
    let Some(metadata) = lenient::<Map<String, Value>>(members, "metadata") else { return Ok((None, None)) };
    let bad = || RequestError::bad("metadata.ttft_target_ms", "a positive number");
    let target = match metadata.get("ttft_target_ms") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.trim().parse().map_err(|_| bad())?),
        Some(value) => Some(value.as_f64().ok_or_else(bad)?),
    };
    if target.is_some_and(|ms: f64| !(ms.is_finite() && ms > 0.0)) {
        return Err(bad());
    }
    Ok((target, metadata.get("task").and_then(Value::as_str).map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(body: &str) -> Result<Request, RequestError> {
        Request::parse(body.as_bytes(), Shape::Chat)
    }

    #[test]
    fn reads_a_full_chat_request() {
        let request = chat(
            r#"{"model":"auto","messages":[{"role":"system","content":"s"},{"role":"user","content":[
            {"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:x"}}]}],
            "tools":[{"type":"function"}],"response_format":{"type":"json_schema"},"stream":true,
            "stream_options":{"include_usage":true,"x":1},"max_tokens":9,"max_completion_tokens":7.0,"n":2,
            "priority":-3,"metadata":{"ttft_target_ms":"250","task":"qa"},"user":"u","ignore_eos":true,"new":{}}"#,
        )
        .unwrap();
        assert_eq!(request.needs.modalities, ["image".to_owned()].into());
        assert!(request.needs.tools && request.needs.structured_output);
        assert!(request.stream && request.include_usage && request.ignore_eos);
        assert_eq!((request.max_tokens, request.n, request.priority), (Some(7), 2, -3));
        assert_eq!((request.ttft_target_ms, request.task.as_deref()), (Some(250.0), Some("qa")));
        assert_eq!(request.prompt_text(), "s\na");
        assert_eq!(request.template.keys().collect::<Vec<_>>(), ["tools"]);
    }

    #[test]
    fn absent_and_null_members_have_defaults() {
        let request = chat(
            r#"{"model":"m","messages":[{"role":"user","content":null}],"stream":null,"max_tokens":null,"n":null,
            "tools":[],"functions":null,"response_format":{"type":"text"},"stream_options":null,"metadata":7}"#,
        )
        .unwrap();
        assert!(!request.stream && !request.include_usage && request.needs == Needs::default());
        assert_eq!(
            (request.max_tokens, request.n, request.priority, request.ttft_target_ms),
            (None, 1, 0, None)
        );
    }

    #[test]
    fn the_last_of_two_members_counts() {
        let request = chat(r#"{"model":"a","messages":[{"role":"user"}],"model":"b"}"#).unwrap();
        assert_eq!(request.model, "b");
    }

    #[test]
    fn bad_members_are_named() {
        let with = |rest: &str| format!(r#"{{"model":"m","messages":[{{"role":"user"}}],{rest}}}"#);
        for (body, param) in [
            (r#"{"messages":[{"role":"user"}]}"#.into(), Some("model")),
            (r#"{"model":3,"messages":[]}"#.into(), Some("model")),
            (r#"{"model":"m"}"#.into(), Some("messages")),
            (r#"{"model":"m","messages":{}}"#.into(), Some("messages")),
            (with(r#""stream":"yes""#), Some("stream")),
            (with(r#""n":0"#), Some("n")),
            (with(r#""n":1.5"#), Some("n")),
            (with(r#""max_tokens":-1"#), Some("max_tokens")),
            (with(r#""max_tokens":1e99"#), Some("max_tokens")),
            (with(r#""stream_options":[]"#), Some("stream_options")),
            (with(r#""stream_options":{"include_usage":1}"#), Some("stream_options.include_usage")),
            (with(r#""metadata":{"ttft_target_ms":0}"#), Some("metadata.ttft_target_ms")),
            (with(r#""metadata":{"ttft_target_ms":"soon"}"#), Some("metadata.ttft_target_ms")),
            (with(r#""priority":"high""#), Some("priority")),
            ("[1]".into(), None),
            ("{".into(), None),
        ] {
            let error = chat(&body).unwrap_err();
            assert_eq!(error.param(), param, "{body}: {error}");
        }
    }

    #[test]
    fn reads_every_form_of_prompt() {
        let prompts = |prompt: &str| {
            let body = format!(r#"{{"model":"m","prompt":{prompt}}}"#);
            Request::parse(body.as_bytes(), Shape::Completion).map(|request| request.input)
        };
        let text = |t: &str| Prompt::Text(t.to_owned());
        assert_eq!(prompts(r#""a""#).unwrap(), Input::Prompts(vec![text("a")]));
        assert_eq!(prompts(r#"["a","b"]"#).unwrap(), Input::Prompts(vec![text("a"), text("b")]));
        assert_eq!(prompts("[1,2]").unwrap(), Input::Prompts(vec![Prompt::Tokens(vec![1, 2])]));
        assert_eq!(
            prompts("[[1],[2,3]]").unwrap(),
            Input::Prompts(vec![Prompt::Tokens(vec![1]), Prompt::Tokens(vec![2, 3])])
        );
        for bad in ["[]", "[[]]", "3", "[-1]", r#"["a",1]"#, "null", "{}"] {
            assert_eq!(prompts(bad).unwrap_err().param(), Some("prompt"), "{bad}");
        }
    }

    #[test]
    fn an_opaque_body_needs_only_a_model() {
        let request = Request::parse(br#"{"model":"m","input":[1,"x"]}"#, Shape::Opaque).unwrap();
        assert_eq!((request.input, request.model.as_str()), (Input::Opaque, "m"));
    }
}
