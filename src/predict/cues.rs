//! Cues in a prompt's instruction: how long the answer shall be, and what kind of task it is (paper A.4).
//!
//! Only the first and last [`WINDOW_BYTES`] are read: instructions stand at the ends, and a long report in
//! between holds every word.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::numerals::{Token, next_token};

/// Bytes read at either end of a prompt.
const WINDOW_BYTES: usize = 600;
/// Most words an asked length may name; beyond it the number is something else (a year, a price).
const MAX_ASKED_WORDS: u32 = 20_000;
/// Longest word looked up.
const MAX_WORD_BYTES: usize = 24;

macro_rules! cues {
    ($($variant:ident $name:literal $doc:literal),+ $(,)?) => {
        /// One cue. The order is that of the feature vector and belongs to the feature version.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Cue { $(#[doc = $doc] $variant),+ }
        impl Cue {
            /// Every cue, in feature order.
            pub const ALL: &[Self] = &[$(Self::$variant),+];
            /// Returns the name used in feature names and in JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

cues! {
    LengthCounted "length_counted" "A counted length: `in 100 words`, `three bullet points`.",
    LengthOne "length_one" "One unit: `one sentence`, `a single paragraph`, `yes or no`.",
    LengthBrief "length_brief" "A short answer: `briefly`, `concise`.",
    LengthLong "length_long" "A long answer: `detailed`, `step by step`, `essay`.",
    List "task_list" "Lists or enumerates.",
    Summarize "task_summarize" "Summarises.",
    Explain "task_explain" "Explains or describes.",
    Write "task_write" "Writes a story, poem, letter or the like.",
    Translate "task_translate" "Translates.",
    Code "task_code" "Writes or mends code.",
    Question "task_question" "Asks a question.",
    Rewrite "task_rewrite" "Rewrites or corrects a text.",
    Classify "task_classify" "Classifies or rates.",
    Extract "task_extract" "Finds something in a text.",
    Compare "task_compare" "Compares.",
    Calculate "task_calculate" "Calculates or proves.",
    Choice "task_choice" "Offers lettered choices.",
    Documents "task_documents" "Carries documents or a context to answer from.",
}

/// The cues of one prompt, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cues(u32);

impl Cues {
    /// Returns whether `cue` was seen.
    #[must_use]
    pub(super) const fn has(self, cue: Cue) -> bool {
        self.0 & (1 << cue as u32) != 0
    }

    /// Adds `cue`.
    pub(super) const fn insert(&mut self, cue: Cue) {
        self.0 |= 1 << cue as u32;
    }
}

impl Serialize for Cues {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(Cue::ALL.iter().filter(|cue| self.has(**cue)).map(|cue| cue.name()))
    }
}

impl<'de> Deserialize<'de> for Cues {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut cues = Self::default();
        for name in Vec::<String>::deserialize(deserializer)? {
            let cue = Cue::ALL.iter().find(|cue| cue.name() == name);
            cues.insert(*cue.ok_or_else(|| D::Error::custom(format!("unknown cue `{name}`")))?);
        }
        Ok(cues)
    }
}

/// Words that are a cue by themselves, sorted.
const WORDS: &[(&str, Cue)] = &[
    ("algorithm", Cue::Code),
    ("analyze", Cue::Explain),
    ("article", Cue::Documents),
    ("brainstorm", Cue::List),
    ("brief", Cue::LengthBrief),
    ("briefly", Cue::LengthBrief),
    ("calculate", Cue::Calculate),
    ("categorize", Cue::Classify),
    ("classify", Cue::Classify),
    ("code", Cue::Code),
    ("compare", Cue::Compare),
    ("compose", Cue::Write),
    ("comprehensive", Cue::LengthLong),
    ("compute", Cue::Calculate),
    ("concise", Cue::LengthBrief),
    ("concisely", Cue::LengthBrief),
    ("condense", Cue::Summarize),
    ("context", Cue::Documents),
    ("contrast", Cue::Compare),
    ("convert", Cue::Rewrite),
    ("correct", Cue::Rewrite),
    ("debug", Cue::Code),
    ("define", Cue::Explain),
    ("describe", Cue::Explain),
    ("detail", Cue::LengthLong),
    ("detailed", Cue::LengthLong),
    ("difference", Cue::Compare),
    ("differences", Cue::Compare),
    ("discuss", Cue::Explain),
    ("document", Cue::Documents),
    ("documents", Cue::Documents),
    ("edit", Cue::Rewrite),
    ("enumerate", Cue::List),
    ("essay", Cue::LengthLong),
    ("estimate", Cue::Calculate),
    ("evaluate", Cue::Classify),
    ("explain", Cue::Explain),
    ("extensive", Cue::LengthLong),
    ("extract", Cue::Extract),
    ("find", Cue::Extract),
    ("function", Cue::Code),
    ("generate", Cue::Write),
    ("how", Cue::Question),
    ("identify", Cue::Extract),
    ("implement", Cue::Code),
    ("javascript", Cue::Code),
    ("list", Cue::List),
    ("name", Cue::List),
    ("outline", Cue::List),
    ("paraphrase", Cue::Rewrite),
    ("passage", Cue::Documents),
    ("poem", Cue::Write),
    ("program", Cue::Code),
    ("proofread", Cue::Rewrite),
    ("prove", Cue::Calculate),
    ("python", Cue::Code),
    ("rank", Cue::Classify),
    ("rate", Cue::Classify),
    ("regex", Cue::Code),
    ("rephrase", Cue::Rewrite),
    ("report", Cue::Documents),
    ("rewrite", Cue::Rewrite),
    ("script", Cue::Code),
    ("short", Cue::LengthBrief),
    ("simplify", Cue::Calculate),
    ("solve", Cue::Calculate),
    ("sql", Cue::Code),
    ("story", Cue::Write),
    ("succinct", Cue::LengthBrief),
    ("suggest", Cue::List),
    ("summarise", Cue::Summarize),
    ("summarize", Cue::Summarize),
    ("summary", Cue::Summarize),
    ("thorough", Cue::LengthLong),
    ("translate", Cue::Translate),
    ("translation", Cue::Translate),
    ("what", Cue::Question),
    ("when", Cue::Question),
    ("where", Cue::Question),
    ("which", Cue::Question),
    ("who", Cue::Question),
    ("whose", Cue::Question),
    ("why", Cue::Question),
    ("write", Cue::Write),
];

/// Units a length is counted in; words also give [`Scan::asked_words`].
const UNITS: &[&str] = &[
    "bullet",
    "bullets",
    "character",
    "characters",
    "item",
    "items",
    "line",
    "lines",
    "page",
    "pages",
    "paragraph",
    "paragraphs",
    "point",
    "points",
    "sentence",
    "sentences",
    "word",
    "words",
];

/// Numbers in words.
const NUMBERS: &[(&str, u32)] = &[
    ("one", 1),
    ("single", 1),
    ("two", 2),
    ("three", 3),
    ("four", 4),
    ("five", 5),
    ("six", 6),
    ("seven", 7),
    ("eight", 8),
    ("nine", 9),
    ("ten", 10),
    ("hundred", 100),
    ("thousand", 1_000),
];

/// What one prompt's instruction asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    /// The cues seen.
    pub(super) cues: Cues,
    /// The length asked for in words, where a count of words is named.
    pub(super) asked_words: Option<u32>,
}

/// Reads the cues of `prompt`.
pub(super) fn scan(prompt: &str) -> Scan {
    let mut scan = Scan::default();
    if prompt.len() <= 2 * WINDOW_BYTES {
        scan_window(prompt, &mut scan);
    } else {
        let head = (0..=WINDOW_BYTES).rev().find(|i| prompt.is_char_boundary(*i)).unwrap_or(0);
        let tail_start = prompt.len() - WINDOW_BYTES;
        let tail = (tail_start..=prompt.len()).find(|i| prompt.is_char_boundary(*i)).unwrap_or(tail_start);
        scan_window(prompt.get(..head).unwrap_or_default(), &mut scan);
        scan_window(prompt.get(tail..).unwrap_or_default(), &mut scan);
    }
    scan
}

fn scan_window(window: &str, scan: &mut Scan) {
    if window.contains('?') {
        scan.cues.insert(Cue::Question);
    }
    if window.contains("```") {
        scan.cues.insert(Cue::Code);
    }
    if offers_choices(window) {
        scan.cues.insert(Cue::Choice);
    }
    let mut word = String::with_capacity(MAX_WORD_BYTES);
    let mut before = String::with_capacity(MAX_WORD_BYTES);
    let mut number = None;
    let mut rest = window;
    while let Some((token, after)) = next_token(rest) {
        rest = after;
        word.clear();
        match token {
            // A number that is not whole counts nothing, scaled or not.
            Token::Numeral(value) => number = Some(value.unwrap_or(0)),
            Token::Word(raw) => {
                if raw.len() <= MAX_WORD_BYTES {
                    word.extend(raw.chars().map(|c| c.to_ascii_lowercase()));
                }
                number = scan_word(&word, &before, number, scan);
            }
        }
        std::mem::swap(&mut word, &mut before);
    }
}

/// Reads one lower-cased word and returns the number that the next unit would count.
fn scan_word(word: &str, before: &str, number: Option<u32>, scan: &mut Scan) -> Option<u32> {
    if let Some((_, cue)) = WORDS.iter().find(|(known, _)| *known == word) {
        scan.cues.insert(*cue);
    }
    if (word == "step" && before == "by") || (word == "length" && before == "at") {
        scan.cues.insert(Cue::LengthLong);
    }
    if word == "no" && before == "or" {
        scan.cues.insert(Cue::LengthOne);
    }
    if let Some((_, found)) = NUMBERS.iter().find(|(name, _)| *name == word) {
        // `two hundred` counts two hundreds.
        let scaled = match number {
            Some(count) if matches!(found, 100 | 1_000) && count < 100 => count * found,
            _ => *found,
        };
        return Some(scaled);
    }
    let count = number.filter(|count| (1..=MAX_ASKED_WORDS).contains(count))?;
    if !UNITS.contains(&word) {
        return None;
    }
    scan.cues.insert(if count == 1 { Cue::LengthOne } else { Cue::LengthCounted });
    if matches!(word, "word" | "words") && scan.asked_words.is_none() {
        scan.asked_words = Some(count);
    }
    None
}

/// Returns whether some line starts with choice A and another with choice B.
fn offers_choices(window: &str) -> bool {
    let mut seen = [false; 2];
    for line in window.lines() {
        let line = line.trim_start().trim_start_matches('(');
        let mut chars = line.chars();
        if let (Some(letter @ ('A' | 'B')), Some(')' | '.' | ':')) = (chars.next(), chars.next()) {
            seen[usize::from(letter == 'B')] = true;
        }
    }
    seen == [true; 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(prompt: &str) -> Vec<&'static str> {
        let found = scan(prompt).cues;
        Cue::ALL.iter().filter(|cue| found.has(**cue)).map(|cue| cue.name()).collect()
    }

    #[test]
    fn lengths_are_told_apart() {
        assert_eq!(names("Answer in 100 words."), ["length_counted"]);
        assert_eq!(names("Answer in one sentence."), ["length_one"]);
        assert_eq!(names("Answer briefly."), ["length_brief"]);
        assert_eq!(names("Give a detailed answer, step by step."), ["length_long"]);
        assert_eq!(names("Answer yes or no."), ["length_one"]);
        assert_eq!(names("In 1999 words were spoken."), ["length_counted"]);
        assert_eq!(names("It cost 30000000 words"), Vec::<&str>::new());
    }

    #[test]
    fn asked_words_are_read_in_digits_and_in_words() {
        assert_eq!(scan("a 200-word letter").asked_words, Some(200));
        assert_eq!(scan("about two hundred words").asked_words, Some(200));
        assert_eq!(scan("three sentences").asked_words, None);
        assert_eq!(scan("0 words, then 50 words, then 60 words").asked_words, Some(50));
    }

    #[test]
    fn grouped_numbers_are_read_whole_and_decimals_not_at_all() {
        assert_eq!(scan("Write 1,500 words").asked_words, Some(1_500));
        assert_eq!(scan("Write 1,000 words").asked_words, Some(1_000));
        assert_eq!(scan("in 2 000 words").asked_words, Some(2_000));
        assert_eq!(scan("2.5 thousand words").asked_words, None);
        assert_eq!(scan("2 thousand words").asked_words, Some(2_000));
        assert_eq!(names("3.5 items"), Vec::<&str>::new());
        assert_eq!(names("about 1.1 words"), Vec::<&str>::new());
    }

    #[test]
    fn the_words_are_in_order() {
        assert!(WORDS.is_sorted_by(|a, b| a.0 < b.0), "each once, in alphabetical order");
        assert!(UNITS.is_sorted_by(|a, b| a < b));
        assert!(WORDS.iter().all(|(word, _)| word.len() <= MAX_WORD_BYTES));
    }

    #[test]
    fn tasks_are_told_apart() {
        assert_eq!(names("Translate this to French"), ["task_translate"]);
        assert_eq!(names("Write a poem"), ["task_write"]);
        assert_eq!(names("Is water wet?"), ["task_question"]);
        assert_eq!(names("Pick:\nA) red\n(B) blue"), ["task_choice"]);
        assert_eq!(names("```\nx\n```"), ["task_code"]);
    }

    #[test]
    fn the_middle_of_a_long_prompt_is_not_read() {
        let filler = "é ".repeat(WINDOW_BYTES);
        assert_eq!(names(&format!("{filler} summarize {filler}")), Vec::<&str>::new());
        assert_eq!(names(&format!("Summarize: {filler}{filler}")), ["task_summarize"]);
        assert_eq!(names(&format!("{filler}{filler} Summarize")), ["task_summarize"]);
    }

    #[test]
    fn cues_survive_json_and_unknown_ones_are_named() {
        let found = scan("List three points about 20 words each?").cues;
        let json = serde_json::to_string(&found).unwrap();
        assert_eq!(serde_json::from_str::<Cues>(&json).unwrap(), found);
        let error = serde_json::from_str::<Cues>("[\"task_dance\"]").unwrap_err();
        assert!(error.to_string().contains("task_dance"));
    }
}
