//! One model's tokenizer and chat template, read from the files that ship with the model.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value as Json;
use tokenizers::pipeline::{EncodeOptions, PipelineTokenizer};

use super::{TokenizeError, template::ChatTemplate};
use crate::{
    domain::{CountSource, Now, PromptCount},
    wire::openai::{Input, Prompt, Request},
};

/// A model's own tokenizer, with its chat template where it has one.
pub(super) struct ModelFiles {
    tokenizer: PipelineTokenizer,
    template: Option<ChatTemplate>,
}

impl ModelFiles {
    /// Reads `tokenizer.json` and, where present, `tokenizer_config.json` and `chat_template.jinja`.
    pub(super) fn load(folder: &Path, clock: Arc<dyn Now>) -> Result<Self, TokenizeError> {
        let path = folder.join("tokenizer.json");
        let unusable = |reason: String| TokenizeError::Unusable { path: path.clone(), reason };
        let canonical = tokenizers::canonicalize_str(&read(&path)?).map_err(|e| unusable(e.to_string()))?;
        let tokenizer = tokenizers::from_json(&canonical).map_err(|e| unusable(e.to_string()))?;
        Ok(Self { tokenizer, template: load_template(folder, clock)? })
    }

    /// Counts a request's prompt tokens as its engine would; absent where there is no template for
    /// the messages, or it refuses them.
    pub(super) fn count(&self, request: &Request) -> Option<PromptCount> {
        match &request.input {
            Input::Messages(messages) => {
                let text = self.template.as_ref()?.render(messages, &request.template).ok()?;
                Some(PromptCount::one(self.tokens(&text, false)?, CountSource::Tokenizer))
            }
            Input::Prompts(prompts) => {
                let none = PromptCount::one(0, CountSource::Tokenizer);
                prompts.iter().try_fold(none, |sum, prompt| {
                    let tokens = match prompt {
                        Prompt::Text(text) => self.tokens(text, true)?,
                        Prompt::Tokens(ids) => u32::try_from(ids.len()).ok()?,
                    };
                    let longest_tokens = sum.longest_tokens.max(tokens);
                    Some(PromptCount { tokens: sum.tokens.saturating_add(tokens), longest_tokens, ..sum })
                })
            }
            Input::Opaque => None,
        }
    }

    fn tokens(&self, text: &str, add_special_tokens: bool) -> Option<u32> {
        let options = EncodeOptions { add_special_tokens, ..EncodeOptions::default() };
        let mut ids = Vec::with_capacity(text.len() / 4 + 8);
        self.tokenizer.encode_into(text, &options, &mut ids).ok()?;
        u32::try_from(ids.len()).ok()
    }
}

fn read(path: &PathBuf) -> Result<String, TokenizeError> {
    fs::read_to_string(path).map_err(|source| TokenizeError::Read { path: path.clone(), source })
}

fn load_template(folder: &Path, clock: Arc<dyn Now>) -> Result<Option<ChatTemplate>, TokenizeError> {
    let config_path = folder.join("tokenizer_config.json");
    let config: Json = if config_path.exists() {
        serde_json::from_str(&read(&config_path)?)
            .map_err(|e| TokenizeError::Unusable { path: config_path.clone(), reason: e.to_string() })?
    } else {
        Json::Null
    };
    let jinja_path = folder.join("chat_template.jinja");
    let (path, templates) = if jinja_path.exists() {
        (jinja_path.clone(), vec![(String::from("default"), read(&jinja_path)?)])
    } else {
        (config_path, templates_of(&config))
    };
    if templates.is_empty() {
        return Ok(None);
    }
    ChatTemplate::new(templates, special_tokens_of(&config), clock)
        .map(Some)
        .map_err(|source| TokenizeError::Template { path, source: Box::new(source) })
}

/// Reads `chat_template`: one text, or a list of named ones.
fn templates_of(config: &Json) -> Vec<(String, String)> {
    match config.get("chat_template") {
        Some(Json::String(source)) => vec![(String::from("default"), source.clone())],
        Some(Json::Array(named)) => named
            .iter()
            .filter_map(|entry| {
                Some((entry.get("name")?.as_str()?.to_owned(), entry.get("template")?.as_str()?.to_owned()))
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// Reads the members that end in `_token`: a text, or an object with `content`.
fn special_tokens_of(config: &Json) -> BTreeMap<String, String> {
    let members = config.as_object().into_iter().flatten();
    members
        .filter(|(name, _)| name.ends_with("_token"))
        .filter_map(|(name, value)| {
            let token = value.as_str().or_else(|| value.get("content").and_then(Json::as_str))?;
            Some((name.clone(), token.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn templates_and_tokens_are_found_in_either_form() {
        let config = json!({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}],
            "bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": null, "add_bos_token": true});
        assert_eq!(templates_of(&config).len(), 2);
        let tokens = special_tokens_of(&config);
        assert_eq!(
            (tokens["bos_token"].as_str(), tokens["eos_token"].as_str(), tokens.len()),
            ("<s>", "</s>", 2)
        );
        assert_eq!(templates_of(&json!({"chat_template": "x"})), [("default".to_owned(), "x".to_owned())]);
    }
}
