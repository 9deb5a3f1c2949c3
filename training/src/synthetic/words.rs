//! The word lists of the synthetic grammar and their English endings.

use std::collections::BTreeMap;

use rand::{Rng, seq::IndexedRandom};

/// Topics with their own words.
const TOPICS: &str = include_str!("../../lexicon/topics.txt");
/// Words that every topic uses.
const GENERAL: &str = include_str!("../../lexicon/general.txt");
/// Words of everyday prompts, for the tokenizer only.
const COMMON: &str = include_str!("../../lexicon/common.txt");

/// Words by part of speech (`nouns`, `verbs`, …).
#[derive(Debug, Default)]
pub(super) struct WordList {
    parts: BTreeMap<&'static str, Vec<&'static str>>,
}

impl WordList {
    /// Draws a word; empty where the list has no such part.
    pub(super) fn draw(&self, part: &str, rng: &mut impl Rng) -> &'static str {
        self.parts.get(part).and_then(|words| words.choose(rng)).copied().unwrap_or_default()
    }

    fn add_line(&mut self, line: &'static str) {
        let mut words = line.split_whitespace();
        if let Some(part) = words.next() {
            self.parts.entry(part).or_default().extend(words);
        }
    }
}

/// One topic: its words and how hard questions about it are.
#[derive(Debug)]
pub(super) struct Topic {
    /// From 0 (easy) to 1 (hard).
    pub(super) level: f64,
    /// Its words.
    pub(super) words: WordList,
}

/// All word lists.
#[derive(Debug)]
pub(super) struct Lexicon {
    /// The topics, in file order.
    pub(super) topics: Vec<Topic>,
    /// Words of every topic.
    pub(super) general: WordList,
}

impl Lexicon {
    /// Reads the lists that are part of this package.
    #[must_use]
    pub(super) fn load() -> Self {
        let mut topics: Vec<Topic> = Vec::new();
        for line in TOPICS.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
            match (key, topics.last_mut()) {
                ("topic", _) => {
                    topics.push(Topic { level: 0.5, words: WordList::default() });
                }
                ("level", Some(topic)) => topic.level = rest.parse().unwrap_or(0.5),
                (_, Some(topic)) => topic.words.add_line(line),
                (_, None) => {}
            }
        }
        let mut general = WordList::default();
        GENERAL.lines().filter(|line| !line.starts_with('#')).for_each(|line| general.add_line(line));
        Self { topics, general }
    }
}

/// Returns everyday words, in file order.
pub(super) fn common_words() -> Vec<&'static str> {
    COMMON.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace).collect()
}

/// Returns a regular plural, or a verb's third person, which English spells alike.
#[must_use]
pub(super) fn with_s(word: &str) -> String {
    match ends(word) {
        Ending::ConsonantY => format!("{}ies", &word[..word.len() - 1]),
        Ending::Hiss => format!("{word}es"),
        _ => format!("{word}s"),
    }
}

/// Returns a regular past form.
#[must_use]
pub(super) fn past(verb: &str) -> String {
    match ends(verb) {
        Ending::ConsonantY => format!("{}ied", &verb[..verb.len() - 1]),
        Ending::E => format!("{verb}d"),
        Ending::Double(last) => format!("{verb}{last}ed"),
        _ => format!("{verb}ed"),
    }
}

/// Returns the form in -ing.
#[must_use]
pub(super) fn gerund(verb: &str) -> String {
    match ends(verb) {
        Ending::E if !verb.ends_with("ee") => format!("{}ing", &verb[..verb.len() - 1]),
        Ending::Double(last) => format!("{verb}{last}ing"),
        _ => format!("{verb}ing"),
    }
}

enum Ending {
    E,
    ConsonantY,
    Hiss,
    /// A short syllable whose last consonant doubles.
    Double(char),
    Other,
}

fn ends(word: &str) -> Ending {
    let vowel = |c: char| matches!(c, 'a' | 'e' | 'i' | 'o' | 'u');
    let mut last = word.chars().rev();
    let (third, second, first) = match (last.next(), last.next(), last.next()) {
        (Some(first), Some(second), third) => (third, second, first),
        _ => return Ending::Other,
    };
    match first {
        'e' => Ending::E,
        'y' if !vowel(second) => Ending::ConsonantY,
        's' | 'x' | 'z' => Ending::Hiss,
        'h' if matches!(second, 's' | 'c') => Ending::Hiss,
        'b' | 'd' | 'g' | 'm' | 'n' | 'p' | 't'
            if vowel(second) && third.is_some_and(|c| !vowel(c)) && word.len() <= 4 =>
        {
            Ending::Double(first)
        }
        _ => Ending::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_topic_has_every_part() {
        let lexicon = Lexicon::load();
        assert_eq!(lexicon.topics.len(), 20);
        for topic in &lexicon.topics {
            for part in ["nouns", "verbs", "adjectives", "names"] {
                assert!(topic.words.parts[part].len() >= 7, "level {}: {part}", topic.level);
            }
            assert!((0.0..=1.0).contains(&topic.level));
        }
        assert!(lexicon.general.parts.len() >= 9);
    }

    #[test]
    fn endings_are_english() {
        assert_eq!(["city", "bus", "boy", "match"].map(with_s), ["cities", "buses", "boys", "matches"]);
        assert_eq!(["plan", "carry", "bake", "visit"].map(past), ["planned", "carried", "baked", "visited"]);
        assert_eq!(["plan", "bake", "agree"].map(gerund), ["planning", "baking", "agreeing"]);
    }
}
