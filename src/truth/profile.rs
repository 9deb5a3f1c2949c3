//! Profiles: the fixed truth of simulated engines. Those in `config/engines/` are part of the binary;
//! another is a file of the same form.

use serde::{Deserialize, Serialize};

use super::{
    TruthError,
    batch_time::{BatchTimeTruth, Delay},
    lengths::OutputLengths,
};
use crate::domain::{BatchTimeCoefficients, Overhead, snapshot::EngineParams};

/// One embedded profile.
#[derive(Clone, Copy, Debug)]
pub struct ProfileEntry {
    /// Its registered name.
    pub name: &'static str,
    /// Its truth, as YAML.
    pub truth: &'static str,
    /// The estimator's coefficients fitted to it, as YAML.
    pub fit: &'static str,
}

macro_rules! profile {
    ($name:literal) => {
        ProfileEntry {
            name: $name,
            truth: include_str!(concat!("../../config/engines/", $name, ".yaml")),
            fit: include_str!(concat!("../../config/engines/", $name, ".fit.yaml")),
        }
    };
}

/// The embedded profiles, smallest model first. To add one, add its two files and a line here.
pub const PROFILES: &[ProfileEntry] =
    &[profile!("qwen3-0.6b-h100"), profile!("qwen3-8b-h100"), profile!("qwen3-32b-2xh100")];

/// The truth of one simulated engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The model it serves.
    pub model: String,
    /// What it stands for, in words.
    pub hardware: String,
    /// Parameters of the model, billions.
    pub parameters_b: f64,
    /// The scheduler's parameters.
    pub engine: EngineParams,
    /// The time of a batch.
    pub batch_time: BatchTimeTruth,
    /// Standard deviation of the logarithm of the factor on each batch's time.
    pub step_noise_sigma: f64,
    /// From the server to the engine's queue.
    pub ingress: Delay,
    /// From the end of the emitting batch to the stream.
    pub egress: Delay,
    /// Prompt tokens of one image part.
    pub image_tokens: u32,
    /// The lengths of answers.
    pub output_tokens: OutputLengths,
}

/// A fit of the estimator's coefficients to a profile: `config/engines/NAME.fit.yaml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileFit {
    /// The profile it was fitted to.
    pub profile: String,
    /// The command that made it.
    pub made_by: String,
    /// The seed of the load, the lengths and the noise.
    pub seed: u64,
    /// Batches it was fitted on.
    pub batches: usize,
    /// The coefficients of eq. 12.
    pub batch_time: BatchTimeCoefficients,
    /// Mean time outside the batches.
    pub overhead: Overhead,
    /// Prefill tokens over the time of all batches with prefill (θ of eq. 8 and 14), tokens/s.
    pub effective_prefill_tokens_per_s: f64,
    /// One full budget of fresh prompt over its time, tokens/s.
    pub peak_prefill_tokens_per_s: f64,
    /// Mean absolute relative error against the noisy times of other batches of the same load.
    pub mape: f64,
    /// Mean absolute relative error against their times without noise.
    pub mape_without_noise: f64,
    /// Largest relative error against their times without noise.
    pub max_error: f64,
    /// Largest relative error of a single fresh prompt of 0.5 to 2 times the corner's tokens.
    pub corner_error: f64,
}

impl Profile {
    /// Parses the embedded profile of this name.
    ///
    /// # Errors
    /// No profile is built in under it; the error lists those that are.
    pub fn built_in(name: &str) -> Result<Self, TruthError> {
        let Some(entry) = ProfileEntry::find(name) else {
            let known = PROFILES.iter().map(|p| p.name).collect::<Vec<_>>().join(", ");
            return Err(TruthError::UnknownProfile { name: name.to_string(), known });
        };
        Self::parse(entry.truth, entry.name)
    }

    /// Parses and checks a profile; `place` names it in errors.
    ///
    /// # Errors
    /// Fails on YAML that is not a profile and on values that break a rule.
    pub fn parse(text: &str, place: &str) -> Result<Self, TruthError> {
        let profile: Self = serde_saphyr::from_str(text).map_err(|source| TruthError::ParseProfile {
            place: place.to_string(),
            source: Box::new(source),
        })?;
        match profile.broken_rule() {
            None => Ok(profile),
            Some((key, rule)) => Err(TruthError::InvalidProfile { place: place.to_string(), key, rule }),
        }
    }

    fn broken_rule(&self) -> Option<(String, &'static str)> {
        let seconds = self
            .batch_time
            .named()
            .map(|(name, value)| (format!("batch_time.{name}"), value))
            .into_iter()
            .chain([
                ("ingress.mean_s".to_string(), self.ingress.mean_s),
                ("ingress.sd_s".to_string(), self.ingress.sd_s),
                ("egress.mean_s".to_string(), self.egress.mean_s),
                ("egress.sd_s".to_string(), self.egress.sd_s),
                ("step_noise_sigma".to_string(), self.step_noise_sigma),
                ("output_tokens.factor".to_string(), self.output_tokens.factor),
            ]);
        for (key, value) in seconds {
            if !(value.is_finite() && value >= 0.0) {
                return Some((key, "must be a finite number of at least 0"));
            }
        }
        if self.batch_time.fixed_s + self.batch_time.floor_s <= 0.0 {
            return Some((
                "batch_time".to_string(),
                "fixed_s + floor_s must be positive, or time stands still",
            ));
        }
        let [least, most] = self.output_tokens.clip;
        if least < 2 || most < least {
            return Some(("output_tokens.clip".to_string(), "must be [least, most] with 2 <= least <= most"));
        }
        if self
            .output_tokens
            .tasks
            .values()
            .any(|l| !(l.mu.is_finite() && l.sigma.is_finite() && l.sigma >= 0.0))
        {
            return Some((
                "output_tokens.tasks".to_string(),
                "mu and sigma must be finite, sigma at least 0",
            ));
        }
        None
    }
}

impl ProfileEntry {
    /// Returns the embedded profile of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        PROFILES.iter().find(|p| p.name == name)
    }

    /// Parses the fit beside the profile.
    ///
    /// # Errors
    /// Fails when the file is not a fit.
    pub fn parse_fit(&self) -> Result<ProfileFit, TruthError> {
        serde_saphyr::from_str(self.fit).map_err(|source| TruthError::ParseProfile {
            place: format!("{}.fit", self.name),
            source: Box::new(source),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_embedded_profile_parses_and_names_its_model() {
        let models: Vec<String> = PROFILES.iter().map(|p| Profile::built_in(p.name).unwrap().model).collect();
        assert_eq!(models, ["qwen3-0.6b", "qwen3-8b", "qwen3-32b"]);
        for entry in PROFILES {
            assert_eq!(entry.parse_fit().unwrap().profile, entry.name);
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = Profile::built_in("qwen3-14b").unwrap_err().to_string();
        assert!(error.contains("qwen3-14b") && error.contains("qwen3-32b-2xh100"), "{error}");
    }

    #[test]
    fn broken_values_and_unknown_keys_are_refused_with_their_key() {
        let text = PROFILES[0].truth;
        let bad = text.replace("step_noise_sigma: 0.08", "step_noise_sigma: -1");
        let error = Profile::parse(&bad, "mine").unwrap_err().to_string();
        assert!(error.contains("step_noise_sigma") && error.contains("mine"), "{error}");
        let bad = text.replace("clip: [2, 2000]", "clip: [1, 2000]");
        assert!(Profile::parse(&bad, "mine").unwrap_err().to_string().contains("clip"));
        let bad = text.replace("step_noise_sigma", "step_noise");
        assert!(Profile::parse(&bad, "mine").unwrap_err().to_string().contains("step_noise"));
    }
}
