//! Renders a request's messages by a model's chat template, as its serving engine does.

use std::{collections::BTreeMap, sync::Arc};

use minijinja::{Environment, Error, ErrorKind, Value};
use serde_json::{Map, Value as Json};

use super::python;
use crate::domain::Now;

/// A model's chat template with its special tokens.
pub(super) struct ChatTemplate {
    env: Environment<'static>,
    special_tokens: BTreeMap<String, String>,
    /// Whether the template walks through content parts; otherwise they are joined to one text.
    walks_parts: bool,
    has_tool_use: bool,
}

/// The template used unless the request has tools and there is one for them.
const DEFAULT: &str = "default";
/// The template for requests with tools, where a tokenizer ships one apart.
const TOOL_USE: &str = "tool_use";

impl ChatTemplate {
    /// Compiles the named templates; `special_tokens` are handed to them by role (`bos_token`, …).
    pub(super) fn new(
        templates: Vec<(String, String)>,
        special_tokens: BTreeMap<String, String>,
        clock: Arc<dyn Now>,
    ) -> Result<Self, Error> {
        let mut env = Environment::new();
        env.set_trim_blocks(true);
        env.set_lstrip_blocks(true);
        env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        env.add_filter("tojson", python::tojson);
        env.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        env.add_function("strftime_now", move |format: String| python::strftime(&format, clock.now()));
        let mut walks_parts = false;
        let mut has_tool_use = false;
        for (name, source) in templates {
            walks_parts |= walks_content_parts(&source);
            has_tool_use |= name == TOOL_USE;
            env.add_template_owned(name, without_generation_marks(&source))?;
        }
        Ok(Self { env, special_tokens, walks_parts, has_tool_use })
    }

    /// Renders the messages; `members` are the request's own `tools`, `documents`,
    /// `add_generation_prompt`, `continue_final_message` and `chat_template_kwargs`.
    pub(super) fn render(&self, messages: &[Json], members: &Map<String, Json>) -> Result<String, Error> {
        let messages: Vec<Json> = messages.iter().map(|message| self.prepared(message)).collect();
        let mut context: Map<String, Json> = Map::new();
        for (role, token) in &self.special_tokens {
            context.insert(role.clone(), Json::from(token.as_str()));
        }
        context.insert("messages".into(), Json::Array(messages));
        context.insert("add_generation_prompt".into(), Json::Bool(true));
        context.insert("tools".into(), Json::Null);
        for (name, value) in members {
            match value {
                Json::Object(kwargs) if name == "chat_template_kwargs" => context.extend(kwargs.clone()),
                _ => {
                    context.insert(name.clone(), value.clone());
                }
            }
        }
        let tools = matches!(context.get("tools"), Some(Json::Array(tools)) if !tools.is_empty());
        if !tools {
            context.insert("tools".into(), Json::Null);
        }
        let name = if tools && self.has_tool_use { TOOL_USE } else { DEFAULT };
        self.env.get_template(name)?.render(Value::from_serialize(&context))
    }

    /// Brings a message into the form that engines hand to templates (vLLM 0.32's
    /// `entrypoints/chat_utils.py`): parts joined unless the template walks them, no null content,
    /// tool-call arguments as objects.
    fn prepared(&self, message: &Json) -> Json {
        let mut message = message.clone();
        if let Some(content) = message.get_mut("content") {
            match content {
                Json::Null => *content = Json::from(""),
                Json::Array(parts) if !self.walks_parts => {
                    let texts: Vec<&str> = parts
                        .iter()
                        .filter_map(|part| part.as_str().or_else(|| part.get("text").and_then(Json::as_str)))
                        .collect();
                    *content = Json::from(texts.join("\n"));
                }
                _ => {}
            }
        }
        let calls = message.get_mut("tool_calls").and_then(Json::as_array_mut);
        for arguments in
            calls.into_iter().flatten().filter_map(|call| call.pointer_mut("/function/arguments"))
        {
            match arguments {
                Json::Null => *arguments = Json::Object(Map::new()),
                Json::String(text) if text.is_empty() => *arguments = Json::Object(Map::new()),
                Json::String(text) => {
                    if let Ok(object @ Json::Object(_)) = serde_json::from_str(text) {
                        *arguments = object;
                    }
                }
                _ => {}
            }
        }
        message
    }
}

/// Returns whether a `for` of the template iterates over a message's content.
fn walks_content_parts(source: &str) -> bool {
    source.split("{%").skip(1).any(|tag| {
        let tag = tag.split("%}").next().unwrap_or_default().trim_start_matches(['-', '+']).trim_start();
        tag.strip_prefix("for ")
            .and_then(|rest| rest.split_once(" in "))
            .is_some_and(|(_, subject)| subject.contains("content"))
    })
}

/// Turns the training-only `generation` blocks into comments that trim the same whitespace.
fn without_generation_marks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let Some(length) = rest[open..].find("%}") else { break };
        let tag = &rest[open + 2..open + length];
        let name = tag.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        out.push_str(&rest[..open]);
        if matches!(name, "generation" | "endgeneration") {
            out.push_str("{#");
            out.push_str(&tag.replace(name, ""));
            out.push_str("#}");
        } else {
            out.push_str(&rest[open..open + length + 2]);
        }
        rest = &rest[open + length + 2..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::Timestamp;

    struct Noon;
    impl Now for Noon {
        fn now(&self) -> Timestamp {
            Timestamp::from_unix_us(1_764_460_800_000_000)
        }
    }

    fn render(source: &str, messages: Json, members: Json) -> Result<String, Error> {
        let tokens = BTreeMap::from([("bos_token".to_owned(), "<s>".to_owned())]);
        let template = ChatTemplate::new(vec![(DEFAULT.into(), source.into())], tokens, Arc::new(Noon))?;
        template.render(messages.as_array().unwrap(), members.as_object().unwrap())
    }

    #[test]
    fn blocks_are_trimmed_and_python_methods_work() {
        let source = "{{ bos_token }}{% for m in messages %}\n    {% if m.role.startswith('u') %}\nU:{{ m['content'].strip() }}\n    {% endif %}\n{% endfor %}\n{% if add_generation_prompt %}A:{% endif %}";
        let out = render(source, json!([{"role": "user", "content": " hi "}]), json!({})).unwrap();
        assert_eq!(out, "<s>U:hi\nA:");
        let out = render(
            source,
            json!([{"role": "user", "content": "x"}]),
            json!({"add_generation_prompt": false}),
        );
        assert_eq!(out.unwrap(), "<s>U:x\n");
    }

    #[test]
    fn tools_keep_their_order_and_pythons_spacing() {
        let source = "{% for t in tools %}{{ t | tojson }}{% endfor %}";
        let tool =
            json!({"type": "function", "function": {"name": "f", "parameters": {"z": 1, "a": [true, "<"]}}});
        let out = render(source, json!([{"role": "user"}]), json!({ "tools": [tool] })).unwrap();
        assert_eq!(
            out,
            r#"{"type": "function", "function": {"name": "f", "parameters": {"z": 1, "a": [true, "<"]}}}"#
        );
    }

    #[test]
    fn tool_arguments_are_objects_and_parts_are_joined() {
        let source = "{% for m in messages %}{{ m.content }}|{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}";
        let messages = json!([
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"function": {"name": "f", "arguments": "{\"x\":1,\"y\":[2]}"}},
                {"function": {"name": "g", "arguments": ""}}]}]);
        assert_eq!(
            render(source, messages, json!({})).unwrap(),
            r#"a
b||{"x": 1, "y": [2]}{}"#
        );
    }

    #[test]
    fn a_template_that_walks_parts_gets_them() {
        let source =
            "{%- for m in messages %}{%- for p in m['content'] %}{{ p.type }};{%- endfor %}{%- endfor %}";
        let messages =
            json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}]);
        assert_eq!(render(source, messages, json!({})).unwrap(), "text;image_url;");
        assert!(!walks_content_parts("{% if '</think>' in content %}{% endif %}{% for x in messages %}"));
    }

    #[test]
    fn kwargs_reach_the_template_and_exceptions_come_back() {
        let source = "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>{% else %}{{ raise_exception('no ' ~ strftime_now('%Y')) }}{% endif %}";
        let off = json!({"chat_template_kwargs": {"enable_thinking": false}});
        assert_eq!(render(source, json!([]), off).unwrap(), "<think>\n\n</think>");
        assert!(render(source, json!([]), json!({})).unwrap_err().to_string().contains("no 2025"));
    }

    #[test]
    fn generation_marks_and_loop_controls_are_understood() {
        let source = "{% for m in messages %}\n{% if m.skip %}{% continue %}{% endif %}\n{%- generation -%}\n {{ m.content }}\n{%- endgeneration %}\n{% endfor %}";
        let messages = json!([{"content": "a"}, {"content": "b", "skip": true}, {"content": "c"}]);
        assert_eq!(render(source, messages, json!({})).unwrap(), "ac");
    }
}
