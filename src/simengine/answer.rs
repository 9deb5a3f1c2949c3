//! The text of a simulated answer: words in a seeded order, each exactly one token of this engine.

use rand::Rng;

use super::tokens;

/// Words of at most five letters, so that each with its leading blank is one piece.
const WORDS: &[&str] = &[
    "able", "above", "add", "after", "again", "age", "agree", "air", "all", "along", "also", "and", "any",
    "apple", "area", "arm", "ask", "away", "baker", "ball", "bank", "base", "beach", "bear", "began",
    "below", "bird", "black", "blue", "board", "boat", "body", "book", "both", "box", "brave", "bread",
    "bring", "brown", "build", "call", "calm", "carry", "cause", "chair", "check", "child", "city", "clear",
    "climb", "close", "cloud", "coast", "cold", "color", "come", "cook", "cover", "cross", "dance", "dark",
    "day", "deep", "den", "door", "down", "draw", "dream", "drive", "each", "early", "earth", "east",
    "eight", "end", "even", "every", "face", "fact", "fall", "farm", "fast", "few", "field", "fire", "first",
    "fish", "five", "floor", "fly", "food", "force", "form", "found", "four", "free", "fresh", "from",
    "front", "full", "gate", "give", "glad", "glass", "gold", "good", "grain", "grass", "great", "green",
    "group", "grow", "guide", "hand", "happy", "heart", "heat", "help", "here", "high", "hill", "hold",
    "honey", "horse", "hour", "house", "idea", "inch", "iron", "join", "just", "keep", "kind", "knew",
    "lake", "land", "large", "last", "late", "learn", "leave", "left", "less", "light", "like", "line",
    "list", "local", "long", "look", "made", "make", "many", "map", "march", "mark", "maybe", "mean", "men",
    "merry", "mile", "milk", "mind", "month", "moon", "more", "most", "move", "much", "music", "name",
    "near", "never", "new", "night", "nine", "north", "note", "now", "oak", "ocean", "often", "once", "one",
    "open", "order", "other", "over", "page", "paint", "paper", "part", "path", "peace", "piece", "pine",
    "place", "plain", "plan", "plant", "play", "point", "pond", "press", "proud", "quick", "quiet", "rain",
    "reach", "read", "ready", "rest", "rich", "right", "river", "road", "rock", "room", "round", "same",
    "sand", "say", "scale", "sea", "seed", "serve", "seven", "shape", "share", "ship", "shore", "short",
    "show", "side", "sing", "size", "sky", "sleep", "slow", "small", "snow", "soft", "some", "song", "soon",
    "sound", "south", "space", "speak", "spot", "stand", "star", "start", "stay", "step", "still", "stone",
    "store", "story", "study", "such", "sugar", "sun", "table", "take", "talk", "tall", "teach", "ten",
    "than", "then", "there", "these", "thin", "think", "third", "three", "time", "today", "town", "trade",
    "trail", "train", "tree", "true", "trust", "turn", "two", "under", "unit", "until", "upon", "use",
    "usual", "very", "view", "visit", "voice", "wait", "walk", "wall", "want", "warm", "watch", "water",
    "way", "west", "wheel", "when", "while", "white", "whole", "wide", "wild", "wind", "wing", "wise",
    "with", "wood", "word", "work", "world", "write", "year", "yes", "young",
];

/// One answer, known in full before its first token is computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The text each output token shows; the end of sequence and a stop text show none.
    pub pieces: Vec<String>,
    /// The id of each output token.
    pub ids: Vec<u32>,
    /// Whether the last token ends the sequence; otherwise the answer was cut at its cap.
    pub stopped: bool,
}

impl Answer {
    /// Writes an answer of `natural_tokens` tokens, its end of sequence included, cut at `cap_tokens`, or
    /// cut before the first of the `stop` strings. `ignore_eos` writes up to the cap.
    pub fn write(length: AnswerLength<'_>, rng: &mut impl Rng) -> Self {
        let cap = length.cap_tokens.max(1);
        let stopped = !length.ignore_eos && length.natural_tokens <= cap;
        let words = if stopped { length.natural_tokens.saturating_sub(1) } else { cap };
        let mut pieces: Vec<String> = (0..words).map(|i| word(i == 0, rng)).collect();
        let mut ids = Vec::with_capacity(pieces.len() + 1);
        for piece in &pieces {
            tokens::push_text(piece, &mut ids);
        }
        if let Some(kept) = cut_at_stop(&pieces, length.stop) {
            ids.truncate(kept.len());
            return Self { pieces: kept, ids, stopped: true };
        }
        if stopped {
            pieces.push(String::new());
            ids.push(tokens::MESSAGE_END);
        }
        Self { pieces, ids, stopped }
    }

    /// Returns the output tokens.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        u32::try_from(self.pieces.len()).unwrap_or(u32::MAX)
    }
}

/// What bounds an answer.
#[derive(Clone, Copy, Debug)]
pub struct AnswerLength<'a> {
    /// Tokens the model would write, its end of sequence included, at least 2 for one word.
    pub natural_tokens: u32,
    /// Most tokens it may write.
    pub cap_tokens: u32,
    /// Write on to the cap.
    pub ignore_eos: bool,
    /// Texts before which the answer ends.
    pub stop: &'a [String],
}

fn word(first: bool, rng: &mut impl Rng) -> String {
    let word = WORDS[rng.random_range(0..WORDS.len())];
    if first { word.to_string() } else { format!(" {word}") }
}

/// Returns the pieces up to and with the one that completes the first stop text, without any part of that
/// text (an engine holds back what may become one); none when no stop text occurs.
fn cut_at_stop(pieces: &[String], stop: &[String]) -> Option<Vec<String>> {
    let text = pieces.concat();
    let (at, end) = stop
        .iter()
        .filter(|s| !s.is_empty())
        .filter_map(|s| text.find(s.as_str()).map(|at| (at, at + s.len())))
        .min_by_key(|(_, end)| *end)?;
    let (mut kept, mut from) = (Vec::new(), 0);
    for piece in pieces {
        let upto = at.saturating_sub(from).min(piece.len());
        kept.push(piece[..upto].to_string());
        from += piece.len();
        if from >= end {
            break;
        }
    }
    Some(kept)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn write(natural_tokens: u32, cap_tokens: u32, ignore_eos: bool, stop: &[String]) -> Answer {
        let length = AnswerLength { natural_tokens, cap_tokens, ignore_eos, stop };
        Answer::write(length, &mut ChaCha8Rng::seed_from_u64(5))
    }

    #[test]
    fn every_word_is_one_token_alone_and_after_a_blank() {
        for word in WORDS {
            if word.len() < tokens::PIECE_BYTES {
                assert_eq!(tokens::text_tokens(&format!(" {word}")).len(), 1, "{word}");
            }
            assert_eq!(tokens::text_tokens(word).len(), 1, "{word}");
        }
        let long: Vec<_> = WORDS.iter().filter(|w| w.len() >= tokens::PIECE_BYTES).collect();
        assert!(long.is_empty(), "{long:?}");
    }

    #[test]
    fn an_answer_ends_by_itself_or_at_its_cap() {
        let ended = write(20, 100, false, &[]);
        assert_eq!((ended.tokens(), ended.stopped), (20, true));
        assert_eq!(ended.pieces[19], "");
        let cut = write(20, 7, false, &[]);
        assert_eq!((cut.tokens(), cut.stopped), (7, false));
        assert!(cut.pieces.iter().all(|p| !p.is_empty()));
        let on = write(20, 64, true, &[]);
        assert_eq!((on.tokens(), on.stopped), (64, false));
        assert_eq!(on.pieces[..19], ended.pieces[..19]);
    }

    #[test]
    fn token_ids_equal_those_of_the_text() {
        let answer = write(20, 100, false, &[]);
        let mut ids = tokens::text_tokens(&answer.pieces.concat());
        ids.push(tokens::MESSAGE_END);
        assert_eq!(answer.ids, ids);
    }

    #[test]
    fn a_stop_text_ends_the_answer_before_it() {
        let whole = write(50, 100, false, &[]);
        let stop = whole.pieces[10][1..].to_string();
        let before = whole.pieces.concat().find(&stop).unwrap();
        let cut = write(50, 100, false, std::slice::from_ref(&stop));
        assert!(cut.stopped);
        assert_eq!(cut.pieces.concat(), whole.pieces.concat()[..before]);
        assert!(cut.tokens() <= 11);
        assert_eq!(cut.ids, whole.ids[..cut.pieces.len()]);
    }
}
