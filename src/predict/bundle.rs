//! Reads a bundle: bytes in, everything checked before anything is used.

use std::collections::{BTreeMap, HashMap};

use sha2::{Digest, Sha256};

use super::{
    BpeTokens, FeatureTokens, Forest, PredictError,
    digest::hex,
    manifest::{FeatureManifest, Manifest, SCHEMA},
    pca::Pca,
};

/// The table of contents.
pub const MANIFEST: &str = "manifest.json";
/// The accuracy model.
pub const ACCURACY: &str = "accuracy.txt";
/// The output-length model; a bundle of evaluations that tell no output tokens has none.
pub const OUTPUT_LENGTH: &str = "output_length.txt";
/// The projection.
pub const PCA: &str = "pca.bin";
/// The feature tokenizer.
pub const TOKENIZER: &str = "feature_tokenizer.json";
/// The page for people.
pub const CARD: &str = "card.md";
/// Files a bundle is refused without, the manifest apart.
const REQUIRED: [&str; 3] = [ACCURACY, PCA, TOKENIZER];

/// A bundle whose files were checked and read.
pub(super) struct Bundle {
    pub(super) manifest: Manifest,
    /// `name@digest`, where the digest is the manifest's.
    pub(super) version: String,
    pub(super) tokens: BpeTokens,
    pub(super) pca: Pca,
    pub(super) accuracy: Forest,
    pub(super) output_length: Option<Forest>,
    /// Category by model id.
    pub(super) categories: HashMap<String, u32>,
}

impl Bundle {
    /// Reads the files of a bundle by name.
    pub(super) fn read(files: &BTreeMap<String, Vec<u8>>) -> Result<Self, PredictError> {
        let manifest_bytes = file(files, MANIFEST)?;
        let manifest = read_manifest(manifest_bytes)?;
        check_digests(&manifest, files)?;
        let tokens = BpeTokens::from_bytes(file(files, TOKENIZER)?)?;
        check_features(&manifest.features, tokens.version())?;
        let categories = categories(&manifest)?;
        let accuracy = read_forest(ACCURACY, file(files, ACCURACY)?, &manifest.features.accuracy)?;
        let output_length = match files.get(OUTPUT_LENGTH) {
            Some(bytes) => Some(read_forest(OUTPUT_LENGTH, bytes, &manifest.features.output_length)?),
            None => None,
        };
        let digest = hex(&Sha256::digest(manifest_bytes));
        let version = format!("{}@{}", manifest.name, digest.get(..12).unwrap_or_default());
        let pca = Pca::from_bytes(file(files, PCA)?)?;
        Ok(Self { manifest, version, tokens, pca, accuracy, output_length, categories })
    }
}

fn file<'a>(files: &'a BTreeMap<String, Vec<u8>>, name: &str) -> Result<&'a [u8], PredictError> {
    files.get(name).map(Vec::as_slice).ok_or_else(|| PredictError::MissingFile { file: name.to_owned() })
}

fn read_manifest(bytes: &[u8]) -> Result<Manifest, PredictError> {
    #[derive(serde::Deserialize)]
    struct SchemaOnly {
        schema: String,
    }
    let parse_error = |source| PredictError::Manifest { source };
    // The schema first, so that another schema's manifest is named as such and not by its first odd field.
    let found = serde_json::from_slice::<SchemaOnly>(bytes).map_err(parse_error)?.schema;
    if found != SCHEMA {
        return Err(PredictError::Schema { found, expected: SCHEMA });
    }
    serde_json::from_slice(bytes).map_err(parse_error)
}

fn check_digests(manifest: &Manifest, files: &BTreeMap<String, Vec<u8>>) -> Result<(), PredictError> {
    for name in REQUIRED {
        if !manifest.files.contains_key(name) {
            return Err(PredictError::Inconsistent { what: format!("the manifest does not list `{name}`") });
        }
    }
    for (name, expected) in &manifest.files {
        let found = hex(&Sha256::digest(file(files, name)?));
        if found != expected.sha256 {
            let expected = expected.sha256.clone();
            return Err(PredictError::Digest { file: name.clone(), found, expected });
        }
    }
    if files.contains_key(OUTPUT_LENGTH) && !manifest.files.contains_key(OUTPUT_LENGTH) {
        return Err(PredictError::Inconsistent { what: format!("`{OUTPUT_LENGTH}` is not in the manifest") });
    }
    Ok(())
}

fn check_features(found: &FeatureManifest, version: &str) -> Result<(), PredictError> {
    let expected = FeatureManifest::current(version);
    if found.version != expected.version {
        let found = found.version.clone();
        return Err(PredictError::FeatureVersion { found, expected: expected.version });
    }
    if *found != expected {
        let what = String::from("the manifest's feature names or sizes are not those of its feature version");
        return Err(PredictError::Inconsistent { what });
    }
    Ok(())
}

fn categories(manifest: &Manifest) -> Result<HashMap<String, u32>, PredictError> {
    let mut categories = HashMap::new();
    for (category, model) in (0..).zip(&manifest.models) {
        if categories.insert(model.id.clone(), category).is_some() {
            let what = format!("the manifest lists the model `{}` twice", model.id);
            return Err(PredictError::Inconsistent { what });
        }
        if !(model.parameters_b.is_finite() && model.parameters_b > 0.0) {
            let what = format!("the model `{}` has {} billion parameters", model.id, model.parameters_b);
            return Err(PredictError::Inconsistent { what });
        }
    }
    Ok(categories)
}

fn read_forest(file: &'static str, bytes: &[u8], names: &[String]) -> Result<Forest, PredictError> {
    let forest = Forest::parse(bytes).map_err(|source| PredictError::Forest { file, source })?;
    if forest.feature_names() != names {
        let what = format!("`{file}` was trained on other features than the manifest lists");
        return Err(PredictError::Inconsistent { what });
    }
    Ok(forest)
}
