//! Digests of what runs depend on: a finished run is taken for another only where all of it is equal.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::{PredictorChoice, RouterChoice, Scenario, data_files, fleet::Supplies};
use crate::{predict::digest::hex, truth::ProfileEntry};

/// Digest of the sources that decide what runs measure, by build.rs.
const SOURCES: &str = env!("BEAR_LAB_SOURCES");

/// Digests of the data files and predictors that scenarios name.
#[derive(Clone, Debug, Default)]
pub struct Fingerprints {
    files: BTreeMap<String, String>,
    bundles: BTreeMap<String, String>,
}

impl Fingerprints {
    /// Takes them of everything that was loaded.
    #[must_use]
    pub fn of(supplies: &Supplies) -> Self {
        let file =
            |(name, bytes): (&String, &std::sync::Arc<[u8]>)| (name.clone(), hex(&Sha256::digest(bytes)));
        Self {
            files: supplies.files.iter().map(file).collect(),
            bundles: supplies
                .bundles
                .iter()
                .map(|(name, p)| (name.clone(), p.version().to_owned()))
                .collect(),
        }
    }

    /// Returns the digest of one router's runs, their seeds aside; the point is in place in the scenario.
    pub(super) fn of_run(&self, scenario: &Scenario, router: &RouterChoice) -> String {
        self.digest(&Scenario { routers: vec![router.clone()], ..scenario.clone() })
    }

    /// Returns the digest of what all runs of a scenario share.
    pub(super) fn of_world(&self, scenario: &Scenario) -> String {
        self.digest(&Scenario { routers: Vec::new(), ..scenario.clone() })
    }

    /// Digests a scenario, what stands behind its names, and the code that plays it, in twelve hexadecimal digits.
    fn digest(&self, scenario: &Scenario) -> String {
        let bare =
            Scenario { about: String::new(), seeds: Vec::new(), axes: BTreeMap::new(), ..scenario.clone() };
        let mut sha = Sha256::new();
        sha.update(SOURCES);
        sha.update(serde_json::to_string(&bare).unwrap_or_default());
        for entry in bare.pool.iter().filter_map(|model| ProfileEntry::find(&model.profile)) {
            sha.update(entry.truth);
            sha.update(entry.fit);
        }
        for file in [&bare.workload, &bare.arrivals].map(|named| data_files(&named.options)).concat() {
            sha.update(self.files.get(&file).map_or("", String::as_str));
        }
        let own = bare.routers.iter().filter_map(|router| router.predictor.as_ref());
        for choice in own.chain([&bare.predictor]) {
            if let PredictorChoice::Bundle(name) = choice {
                sha.update(self.bundles.get(name).map_or("", String::as_str));
            }
        }
        hex(&sha.finalize())[..12].to_owned()
    }
}
