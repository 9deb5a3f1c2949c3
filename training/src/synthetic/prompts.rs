//! Prompts of the four tasks, as long as asked and with cues that tell how long an answer they want.

use rand::Rng;

use super::{
    prose::{Writer, capitalize},
    tasks::Kind,
    words::{gerund, past, with_s},
};

/// Words that stand for one answer token, for the lengths that prompts name.
const WORDS_PER_TOKEN: f64 = 0.75;

/// What a prompt shall be like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    /// How it is written.
    pub(super) kind: Kind,
    /// Its length, tokens.
    pub(super) tokens: f64,
    /// How long an answer it asks for: a standard normal, 0 as usual for the task.
    pub(super) length_pull: f64,
    /// The answer it has in mind, tokens.
    pub(super) answer_tokens: f64,
}

/// Counts tokens.
pub(super) type Count<'a> = &'a dyn Fn(&str) -> usize;

/// Writes one prompt of about the wished length.
pub(super) fn write<R: Rng>(wish: &Wish, writer: &mut Writer<'_, R>, count: Count<'_>) -> String {
    match wish.kind {
        Kind::Instruction => instruction(wish, writer, count),
        Kind::Documents => documents(wish, writer, count),
        Kind::Report => report(wish, writer, count),
        Kind::Story => story(wish, writer, count),
    }
}

/// A clause on the length of the answer, empty where the pull is near zero.
fn length_clause<R: Rng>(wish: &Wish, writer: &mut Writer<'_, R>) -> String {
    let words = (wish.answer_tokens * WORDS_PER_TOKEN).max(5.0);
    if writer.rng().random_bool(0.25) {
        let rounded = if words < 60.0 { (words / 5.0).round() * 5.0 } else { (words / 50.0).round() * 50.0 };
        return format!(" in about {} words", rounded.max(5.0));
    }
    let choices: &[&str] = match wish.length_pull {
        pull if pull < -1.1 => &[" in one sentence", " in a single paragraph", " with yes or no"],
        pull if pull < -0.4 => {
            &[" briefly", " in two sentences", " in a concise way", " in three bullet points"]
        }
        pull if pull > 1.1 => {
            &[" in a comprehensive essay", " at length and step by step", " as an extensive guide"]
        }
        pull if pull > 0.4 => &[" in detail", " step by step", " with a thorough discussion"],
        _ => &[""],
    };
    writer.pick(choices).to_owned()
}

fn instruction<R: Rng>(wish: &Wish, writer: &mut Writer<'_, R>, count: Count<'_>) -> String {
    let length = length_clause(wish, writer);
    let (noun, verb, adjective) = (writer.noun(), writer.verb(), writer.adjective());
    let nouns = with_s(noun);
    let head = match writer.rng().random_range(0..16) {
        0 => format!("Explain how {nouns} are {}{length}.", past(verb)),
        1 => format!("List {} ways to {verb} {} {noun}{length}.", writer.rng().random_range(3..12), "the"),
        2 => format!("Describe a {adjective} {noun}{length}."),
        3 => format!("What is the difference between a {noun} and a {}? Answer{length}.", writer.noun()),
        4 => format!("Write a function that can {verb} an array of {nouns}{length}."),
        5 => format!("Rewrite the following sentence to make it more {adjective}{length}:"),
        6 => format!(
            "Translate the following text into {}{length}:",
            writer.pick(&["French", "German", "Spanish"])
        ),
        7 => format!("Classify the following text as positive or negative{length}:"),
        8 => format!("Give advice on {} {} {nouns}{length}.", gerund(verb), writer.adjective()),
        9 => format!(
            "Calculate how many {nouns} remain if {} of {} are {}{length}.",
            writer.number(),
            writer.number(),
            past(verb)
        ),
        10 => format!("Compare {} {nouns} with {} ones{length}.", adjective, writer.adjective()),
        11 => format!("Summarize the following text{length}:"),
        12 => format!("Why do people {verb} {nouns}? Answer{length}."),
        13 => format!("Write a letter to {} about the {noun}{length}.", writer.name()),
        14 => format!("Identify the {noun} in the following text{length}:"),
        _ => format!("Suggest a {adjective} name for a {noun} and explain the choice{length}."),
    };
    fill(head, wish.tokens, " ", writer, count)
}

fn story<R: Rng>(wish: &Wish, writer: &mut Writer<'_, R>, count: Count<'_>) -> String {
    let length = length_clause(wish, writer);
    let (noun, adjective, name) = (writer.noun(), writer.adjective(), writer.name());
    let head = match writer.rng().random_range(0..6) {
        0 => format!("Write a story{length} about a {adjective} {noun} called {name}."),
        1 => format!("Writing prompt: {name} wakes up as a {adjective} {noun}. Tell the story{length}."),
        2 => format!("Compose a poem{length} in which a {noun} meets {name}."),
        3 => format!("Write a scene{length} between {name} and the last {noun} on earth."),
        4 => format!("Continue this story{length}: \"{}\"", writer.sentence()),
        _ => format!("Write a story{length} that starts with a {noun} and ends with a {}.", writer.noun()),
    };
    fill(head, wish.tokens, " ", writer, count)
}

fn documents<R: Rng>(wish: &Wish, writer: &mut Writer<'_, R>, count: Count<'_>) -> String {
    const DOCUMENTS: usize = 10;
    let length = length_clause(wish, writer);
    let mut prompt = format!("Answer the question from the documents below{length}.\n\n");
    let mut titles = Vec::new();
    let mut used = count(&prompt);
    for number in 1..=DOCUMENTS {
        let title = writer.title();
        let text =
            paragraph((wish.tokens - 40.0 - used as f64) / (DOCUMENTS + 1 - number) as f64, writer, count);
        let document = format!("Document {number}: {title}\n{text}\n\n");
        used += count(&document);
        prompt.push_str(&document);
        titles.push(title);
    }
    let [first, second] = [writer.rng().random_range(0..DOCUMENTS), writer.rng().random_range(0..DOCUMENTS)];
    let (verb, noun) = (past(writer.verb()), writer.noun());
    let question = match writer.rng().random_range(0..4) {
        0 => format!("Which {noun} was {verb} first, {} or {}?", titles[first], titles[second]),
        1 => format!("Who {verb} the {noun} of {}?", titles[first]),
        2 => format!("When was {} {verb}, and by which {noun}?", titles[first]),
        _ => format!("Are {} and {} both {}?", titles[first], titles[second], with_s(noun)),
    };
    prompt.push_str(&format!("Question: {question}\nAnswer:"));
    prompt
}

fn report<R: Rng>(wish: &Wish, writer: &mut Writer<'_, R>, count: Count<'_>) -> String {
    let length = length_clause(wish, writer);
    let ask = match writer.rng().random_range(0..3) {
        0 => format!("Summarize the following report{length}."),
        1 => format!("Write a summary of the report below{length}."),
        _ => format!("Read this government report and condense its findings{length}."),
    };
    let mut prompt = format!("{ask}\n\n{}\n\n", writer.title());
    let mut used = count(&prompt) as f64;
    let mut section = 1;
    while used < wish.tokens - 30.0 {
        let heading = format!("{section}. {}\n", capitalize(&writer.phrase()));
        let text = paragraph((wish.tokens - used).min(400.0), writer, count);
        used += (count(&heading) + count(&text)) as f64;
        prompt.push_str(&heading);
        prompt.push_str(&text);
        prompt.push_str("\n\n");
        section += 1;
    }
    prompt.push_str("Summary:");
    prompt
}

/// Writes sentences until they have about `tokens`, at least one.
fn paragraph<R: Rng>(tokens: f64, writer: &mut Writer<'_, R>, count: Count<'_>) -> String {
    fill(writer.sentence(), tokens, " ", writer, count)
}

/// Appends sentences to `text` until it has about `tokens`.
fn fill<R: Rng>(
    text: String,
    tokens: f64,
    separator: &str,
    writer: &mut Writer<'_, R>,
    count: Count<'_>,
) -> String {
    let mut text = text;
    let mut used = count(&text) as f64;
    loop {
        let sentence = writer.sentence();
        let more = count(&sentence) as f64;
        // Half a sentence over is as near as half a sentence short.
        if used + more / 2.0 > tokens {
            return text;
        }
        text.push_str(separator);
        text.push_str(&sentence);
        used += more;
    }
}
