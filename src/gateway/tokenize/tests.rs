//! Counting on the small tokenizer of `tests/data/tokenizer`: bytes, the merges of " hello" and
//! "user", and two special tokens.

use std::{path::Path, sync::Arc};

use serde_json::{Value, json};

use super::*;
use crate::{
    domain::{CountSource, Now, PromptCount, Timestamp},
    wire::openai::{Request, Shape},
};

struct Noon;
impl Now for Noon {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_us(1_764_460_800_000_000)
    }
}

fn load(configs: &[TokenizerConfig]) -> Result<Tokenizers, TokenizeError> {
    let clock: Arc<dyn Now> = Arc::new(Noon);
    Tokenizers::load(configs, &clock)
}

fn files() -> TokenizerConfig {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokenizer");
    TokenizerConfig { files: Some(folder), engine: false }
}

fn count(body: &Value, shape: Shape) -> PromptCount {
    let bytes = body.to_string();
    let request = Request::parse(bytes.as_bytes(), shape).unwrap();
    load(&[files()]).unwrap().count(&request, bytes.len(), None)[0]
}

fn exact(tokens: u32) -> PromptCount {
    PromptCount::one(tokens, CountSource::Tokenizer)
}

#[test]
fn chats_are_counted_after_their_template() {
    let chat = json!({"model": "m", "messages": [{"role": "user", "content": "hello hello é"}]});
    // <|im_start|> user \n | hello " hello" " " é(2) | <|im_end|> \n | <|im_start|> a s s i s t a n t \n
    assert_eq!(count(&chat, Shape::Chat), exact(3 + 5 + 2 + 11));
}

#[test]
fn tools_are_counted_with_pythons_spacing() {
    let plain = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]});
    let mut with_tool = plain.clone();
    with_tool["tools"] = json!([{"a": 1, "b": [2, 3]}]);
    let tool = r#"{"a": 1, "b": [2, 3]}"#;
    // <|im_start|> "system" (6) \n, the tool byte by byte, \n, <|im_end|> \n; spaces join no merge here.
    let extra = u32::try_from(1 + 6 + 1 + tool.len() + 1 + 2).unwrap();
    assert_eq!(count(&with_tool, Shape::Chat).tokens - count(&plain, Shape::Chat).tokens, extra);
}

#[test]
fn completions_are_counted_as_they_stand() {
    assert_eq!(count(&json!({"model": "m", "prompt": "hello user"}), Shape::Completion), exact(3));
    let several = |tokens, longest_tokens| PromptCount { longest_tokens, ..exact(tokens) };
    let texts = json!({"model": "m", "prompt": ["hello user", "user"]});
    assert_eq!(count(&texts, Shape::Completion), several(4, 3));
    assert_eq!(count(&json!({"model": "m", "prompt": [[1, 2], [3]]}), Shape::Completion), several(3, 2));
}

#[test]
fn without_files_bytes_are_divided_and_say_so() {
    let tokenizers = load(&[TokenizerConfig::default()]).unwrap();
    let counted = |body: &str, shape| {
        let request = Request::parse(body.as_bytes(), shape).unwrap();
        tokenizers.count(&request, body.len(), None)[0]
    };
    let body = r#"{"model":"m","messages":[{"role":"user","content":"12345678"}]}"#;
    assert_eq!(counted(body, Shape::Chat), PromptCount::one(2 + 5, CountSource::Bytes));
    assert_eq!(counted(r#"{"model":"m","prompt":[7,8]}"#, Shape::Completion), exact(2));
    let several = counted(r#"{"model":"m","prompt":["12345678","1234"]}"#, Shape::Completion);
    assert_eq!((several.tokens, several.longest_tokens, several.source), (3, 2, CountSource::Bytes));
    let opaque = r#"{"model":"m","input":"0123456789"}"#;
    let tokens = u32::try_from(opaque.len().div_ceil(4)).unwrap();
    assert_eq!(counted(opaque, Shape::Opaque), PromptCount::one(tokens, CountSource::Bytes));
}

#[test]
fn only_the_wanted_model_is_counted_exactly() {
    let tokenizers = load(&[files(), files()]).unwrap();
    let request = Request::parse(br#"{"model":"m","prompt":"hello"}"#, Shape::Completion).unwrap();
    let sources: Vec<_> = tokenizers.count(&request, 30, Some(1)).iter().map(|count| count.source).collect();
    assert_eq!(sources, [CountSource::Bytes, CountSource::Tokenizer]);
}

#[test]
fn missing_or_broken_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let config = TokenizerConfig { files: Some(folder.path().to_owned()), engine: false };
    let error = |config: &TokenizerConfig| load(std::slice::from_ref(config)).err().unwrap().to_string();
    assert!(error(&config).contains("tokenizer.json; `tokenizer.files` names a folder"));
    std::fs::write(folder.path().join("tokenizer.json"), "{}").unwrap();
    assert!(error(&config).contains("cannot be used"));
    let good = files().files.unwrap().join("tokenizer.json");
    std::fs::copy(good, folder.path().join("tokenizer.json")).unwrap();
    std::fs::write(folder.path().join("chat_template.jinja"), "{% if %}").unwrap();
    assert!(error(&config).contains("does not compile"));
}

/// Real files are used where `BEAR_TOKENIZER` names a folder with Qwen3's tokenizer.
#[test]
fn a_real_tokenizer_counts_what_its_reference_counts() {
    let Some(folder) = std::env::var_os("BEAR_TOKENIZER") else {
        eprintln!("SKIPPED: BEAR_TOKENIZER is not set");
        return;
    };
    let config = TokenizerConfig { files: Some(folder.into()), engine: false };
    let tokenizers = load(&[config]).unwrap();
    let body = br#"{"model":"m","messages":[{"role":"user","content":"Hello, world!"}]}"#;
    let request = Request::parse(body, Shape::Chat).unwrap();
    // <|im_start|> user \n Hello , " world" ! <|im_end|> \n <|im_start|> assistant \n
    assert_eq!(tokenizers.count(&request, body.len(), None)[0], exact(12));
}
