//! Prompts of the demo's four tasks: seeded, about as long as asked, and worded like what they stand for.

use rand::{Rng, seq::IndexedRandom};

use crate::{simengine::tokens::text_tokens, truth::lengths::Task};

const SUBJECTS: &[&str] = &[
    "the regional council",
    "a small team of nurses",
    "the harbour authority",
    "an old lighthouse keeper",
    "the museum's night guard",
    "a group of farmers",
    "the railway company",
    "a young astronomer",
    "the city library",
    "an independent auditor",
    "the fishing fleet",
    "a retired teacher",
    "the water utility",
    "the school board",
    "a travelling theatre",
    "the mountain rescue service",
];
const VERBS: &[&str] = &[
    "reviewed",
    "rebuilt",
    "postponed",
    "described",
    "measured",
    "sold",
    "painted",
    "closed",
    "inspected",
    "financed",
    "questioned",
    "discovered",
    "restored",
    "doubled",
    "abandoned",
    "recommended",
];
const OBJECTS: &[&str] = &[
    "the northern bridge",
    "its yearly budget",
    "three forgotten letters",
    "the emergency plan",
    "a field of sunflowers",
    "the results of the survey",
    "an unusual telescope",
    "the old ferry line",
    "a programme for apprentices",
    "the flood defences",
    "the last harvest",
    "its contract with the port",
    "a map of the valley",
    "the winter timetable",
    "two experimental wells",
    "the archive of photographs",
];
const CIRCUMSTANCES: &[&str] = &[
    "after a long winter",
    "despite rising costs",
    "with the help of volunteers",
    "before the deadline",
    "because the law had changed",
    "at the request of the ministry",
    "without telling anyone",
    "in the course of a single night",
    "according to the committee",
    "for the first time since the war",
    "although few had asked for it",
    "while the market was closed",
];
const PLACES: &[&str] = &[
    "Aldermoor",
    "Brenholt",
    "Casterby",
    "Dunvale",
    "Eskford",
    "Farrowgate",
    "Greystone",
    "Hollin Bay",
    "Inverlough",
    "Kestrel Point",
    "Larkfield",
    "Merrow",
];
const THINGS: &[&str] = &[
    "bicycle",
    "garden",
    "compass",
    "recipe",
    "calendar",
    "lantern",
    "spreadsheet",
    "vegetable",
    "bridge",
    "password",
    "volcano",
    "contract",
    "violin",
    "river",
    "beehive",
    "microscope",
];
const TRAITS: &[&str] = &[
    "reliable",
    "small",
    "unusual",
    "affordable",
    "ancient",
    "quiet",
    "colourful",
    "modern",
    "simple",
    "fragile",
];
const ASKED_LENGTHS: &[&str] = &[
    "",
    "",
    "",
    " in one sentence",
    " briefly",
    " in two sentences",
    " in detail",
    " step by step",
    " in about 150 words",
];

/// Writes one prompt of about `tokens` tokens.
pub(super) fn write(task: Task, tokens: usize, rng: &mut impl Rng) -> String {
    match task {
        Task::InstructionFollowing => instruction(tokens, rng),
        Task::QuestionAnswering => question(tokens, rng),
        Task::Summarisation => report(tokens, rng),
        Task::CreativeWriting => story(tokens, rng),
    }
}

fn pick<'a>(words: &[&'a str], rng: &mut impl Rng) -> &'a str {
    words.choose(rng).copied().unwrap_or_default()
}

fn sentence(rng: &mut impl Rng) -> String {
    let mut subject = pick(SUBJECTS, rng).to_string();
    subject[..1].make_ascii_uppercase();
    let (verb, object, circumstance) = (pick(VERBS, rng), pick(OBJECTS, rng), pick(CIRCUMSTANCES, rng));
    match rng.random_range(0..4) {
        0 => format!("{subject} of {} {verb} {object} {circumstance}.", pick(PLACES, rng)),
        1 => format!("{subject} {verb} {object} in {} {circumstance}.", rng.random_range(1890..2025)),
        2 => format!("{subject} {verb} {} percent of {object}.", rng.random_range(3..97)),
        _ => format!("{subject} {verb} {object} {circumstance}."),
    }
}

/// Appends sentences until `text` has about `tokens` tokens.
fn fill(mut text: String, tokens: usize, rng: &mut impl Rng) -> String {
    let mut used = text_tokens(&text).len();
    loop {
        let next = sentence(rng);
        let more = text_tokens(&next).len();
        if used + more / 2 > tokens {
            return text;
        }
        if !text.ends_with('\n') {
            text.push(' ');
        }
        text.push_str(&next);
        used += more;
    }
}

fn instruction(tokens: usize, rng: &mut impl Rng) -> String {
    let length = pick(ASKED_LENGTHS, rng);
    let (thing, quality) = (pick(THINGS, rng), pick(TRAITS, rng));
    let head = match rng.random_range(0..6) {
        0 => format!("Explain how a {thing} works{length}."),
        1 => format!("List {} ways to choose a {quality} {thing}{length}.", rng.random_range(3..10)),
        2 => format!("What is the difference between a {thing} and a {}? Answer{length}.", pick(THINGS, rng)),
        3 => format!("Rewrite the following text so that it sounds more {quality}{length}:"),
        4 => format!("Translate the following text into French{length}:"),
        _ => format!("Describe a {quality} {thing}{length}."),
    };
    fill(head, tokens, rng)
}

fn story(tokens: usize, rng: &mut impl Rng) -> String {
    let (thing, quality, place) = (pick(THINGS, rng), pick(TRAITS, rng), pick(PLACES, rng));
    let head = match rng.random_range(0..4) {
        0 => format!("Write a story about a {quality} {thing} that is found in {place}."),
        1 => format!("Writing prompt: everyone in {place} wakes up with the same {thing}. Tell the story."),
        2 => format!("Write a scene between a stranger and the last {thing} of {place}."),
        _ => format!("Write a story that starts with a {thing} and ends with a {}.", pick(THINGS, rng)),
    };
    fill(head, tokens, rng)
}

fn question(tokens: usize, rng: &mut impl Rng) -> String {
    const DOCUMENTS: usize = 8;
    let mut prompt = String::from("Answer the question from the documents below.\n\n");
    for number in 1..=DOCUMENTS {
        let head = format!("Document {number}: {} and {}\n", pick(PLACES, rng), pick(OBJECTS, rng));
        prompt.push_str(&fill(head, tokens / DOCUMENTS, rng));
        prompt.push_str("\n\n");
    }
    prompt.push_str(&format!(
        "Question: When was it that {} {} {}?\nAnswer:",
        pick(SUBJECTS, rng),
        pick(VERBS, rng),
        pick(OBJECTS, rng)
    ));
    prompt
}

fn report(tokens: usize, rng: &mut impl Rng) -> String {
    const SECTION_TOKENS: usize = 400;
    let mut prompt = format!("Summarize the following report.\n\nReport of {}\n\n", pick(PLACES, rng));
    for section in 1..=(tokens / SECTION_TOKENS).max(1) {
        let head = format!("{section}. On {}\n", pick(OBJECTS, rng));
        prompt.push_str(&fill(head, SECTION_TOKENS, rng));
        prompt.push_str("\n\n");
    }
    prompt.push_str("Summary:");
    prompt
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn prompts_have_about_the_asked_length_and_differ() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for (task, tokens) in [
            (Task::InstructionFollowing, 80),
            (Task::CreativeWriting, 60),
            (Task::QuestionAnswering, 1_400),
            (Task::Summarisation, 9_000),
        ] {
            let (one, two) = (write(task, tokens, &mut rng), write(task, tokens, &mut rng));
            assert_ne!(one, two);
            let ratio = text_tokens(&one).len() as f64 / tokens as f64;
            assert!((0.7..1.3).contains(&ratio), "{task:?}: {ratio}");
        }
    }
}
