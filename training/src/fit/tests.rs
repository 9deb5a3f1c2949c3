//! What training promises: repeatable to the byte, servable, honest about held-out rows.

use bear::domain::{Capabilities, ModelId, ModelSpec, Price};
use bear::predict::{PredictionSource, Predictor};

use super::*;
use crate::{
    evaluations::{self, Evaluation},
    synthetic::{MODELS, Synthesis, synthesize},
};

fn models() -> BTreeMap<String, ModelFacts> {
    let facts = |parameters_b| ModelFacts { parameters_b, max_model_len: 40_960 };
    MODELS.iter().zip([0.6, 8.2, 32.8]).map(|(model, size)| (model.id.to_owned(), facts(size))).collect()
}

fn small_recipe() -> Recipe {
    let small = BoosterRecipe {
        num_iterations: 12,
        num_leaves: vec![7],
        min_data_in_leaf: 5,
        ..BoosterRecipe::default()
    };
    Recipe { accuracy: small.clone(), output_length: small, ..Recipe::default() }
}

fn corpus_of(rows: &[Evaluation]) -> Corpus {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.jsonl");
    let lines: Vec<String> = rows.iter().map(Evaluation::to_json).collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    evaluations::read(&[path], &models(), &BpeTokens::built_in(), || {}).unwrap()
}

fn rows(prompts: usize) -> Vec<Evaluation> {
    synthesize(&Synthesis { seed: 3, prompts }, &BpeTokens::built_in())
}

fn train(corpus: &Corpus, recipe: &Recipe) -> Result<BTreeMap<String, Vec<u8>>, FitError> {
    let facts = models();
    let order = Order { name: "test", recipe, facts: &facts, tokenizer: BpeTokens::built_in_bytes() };
    fit(corpus, &order, || {})
}

fn spec(id: &str) -> ModelSpec {
    ModelSpec {
        id: ModelId::from(id),
        parameters_b: 1.0,
        max_model_len_tokens: 100,
        price: Price::default(),
        capabilities: Capabilities::default(),
        prior_accuracy: Some(0.125),
        prior_output_tokens: None,
    }
}

#[test]
fn a_bundle_repeats_to_the_byte() {
    let corpus = corpus_of(&rows(60));
    let first = train(&corpus, &small_recipe()).unwrap();
    assert_eq!(first, train(&corpus_of(&rows(60)), &small_recipe()).unwrap());
    let other = Recipe { seed: 2, ..small_recipe() };
    assert_ne!(first[bundle::ACCURACY], train(&corpus, &other).unwrap()[bundle::ACCURACY]);
}

#[test]
fn a_bundle_is_served_and_says_that_it_is_synthetic() {
    let files = train(&corpus_of(&rows(80)), &small_recipe()).unwrap();
    let predictor = Predictor::from_bundle(&files).unwrap();
    assert!(predictor.is_synthetic());
    assert!(predictor.version().starts_with("test@"));
    let features = predictor.describe("Write a story about a dragon in detail.");
    let large = predictor.predict(&features, &spec("qwen3-32b"));
    let small = predictor.predict(&features, &spec("qwen3-0.6b"));
    assert_eq!(
        (large.source, large.output_tokens_source),
        (PredictionSource::Bundle, PredictionSource::Bundle)
    );
    assert!(large.accuracy > small.accuracy, "{large:?} {small:?}");
    assert_eq!(predictor.predict_all(&features, &[spec("qwen3-32b")]), [large]);
    let stranger = predictor.predict(&features, &spec("stranger"));
    assert_eq!((stranger.accuracy, stranger.source), (Some(0.125), PredictionSource::Prior));
    assert_eq!((stranger.output_tokens, stranger.output_tokens_source), (None, PredictionSource::Unknown));
}

#[test]
fn held_out_prompts_do_not_touch_the_model() {
    let recipe = small_recipe();
    let mut rows = rows(60);
    let before = train(&corpus_of(&rows), &recipe).unwrap();
    for row in rows.iter_mut().filter(|row| Part::of(&row.prompt_id, &recipe) == Part::HeldOut) {
        row.score = 1.0 - row.score;
    }
    let after = train(&corpus_of(&rows), &recipe).unwrap();
    for file in [bundle::ACCURACY, bundle::OUTPUT_LENGTH, bundle::PCA] {
        assert_eq!(before[file], after[file], "{file}");
    }
    assert_ne!(before[bundle::MANIFEST], after[bundle::MANIFEST], "the metrics do change");
}

#[test]
fn evaluations_without_lengths_give_a_bundle_without_that_model() {
    let mut rows = rows(40);
    rows.iter_mut().for_each(|row| row.output_tokens = None);
    let files = train(&corpus_of(&rows), &small_recipe()).unwrap();
    assert!(!files.contains_key(bundle::OUTPUT_LENGTH));
    let predictor = Predictor::from_bundle(&files).unwrap();
    let prediction = predictor.predict(&predictor.describe("Hello"), &spec("qwen3-8b"));
    assert_eq!(prediction.source, PredictionSource::Bundle);
    assert_eq!(prediction.output_tokens_source, PredictionSource::Unknown);
}

#[test]
fn nothing_left_to_train_on_is_an_error() {
    let recipe = Recipe { held_out_share: 0.9, ..small_recipe() };
    let rows: Vec<Evaluation> =
        rows(24).into_iter().filter(|row| Part::of(&row.prompt_id, &recipe) == Part::HeldOut).collect();
    assert!(matches!(train(&corpus_of(&rows), &recipe), Err(FitError::AllHeldOut)));
    let recipe = Recipe { validation_share: 1.5, ..small_recipe() };
    assert!(
        matches!(train(&corpus_of(&rows), &recipe), Err(FitError::Recipe(error)) if error.name == "validation_share")
    );
}

#[test]
fn rounds_are_chosen_where_validation_says_so() {
    let mut rows = rows(200);
    // Scores without any pattern: the longer the training, the worse on other prompts.
    for (i, row) in rows.iter_mut().enumerate() {
        row.score = f64::from(u8::from(i * 7_919 % 101 < 50));
    }
    let long = BoosterRecipe { num_iterations: 60, learning_rate: 0.3, ..small_recipe().accuracy };
    let recipe = Recipe { accuracy: long, held_out_share: 0.0, ..small_recipe() };
    let trees = |recipe: &Recipe| {
        let files = train(&corpus_of(&rows), recipe).unwrap();
        Predictor::from_bundle(&files).unwrap().manifest().unwrap().quality.trees[bundle::ACCURACY]
    };
    assert!(trees(&recipe) < 60);
    assert_eq!(trees(&Recipe { validation_share: 0.0, ..recipe }), 60);
}
