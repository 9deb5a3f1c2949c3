//! What runs need from outside: scenario files, data files and predictors.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fs,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, bail};
use flate2::read::MultiGzDecoder;

use crate::{
    config::read_bundle,
    lab::{PredictorChoice, Scenario, data_files, fleet::Supplies},
    predict::Predictor,
};

/// A scenario that ships with the program.
pub(super) struct BuiltIn {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
}

macro_rules! scenario {
    ($name:literal) => {
        BuiltIn { name: $name, text: include_str!(concat!("../../../config/scenarios/", $name, ".yaml")) }
    };
}

/// The scenarios of the figures, in the order in which they are played.
pub(super) const SCENARIOS: &[BuiltIn] = &[
    scenario!("poisson"),
    scenario!("bursty"),
    scenario!("delta"),
    scenario!("delta-others"),
    scenario!("lambda"),
    scenario!("estimator"),
    scenario!("staleness"),
    scenario!("staleness-parts"),
    scenario!("misfit"),
    scenario!("other-mix"),
    scenario!("weights"),
    scenario!("load"),
    scenario!("requests"),
];

macro_rules! bundle {
    ($name:literal) => {
        (
            $name,
            &[
                ("manifest.json", include_bytes!(concat!("../../../models/lab/", $name, "/manifest.json"))),
                ("accuracy.txt", include_bytes!(concat!("../../../models/lab/", $name, "/accuracy.txt"))),
                (
                    "output_length.txt",
                    include_bytes!(concat!("../../../models/lab/", $name, "/output_length.txt")),
                ),
                ("card.md", include_bytes!(concat!("../../../models/lab/", $name, "/card.md"))),
                ("pca.bin", include_bytes!(concat!("../../../models/lab/", $name, "/pca.bin"))),
                (
                    "feature_tokenizer.json",
                    include_bytes!(concat!("../../../models/lab/", $name, "/feature_tokenizer.json")),
                ),
            ],
        )
    };
}

/// A bundle's files by name.
type BundleFiles = &'static [(&'static str, &'static [u8])];

/// The predictors that ship with the program, by name.
const BUNDLES: &[(&str, BundleFiles)] = &[bundle!("four-tasks"), bundle!("other-mix")];

/// Reads a scenario that is built in under this name, or the file at this path.
pub(super) fn scenario(name_or_file: &str) -> anyhow::Result<Scenario> {
    if let Some(built_in) = SCENARIOS.iter().find(|built_in| built_in.name == name_or_file) {
        return Ok(Scenario::parse(built_in.text, built_in.name)?);
    }
    let path = Path::new(name_or_file);
    if !path.exists() {
        let known = SCENARIOS.iter().map(|built_in| built_in.name).collect::<Vec<_>>().join(", ");
        bail!("no scenario is called `{name_or_file}` and no file lies there (hint: built in are {known})");
    }
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Scenario::parse(&text, name_or_file)?)
}

/// Loads what scenarios name: data files (unpacked where they end in `.gz`) and predictors.
///
/// A data file is looked for as it stands, then in `traces/`, `eval/` and the top of the folder in BEAR_DATA.
pub(super) fn load(scenarios: &[Scenario]) -> anyhow::Result<Supplies> {
    let mut supplies = Supplies::default();
    for scenario in scenarios {
        for file in [&scenario.workload, &scenario.arrivals].map(|named| data_files(&named.options)).concat()
        {
            if let Entry::Vacant(vacant) = supplies.files.entry(file) {
                let bytes = read_data(vacant.key())?;
                vacant.insert(bytes.into());
            }
        }
    }
    for name in scenarios.iter().flat_map(bundles).collect::<BTreeSet<_>>() {
        let predictor = bundle(&name).with_context(|| format!("predictor `{name}`"))?;
        supplies.bundles.insert(name, Arc::new(predictor));
    }
    Ok(supplies)
}

fn bundles(scenario: &Scenario) -> Vec<String> {
    let own = scenario.routers.iter().filter_map(|router| router.predictor.as_ref());
    // An axis may name further predictors.
    let axis = scenario.axes.get("predictor").into_iter().flatten();
    let axis: Vec<PredictorChoice> = axis.filter_map(|v| serde_json::from_value(v.clone()).ok()).collect();
    let name = |choice: &PredictorChoice| match choice {
        PredictorChoice::Bundle(name) => Some(name.clone()),
        PredictorChoice::Mean | PredictorChoice::Oracle => None,
    };
    own.chain([&scenario.predictor]).chain(&axis).filter_map(name).collect()
}

fn bundle(name: &str) -> anyhow::Result<Predictor> {
    let files: BTreeMap<String, Vec<u8>> = match BUNDLES.iter().find(|(built_in, _)| *built_in == name) {
        Some((_, files)) => files.iter().map(|(file, bytes)| ((*file).to_owned(), bytes.to_vec())).collect(),
        None => read_bundle(Path::new(name))?,
    };
    Ok(Predictor::from_bundle(&files)?)
}

fn read_data(file: &str) -> anyhow::Result<Vec<u8>> {
    let path = find_data(file).with_context(|| {
        format!(
            "data file `{file}` is not there (hint: give its path, or set BEAR_DATA to the folder it lies in)"
        )
    })?;
    let packed = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    if path.extension().is_none_or(|extension| extension != "gz") {
        return Ok(packed);
    }
    let mut bytes = Vec::new();
    let unpacked = MultiGzDecoder::new(packed.as_slice()).read_to_end(&mut bytes);
    unpacked.with_context(|| format!("cannot unpack {}", path.display()))?;
    Ok(bytes)
}

fn find_data(file: &str) -> Option<PathBuf> {
    let below = std::env::var_os("BEAR_DATA").map(PathBuf::from);
    let candidates = below
        .iter()
        .flat_map(|data| [data.join(file), data.join("traces").join(file), data.join("eval").join(file)]);
    [PathBuf::from(file)].into_iter().chain(candidates).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::{Fingerprints, grid};

    #[test]
    fn every_built_in_scenario_parses_expands_and_finds_its_supplies() {
        for built_in in SCENARIOS {
            let scenario = scenario(built_in.name).unwrap();
            assert_eq!(scenario.name, built_in.name);
            let supplies = load(std::slice::from_ref(&scenario)).unwrap();
            let cells = grid::cells(&scenario, &Arc::new(Fingerprints::of(&supplies))).unwrap();
            assert!(!cells.is_empty());
            for cell in &cells {
                cell.router.policy.build().unwrap();
            }
        }
    }

    #[test]
    fn a_name_that_is_neither_built_in_nor_a_file_lists_the_built_in_ones() {
        let error = scenario("posson").unwrap_err().to_string();
        assert!(error.contains("posson") && error.contains("poisson"), "{error}");
    }
}
