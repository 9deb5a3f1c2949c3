//! The tree evaluation against LightGBM's own outputs, damaged models, and the shipped bundles.
#![expect(clippy::expect_used, reason = "a missing fixture fails the test by its name")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use bear::predict::{BpeTokens, FeatureTokens as _, Forest, Predictor, bundle};
use proptest::prelude::*;

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn fixture(name: &str) -> Vec<u8> {
    fs::read(repository("tests/data/forest").join(name)).expect("the fixture is part of the repository")
}

/// The models of the fixture, by file name.
fn fixture_models() -> Vec<String> {
    let entries =
        fs::read_dir(repository("tests/data/forest")).expect("the fixture is part of the repository");
    let names = entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned());
    let mut models: Vec<String> =
        names.filter_map(|name| name.strip_suffix(".txt").map(str::to_owned)).collect();
    models.sort();
    models
}

/// Rows of a `.rows` file (`training/src/fixture.rs` writes it): values and LightGBM's output.
fn rows(name: &str) -> Vec<(Vec<f64>, f64)> {
    let bytes = fixture(&format!("{name}.rows"));
    let (head, values) = bytes.split_at(8);
    let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes")) as usize;
    let (count, columns) = (word(0), word(4));
    let values: Vec<f64> =
        values.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().expect("eight bytes"))).collect();
    assert_eq!(values.len(), count * (columns + 1));
    values.chunks_exact(columns + 1).map(|row| (row[..columns].to_vec(), row[columns])).collect()
}

#[test]
fn predictions_equal_lightgbms_to_the_bit() {
    let models = fixture_models();
    assert_eq!(models.len(), 6);
    let mut compared = 0;
    for model in models {
        let forest = Forest::parse(&fixture(&format!("{model}.txt"))).expect("a sound model reads");
        for (number, (row, expected)) in rows(&model).into_iter().enumerate() {
            let found = forest.predict(&row);
            assert_eq!(
                found.to_bits(),
                expected.to_bits(),
                "{model}, row {number} {row:?}: {found}, LightGBM {expected}"
            );
            compared += 1;
        }
    }
    assert!(compared >= 5_000, "{compared} rows");
}

#[test]
fn the_fixture_holds_every_kind_of_split() {
    let mut kinds = std::collections::BTreeSet::new();
    for model in fixture_models() {
        let text = String::from_utf8(fixture(&format!("{model}.txt"))).expect("text");
        for line in text.lines().filter_map(|line| line.strip_prefix("decision_type=")) {
            kinds.extend(line.split(' ').filter(|kind| !kind.is_empty()).map(str::to_owned));
        }
    }
    // Numerical: nothing missing (always default left), zero and NaN missing (default right and left); categorical.
    for kind in ["2", "4", "6", "8", "10"] {
        assert!(kinds.contains(kind), "no split of decision type {kind} among {kinds:?}");
    }
    assert!(kinds.iter().any(|kind| kind.parse::<u32>().is_ok_and(|kind| kind & 1 == 1)), "{kinds:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever happens to a file, reading it ends, and what reads can be evaluated.
    #[test]
    fn damaged_models_neither_panic_nor_hang(
        edits in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(&b"0123456789-=. \n\x00e\xff"[..])), 1..8),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let mut bytes = fixture("huber_nan.txt");
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(forest) = Forest::parse(&bytes) {
            for (row, _) in rows("huber_nan").into_iter().take(20) {
                prop_assert!(!forest.predict(&row).is_nan());
            }
        }
    }

    /// Lines taken out, doubled or swapped are found or harmless.
    #[test]
    fn shuffled_lines_neither_panic_nor_hang(first in any::<prop::sample::Index>(), second in any::<prop::sample::Index>(), how in 0..3) {
        let text = String::from_utf8(fixture("mean_zero_missing.txt")).expect("text");
        let mut lines: Vec<&str> = text.lines().collect();
        let (first, second) = (first.index(lines.len()), second.index(lines.len()));
        match how {
            0 => { lines.remove(first); }
            1 => lines.insert(first, lines[second]),
            _ => lines.swap(first, second),
        }
        if let Ok(forest) = Forest::parse(lines.join("\n").as_bytes()) {
            prop_assert!(!forest.predict(&[0.5; 6]).is_nan());
        }
    }
}

/// A tree of very many fields would make the search for doubled ones slow.
#[test]
fn a_tree_of_very_many_fields_is_refused() {
    let text = String::from_utf8(fixture("huber_nan.txt")).expect("text");
    let fields: Vec<String> = (0..200_000).map(|field| format!("k{field}=\n")).collect();
    let swollen = text.replacen("Tree=0\n", &format!("Tree=0\n{}", fields.concat()), 1);
    let error = Forest::parse(swollen.as_bytes()).expect_err("no tree has so many fields").to_string();
    assert!(error.contains("more than 64 fields"), "{error}");
}

fn demo() -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(repository("models/demo")).expect("the demo bundle ships");
    entries
        .map(|entry| entry.expect("readable").path())
        .map(|path| {
            let name = path.file_name().expect("a file").to_string_lossy().into_owned();
            (name, fs::read(&path).expect("readable"))
        })
        .collect()
}

fn refusal(files: &BTreeMap<String, Vec<u8>>) -> String {
    Predictor::from_bundle(files).err().expect("the bundle is damaged").to_string()
}

#[test]
fn the_demo_bundle_loads_and_says_what_it_is() {
    let predictor = Predictor::from_bundle(&demo()).expect("the shipped bundle loads");
    assert!(predictor.is_synthetic());
    assert!(predictor.version().starts_with("demo@"));
    for model in ["qwen3-0.6b", "qwen3-8b", "qwen3-32b"] {
        assert!(predictor.knows(model), "{model}");
    }
    assert!(!predictor.knows("qwen3-14b"));
    let manifest = predictor.manifest().expect("a bundle has a manifest");
    assert_eq!(
        manifest.features.version,
        BpeTokens::built_in().version(),
        "it carries the built-in tokenizer"
    );
    let accuracy = manifest.quality.accuracy.expect("prompts were held out");
    let lengths = manifest.quality.output_tokens.expect("prompts were held out");
    for split in [accuracy, lengths] {
        assert!(split.mae < 0.9 * split.baseline_mae && split.r2 > split.baseline_r2 + 0.1, "{split:?}");
    }
}

#[test]
fn a_changed_file_is_refused_by_its_digest() {
    for name in [bundle::ACCURACY, bundle::OUTPUT_LENGTH, bundle::PCA, bundle::TOKENIZER, bundle::CARD] {
        let mut files = demo();
        let bytes = files.get_mut(name).expect("every bundle has it");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        let error = refusal(&files);
        assert!(error.contains(name) && error.contains("SHA-256"), "{error}");
        files.remove(name);
        assert!(refusal(&files).contains(&format!("no `{name}`")));
    }
}

#[test]
fn another_manifest_is_refused_with_its_reason() {
    let with = |from: &str, to: &str| {
        let mut files = demo();
        let text = String::from_utf8(files[bundle::MANIFEST].clone()).expect("text");
        assert!(text.contains(from), "the manifest has no {from:?}");
        files.insert(bundle::MANIFEST.to_owned(), text.replacen(from, to, 1).into_bytes());
        refusal(&files)
    };
    assert!(with("bear.bundle.v1", "bear.bundle.v9").contains("bear.bundle.v9"));
    assert!(with("bear.features.v2", "bear.features.v1").contains("train it again"));
    assert!(with("\"qwen3-32b\"", "\"qwen3-8b\"").contains("twice"));
    assert!(with("\"hash_buckets\": 512", "\"hash_buckets\": 256").contains("inconsistent"));
    assert!(with("\"synthetic\"", "\"synthetick\"").contains("manifest.json"));
    assert!(with("{", "").contains("manifest.json"));
    assert!(refusal(&BTreeMap::new()).contains("manifest.json"));
}
