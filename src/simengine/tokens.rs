//! Text to token ids without a model's tokenizer: deterministic, about four bytes of English a token,
//! stable under concatenation at word boundaries, so that prefix caching by block hashes works as with
//! a real one.

use std::sync::Arc;

use serde_json::Value;

/// Ids below this are text pieces, above it special tokens (Qwen3's vocabulary without its specials).
pub const TEXT_VOCABULARY: u32 = 151_643;
/// Opens a message.
pub const MESSAGE_START: u32 = 151_644;
/// Ends a message, and an answer.
pub const MESSAGE_END: u32 = 151_645;
/// Tokens that open an answer.
pub const OPENING_TOKENS: usize = 3;
/// Longest text piece, bytes, its leading blank included.
pub const PIECE_BYTES: usize = 6;
/// Longest run of one sign that makes one piece, characters.
const SIGN_RUN: usize = 16;

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

fn fnv(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(seed, |h, b| (h ^ u64::from(*b)).wrapping_mul(FNV_PRIME))
}

fn piece_id(piece: &str) -> u32 {
    (fnv(FNV_OFFSET, piece.as_bytes()) % u64::from(TEXT_VOCABULARY)) as u32
}

/// Appends the ids of `text`.
///
/// A piece is a word with the blank before it, or the next [`PIECE_BYTES`] bytes of a longer word, or a
/// run of one sign.
pub fn push_text(text: &str, ids: &mut Vec<u32>) {
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(piece_len(rest));
        ids.push(piece_id(piece));
        rest = after;
    }
}

/// Returns the bytes of the first piece of a text that is not empty.
fn piece_len(text: &str) -> usize {
    let mut chars = text.char_indices().peekable();
    let Some((_, first)) = chars.next() else { return 0 };
    let opens_word = first == ' ' && chars.peek().is_some_and(|(_, c)| c.is_alphanumeric());
    if !first.is_alphanumeric() && !opens_word {
        return first.len_utf8() * text.chars().take(SIGN_RUN).take_while(|c| *c == first).count();
    }
    chars
        .take_while(|(at, c)| c.is_alphanumeric() && at + c.len_utf8() <= PIECE_BYTES)
        .last()
        .map_or(first.len_utf8(), |(at, c)| at + c.len_utf8())
}

/// Returns the ids of `text`.
#[must_use]
pub fn text_tokens(text: &str) -> Vec<u32> {
    let mut ids = Vec::with_capacity(text.len() / 4 + 1);
    push_text(text, &mut ids);
    ids
}

/// Returns the ids of a chat: for each message its start, role, a line end, the content, its end and a
/// line end (five tokens beside the content), then the opening of the answer (three). Tools stand before
/// the messages as JSON, tool calls after a message's content.
///
/// A part of the content that is not text counts `image_tokens`.
#[must_use]
pub fn chat_tokens(messages: &[Value], tools: Option<&Value>, image_tokens: u32) -> Vec<u32> {
    let mut ids = Vec::new();
    if let Some(tools) = tools.filter(|t| !t.is_null()) {
        push_message("tools", &mut ids, |ids| push_text(&tools.to_string(), ids));
    }
    for message in messages {
        let role = message.get("role").and_then(Value::as_str).unwrap_or("user");
        push_message(role, &mut ids, |ids| {
            push_content(message.get("content"), image_tokens, ids);
            if let Some(calls) = message.get("tool_calls").filter(|c| !c.is_null()) {
                push_text(&calls.to_string(), ids);
            }
        });
    }
    push_opening("assistant", &mut ids);
    ids
}

fn push_message(role: &str, ids: &mut Vec<u32>, content: impl FnOnce(&mut Vec<u32>)) {
    push_opening(role, ids);
    content(ids);
    ids.push(MESSAGE_END);
    ids.push(piece_id("\n"));
}

fn push_opening(role: &str, ids: &mut Vec<u32>) {
    ids.extend([MESSAGE_START, piece_id(role), piece_id("\n")]);
}

fn push_content(content: Option<&Value>, image_tokens: u32, ids: &mut Vec<u32>) {
    match content {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => push_text(text, ids),
        Some(Value::Array(parts)) => {
            for part in parts {
                push_part(part, image_tokens, ids);
            }
        }
        Some(other) => push_text(&other.to_string(), ids),
    }
}

fn push_part(part: &Value, image_tokens: u32, ids: &mut Vec<u32>) {
    if let Some(text) = part.as_str().or_else(|| part.get("text").and_then(Value::as_str)) {
        push_text(text, ids);
        return;
    }
    let seed = fnv(FNV_OFFSET, part.to_string().as_bytes());
    ids.extend((0..image_tokens).map(|i| (fnv(seed, &i.to_le_bytes()) % u64::from(TEXT_VOCABULARY)) as u32));
}

/// Returns one hash a full block of `block_size` ids, each chained to the one before, so that equal
/// hashes mean equal prefixes.
#[must_use]
pub fn block_hashes(ids: &[u32], block_size: u32) -> Arc<[u64]> {
    ids.chunks_exact(block_size.max(1) as usize)
        .scan(FNV_OFFSET, |chain, block| {
            *chain = block.iter().fold(*chain, |h, id| fnv(h, &id.to_le_bytes()));
            Some(*chain)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pieces_are_words_with_their_blank_signs_and_parts_of_long_words() {
        let pieces = |text: &str| {
            let (mut rest, mut out) = (text, Vec::new());
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(piece_len(rest));
                out.push(piece.to_string());
                rest = after;
            }
            out
        };
        assert_eq!(
            pieces("The house, understandable  now\n\n\n"),
            ["The", " house", ",", " under", "standa", "ble", "  ", "now", "\n\n\n"]
        );
        assert_eq!(pieces("日本語のテキスト"), ["日本", "語の", "テキ", "スト"]);
        assert_eq!(pieces(" "), [" "]);
        assert_eq!(pieces(" é€"), [" é", "€"]);
    }

    #[test]
    fn english_takes_about_four_bytes_a_token() {
        let text = "The committee published its findings after a long review of the regional transport \
                    programme, and asked each department to answer within three months. Most of them did.";
        let per_token = text.len() as f64 / text_tokens(text).len() as f64;
        assert!((3.5..4.6).contains(&per_token), "{per_token}");
    }

    #[test]
    fn a_chat_grows_by_appending() {
        let first = json!({"role": "user", "content": "hello there"});
        let answer = json!({"role": "assistant", "content": "river stone"});
        let one = chat_tokens(std::slice::from_ref(&first), None, 256);
        assert_eq!(one.len(), 5 + 2 + 3);
        let mut expected = one;
        expected.extend(text_tokens("river stone"));
        expected.push(MESSAGE_END);
        let two = chat_tokens(&[first, answer], None, 256);
        assert_eq!(two[..expected.len()], expected);
    }

    #[test]
    fn images_and_tools_count() {
        let chat = |url: &str| {
            json!({"role": "user", "content": [{"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": url}}]})
        };
        let one = chat_tokens(&[chat("data:a")], None, 256);
        assert_eq!(one.len(), 5 + 1 + 256 + 3);
        assert_ne!(one, chat_tokens(&[chat("data:b")], None, 256));
        let tools = json!([{"type": "function", "function": {"name": "find"}}]);
        assert!(chat_tokens(&[chat("data:a")], Some(&tools), 256).len() > one.len() + 10);
    }

    #[test]
    fn hashes_cover_full_blocks_and_chain() {
        let ids: Vec<u32> = (0..50).collect();
        let hashes = block_hashes(&ids, 16);
        assert_eq!(hashes.len(), 3);
        let mut changed = ids.clone();
        changed[0] = 99;
        let other = block_hashes(&changed, 16);
        assert!(hashes.iter().zip(other.iter()).all(|(a, b)| a != b));
        assert_eq!(block_hashes(&ids[..32], 16)[..], hashes[..2]);
    }
}
