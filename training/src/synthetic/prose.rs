//! Seeded English-like prose: sentences, paragraphs and titles about one topic.

use rand::{Rng, seq::IndexedRandom};

use super::words::{Lexicon, Topic, gerund, past, with_s};

/// Writes prose about one topic with one generator.
pub(super) struct Writer<'a, R: Rng> {
    lexicon: &'a Lexicon,
    topic: &'a Topic,
    rng: R,
}

impl<'a, R: Rng> Writer<'a, R> {
    /// Starts a writer.
    pub(super) fn new(lexicon: &'a Lexicon, topic: &'a Topic, rng: R) -> Self {
        Self { lexicon, topic, rng }
    }

    /// Returns the generator, for draws beside the prose.
    pub(super) fn rng(&mut self) -> &mut R {
        &mut self.rng
    }

    /// Draws one of `choices`.
    pub(super) fn pick<'b>(&mut self, choices: &[&'b str]) -> &'b str {
        choices.choose(&mut self.rng).copied().unwrap_or_default()
    }

    /// Draws a noun, two thirds of the time of the topic.
    pub(super) fn noun(&mut self) -> &'static str {
        self.word("nouns")
    }

    /// Draws a verb, two thirds of the time of the topic.
    pub(super) fn verb(&mut self) -> &'static str {
        self.word("verbs")
    }

    /// Draws an adjective, two thirds of the time of the topic.
    pub(super) fn adjective(&mut self) -> &'static str {
        self.word("adjectives")
    }

    /// Draws a proper name of the topic.
    pub(super) fn name(&mut self) -> &'static str {
        self.topic.words.draw("names", &mut self.rng)
    }

    /// Draws a number as it stands in prose: a year, a share, an amount.
    pub(super) fn number(&mut self) -> String {
        match self.rng.random_range(0..4) {
            0 => self.rng.random_range(1820..2026).to_string(),
            1 => format!("{} percent", self.rng.random_range(2..99)),
            2 => format!("{},{:03}", self.rng.random_range(1..900), self.rng.random_range(0..1000)),
            _ => self.rng.random_range(2..60).to_string(),
        }
    }

    /// Writes a noun phrase, such as `the small rural clinic`.
    pub(super) fn phrase(&mut self) -> String {
        let determiner = self.general("determiners");
        let noun = if matches!(determiner, "some") || self.rng.random_bool(0.2) {
            with_s(self.noun())
        } else {
            self.noun().to_owned()
        };
        let described = match self.rng.random_range(0..5) {
            0 | 1 => format!("{} {noun}", self.adjective()),
            2 => format!("{} {} {noun}", self.adjective(), self.adjective()),
            _ => noun,
        };
        let article = if determiner == "a" && described.starts_with(['a', 'e', 'i', 'o', 'u']) {
            "an"
        } else {
            determiner
        };
        format!("{article} {described}")
    }

    /// Writes a clause without its full stop.
    pub(super) fn clause(&mut self) -> String {
        let subject = match self.rng.random_range(0..6) {
            0 => self.name().to_owned(),
            1 => self.general("pronouns").to_owned(),
            _ => self.phrase(),
        };
        let verb = past(self.verb());
        let object = self.phrase();
        match self.rng.random_range(0..6) {
            0 => format!("{subject} {verb} {object} {} {}", self.general("prepositions"), self.phrase()),
            1 => format!("{subject} {} {verb} {object}", self.general("adverbs")),
            2 => format!(
                "{subject} {verb} {object} in {} {}",
                self.general("months"),
                self.rng.random_range(1890..2026)
            ),
            3 => format!("{subject} {verb} {} {}", self.number(), with_s(self.noun())),
            4 => format!("{subject} began {} {object}", gerund(self.verb())),
            _ => format!("{subject} {verb} {object}"),
        }
    }

    /// Writes a sentence.
    pub(super) fn sentence(&mut self) -> String {
        let first = self.clause();
        let whole = match self.rng.random_range(0..5) {
            0 => format!("{first}, {} {}", self.general("conjunctions"), self.clause()),
            1 => format!("{} {}, {first}", self.general("prepositions"), self.phrase()),
            _ => first,
        };
        format!("{}.", capitalize(&whole))
    }

    /// Writes a title of two to five words.
    pub(super) fn title(&mut self) -> String {
        let (adjective, noun) = (capitalize(self.adjective()), capitalize(self.noun()));
        match self.rng.random_range(0..3) {
            0 => format!("The {adjective} {noun}"),
            1 => format!("{} {noun}", self.name()),
            _ => {
                format!("{adjective} {} and the {noun} of {}", capitalize(&with_s(self.noun())), self.name())
            }
        }
    }

    fn word(&mut self, part: &str) -> &'static str {
        let list = if self.rng.random_bool(2.0 / 3.0) { &self.topic.words } else { &self.lexicon.general };
        list.draw(part, &mut self.rng)
    }

    fn general(&mut self, part: &str) -> &'static str {
        self.lexicon.general.draw(part, &mut self.rng)
    }
}

/// Returns `text` with its first letter in upper case.
#[must_use]
pub(super) fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn prose_is_seeded_and_stays_on_its_topic() {
        let lexicon = Lexicon::load();
        let write = |seed| {
            let mut writer = Writer::new(&lexicon, &lexicon.topics[1], ChaCha8Rng::seed_from_u64(seed));
            (0..200).map(|_| writer.sentence()).collect::<Vec<_>>()
        };
        assert_eq!(write(1), write(1));
        assert_ne!(write(1), write(2));
        let text = write(3).join(" ");
        assert!(text.contains("hospital") && !text.contains("dragon"));
        assert!(write(3).iter().all(|sentence| sentence.ends_with('.') && sentence.split(' ').count() >= 3));
    }
}
