//! Writes the fixture that shows `predict::forest` to be bit-exact: models and rows with LightGBM's outputs.
//!
//! Beside ordinary values the rows hold every case that the tree rules tell apart: NaN, infinities, zeros of both
//! signs and values next to them, values at and next to thresholds, unseen, negative, fractional and huge categories.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use crate::lightgbm::{Booster, LightGbmError, Matrix};

/// Columns: numbers (with NaN, with many zeros, plain, small integers), then categories (few, many).
const COLUMNS: usize = 6;
/// The first categorical column.
const CATEGORIES_FROM: usize = 4;
/// Training rows of each model.
const TRAINING_ROWS: usize = 3_000;
/// Rows with recorded outputs of each model.
const ROWS: usize = 1_200;

/// What all models share.
const SHARED: &str = "categorical_feature=4,5 num_leaves=15 min_data_in_leaf=5 learning_rate=0.1 seed=7 \
    deterministic=true force_row_wise=true num_threads=1 min_data_per_group=2 verbosity=-1";

/// Each model's name and what sets it apart.
const MODELS: [(&str, &str); 6] = [
    ("huber_nan", "objective=huber alpha=0.5"),
    ("mean_zero_missing", "objective=regression zero_as_missing=true"),
    ("mean_no_missing", "objective=regression use_missing=false"),
    ("mean_sqrt", "objective=regression reg_sqrt=true"),
    ("huber_one_hot", "objective=huber alpha=0.9 max_cat_to_onehot=64"),
    ("constant", "objective=regression_l1"),
];

/// Returns the fixture's files by name: `NAME.txt` (the model) and `NAME.rows` (rows and columns as
/// little-endian u32, then each row and its output as f64).
///
/// # Errors
/// Passes on what LightGBM refused.
pub fn files(seed: u64) -> Result<BTreeMap<String, Vec<u8>>, LightGbmError> {
    let mut files = BTreeMap::new();
    for (stream, (name, parameters)) in MODELS.iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream as u64);
        let booster = train(name, parameters, &mut rng)?;
        let text = booster.to_text()?;
        let rows = rows(&thresholds(&text), &mut rng)?;
        let outputs = booster.predict(&rows, None)?;
        files.insert(format!("{name}.txt"), text.into_bytes());
        files.insert(format!("{name}.rows"), encode(&rows, &outputs));
    }
    Ok(files)
}

fn train(name: &str, parameters: &str, rng: &mut ChaCha8Rng) -> Result<Booster, LightGbmError> {
    let mut matrix = Matrix::new(COLUMNS);
    let mut labels = Vec::with_capacity(TRAINING_ROWS);
    for _ in 0..TRAINING_ROWS {
        let row = ordinary_row(rng);
        let known = |value: f64| if value.is_nan() { -0.7 } else { value };
        let effect = known(row[0]).sin()
            + 0.5 * row[1]
            + (row[2] * row[3]).tanh()
            + [0.3, -0.6, 0.9, 0.0, -0.2][row[4] as usize % 5]
            + (row[5] * 12.9898).sin();
        let noise: f64 = StandardNormal.sample(rng);
        labels.push(if name == "constant" { 0.25 } else { (effect + 0.1 * noise) as f32 });
        matrix.push(&row)?;
    }
    let names: Vec<String> = (0..COLUMNS).map(|column| format!("column_{column}")).collect();
    Booster::train(&matrix, &labels, &names, &format!("{parameters} {SHARED}"), 40, |_| {})
}

fn ordinary_row(rng: &mut ChaCha8Rng) -> [f64; COLUMNS] {
    let mut normal = || -> f64 { StandardNormal.sample(rng) };
    let (a, b, c) = (normal(), normal(), normal());
    [
        if rng.random_bool(0.15) { f64::NAN } else { a },
        if rng.random_bool(0.5) { 0.0 } else { b },
        c * 100.0,
        f64::from(rng.random_range(-3..4)),
        f64::from(rng.random_range(0..5)),
        f64::from(rng.random_range(0..70)),
    ]
}

/// Reads the thresholds out of a model, to place values at and beside them.
fn thresholds(text: &str) -> Vec<f64> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("threshold="));
    lines.flat_map(|line| line.split(' ')).filter_map(|word| word.parse().ok()).collect()
}

fn rows(thresholds: &[f64], rng: &mut ChaCha8Rng) -> Result<Matrix, LightGbmError> {
    const NUMBERS: [f64; 16] = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.0,
        -0.0,
        1e-35,
        -1e-35,
        5e-36,
        -5e-36,
        2e-35,
        -2e-35,
        5e-324,
        f64::MAX,
        f64::MIN,
        1e-20,
        -1e-20,
    ];
    const CATEGORIES: [f64; 18] = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -1.0,
        -0.5,
        -0.0,
        0.5,
        3.999,
        5.0,
        31.0,
        32.0,
        63.0,
        64.0,
        70.0,
        1_000.0,
        2_147_483_647.0,
        2_147_483_648.0,
        1e300,
    ];
    let mut matrix = Matrix::new(COLUMNS);
    for index in 0..ROWS {
        let mut row = ordinary_row(rng);
        // A third of the rows are ordinary, a third have one odd value, a third have any number of them.
        let odd: Vec<usize> = match index % 3 {
            0 => Vec::new(),
            1 => vec![rng.random_range(0..COLUMNS)],
            _ => (0..COLUMNS).filter(|_| rng.random_bool(0.5)).collect(),
        };
        for column in odd {
            let beside = thresholds.choose(rng).copied().unwrap_or_default();
            row[column] = match (column >= CATEGORIES_FROM, rng.random_range(0..4)) {
                (true, _) => *CATEGORIES.choose(rng).unwrap_or(&0.0),
                (false, 0) => beside,
                (false, 1) => {
                    if rng.random_bool(0.5) {
                        beside.next_up()
                    } else {
                        beside.next_down()
                    }
                }
                (false, _) => *NUMBERS.choose(rng).unwrap_or(&0.0),
            };
        }
        matrix.push(&row)?;
    }
    Ok(matrix)
}

/// Encodes rows and outputs: rows and columns as little-endian u32, then each row's values and its output as the
/// bits of little-endian f64.
fn encode(rows: &Matrix, outputs: &[f64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((rows.rows() as u32).to_le_bytes());
    bytes.extend((COLUMNS as u32).to_le_bytes());
    for (row, output) in rows.iter().zip(outputs) {
        bytes.extend(row.iter().chain([output]).flat_map(|value| value.to_le_bytes()));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixture_repeats_to_the_byte_and_is_the_committed_one() {
        let made = files(1).unwrap();
        assert_eq!(made, files(1).unwrap());
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/forest");
        for (name, bytes) in &made {
            let committed = std::fs::read(format!("{folder}/{name}")).unwrap();
            assert!(committed == *bytes, "{name} differs: run `bear-train fixture --out tests/data/forest`");
        }
    }
}
