//! What the feature function promises.

use super::*;
use crate::predict::BpeTokens;

/// One token a word, by length: enough to tell counts by hand.
struct Words;

impl FeatureTokens for Words {
    fn token_ids(&self, text: &str) -> Option<Vec<u32>> {
        let ids = text.split_whitespace().map(|word| word.len() as u32);
        (!text.contains('\0')).then(|| ids.collect())
    }
    fn version(&self) -> &str {
        "words"
    }
}

fn flat_pca() -> Pca {
    let axes = (0..HASH_BUCKETS).map(|b| std::array::from_fn(|k| ((b * 31 + k) % 7) as f64)).collect();
    Pca::new(vec![0.0; HASH_BUCKETS], axes).unwrap()
}

#[test]
fn counts_are_signed_sums_over_tokens() {
    let once = describe("aa bbb", &Words);
    let thrice = describe("aa bbb aa bbb aa bbb", &Words);
    assert_eq!(once.tokens(), 2);
    assert_eq!(once.sparse_counts().len(), 2, "two ids fall into two buckets");
    for ((bucket, count), (again, more)) in once.sparse_counts().iter().zip(thrice.sparse_counts()) {
        assert_eq!((*bucket, count * 3), (*again, *more));
        assert_eq!(count.abs(), 1);
    }
}

#[test]
fn a_prompt_that_the_tokenizer_fails_on_is_of_no_bundles_version() {
    let features = describe("aa \0 bbb?", &Words);
    assert_eq!((features.version(), features.tokens()), (UNTOKENIZED, 0));
    assert!(features.sparse_counts().is_empty() && features.has(Cue::Question));
}

#[test]
fn normalising_makes_repetition_invisible_to_the_components() {
    let pca = flat_pca();
    let once = describe("aa bbb", &Words).prompt_vector(&pca);
    let twice = describe("aa bbb aa bbb", &Words).prompt_vector(&pca);
    for k in 0..COMPONENTS {
        assert!((once[k] - twice[k]).abs() < 1e-12);
    }
    assert_ne!(once[COMPONENTS], twice[COMPONENTS], "the token count still differs");
}

#[test]
fn signs_and_buckets_are_even() {
    let ids: Vec<u32> = (0..51_200).collect();
    let mut per_bucket = vec![0_u32; HASH_BUCKETS];
    let mut positive = 0_u32;
    for id in &ids {
        let hash = mix(u64::from(*id));
        per_bucket[hash as usize % HASH_BUCKETS] += 1;
        positive += u32::from(hash >> 63 == 0);
    }
    assert!(per_bucket.iter().all(|count| (50..=160).contains(count)));
    assert!((24_800..=26_400).contains(&positive));
}

#[test]
fn sizes_and_cues_land_in_named_places() {
    let features = describe("List 3 things. In 40 words!", &Words);
    let vector = features.prompt_vector(&flat_pca());
    let names = prompt_feature_names();
    let at = |name: &str| vector[names.iter().position(|n| n == name).unwrap()];
    assert_eq!(at("tokens"), 6.0);
    assert_eq!(at("characters"), 27.0);
    assert_eq!(at("sentences"), 2.0);
    assert_eq!(at("characters_per_token"), 4.5);
    assert_eq!(at("asked_words"), 40.0);
    assert_eq!(at("task_list"), 1.0);
    assert_eq!(at("length_counted"), 1.0);
    assert_eq!(at("task_code"), 0.0);
    assert_eq!(names.len(), PROMPT_FEATURES);
    assert_eq!(features.named()["asked_words"], 40.0);
}

#[test]
fn sentences_are_counted() {
    for (text, expected) in [
        ("", 0),
        ("...", 0),
        ("no mark", 1),
        ("One. Two! Three?", 3),
        ("Version 1.5 is out. Yes", 2),
        ("これは。試験！", 2),
        ("A b.\nC", 2),
    ] {
        assert_eq!(count_sentences(text), expected, "{text:?}");
    }
}

#[test]
fn rows_append_the_model() {
    let prompt = describe("aa", &Words).prompt_vector(&flat_pca());
    let row = accuracy_row(&prompt, 2, 8.2, 40_960);
    assert_eq!(row[..PROMPT_FEATURES], prompt);
    assert_eq!(row[MODEL_FEATURE], 2.0);
    assert!((row[MODEL_FEATURE + 1] - 8.2e9_f64.ln()).abs() < 1e-12);
    assert_eq!(row[MODEL_FEATURE + 2], 40_960.0);
    assert_eq!(accuracy_feature_names()[MODEL_FEATURE], "model");
    assert_eq!(output_length_row(&prompt, 1)[MODEL_FEATURE], 1.0);
    assert_eq!(output_length_feature_names().len(), OUTPUT_LENGTH_FEATURES);
}

#[test]
fn json_round_trips_and_holds_no_text() {
    let features = describe("Confidential matter in 10 words.", &BpeTokens::built_in());
    let json = serde_json::to_string(&features).unwrap();
    assert!(!json.contains("onfidential"));
    assert_eq!(serde_json::from_str::<QueryFeatures>(&json).unwrap(), features);
}

#[test]
fn impossible_features_are_refused() {
    let with = |counts: &str, tokens: u32| {
        let json = format!(
            r#"{{"version":"v","tokens":{tokens},"characters":9,"sentences":1,"cues":[],"counts":{counts}}}"#
        );
        serde_json::from_str::<QueryFeatures>(&json)
    };
    assert!(with("[[3,1],[4,-1]]", 2).is_ok());
    for (counts, word) in
        [("[[512,1]]", "bucket 512"), ("[[4,1],[3,1]]", "ascending"), ("[[3,9]]", "adds up")]
    {
        let error = with(counts, 2).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn parts_are_checked_as_json_is() {
    let parts = |counts| FeatureParts {
        version: "v",
        tokens: 3,
        characters: 12,
        sentences: 1,
        asked_words: None,
        cues: &[Cue::Code],
        counts,
    };
    let features = QueryFeatures::try_from(parts(vec![(1, -2), (4, 1)])).unwrap();
    assert!(features.has(Cue::Code) && !features.has(Cue::List));
    assert_eq!(features.sparse_counts(), [(1, -2), (4, 1)]);
    for (counts, what) in [
        (vec![(1, -2), (4, 2)], "adds up to 4"),
        (vec![(4, 1), (1, 1)], "ascending"),
        (vec![(512, 1)], "bucket 512"),
    ] {
        let error = QueryFeatures::try_from(parts(counts)).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}
