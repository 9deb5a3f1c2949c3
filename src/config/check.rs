//! From raw values to checked ones: names resolved, ranges held, the bundle read, everything in one go.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    path::{self, Path},
    sync::Arc,
};

use super::{Config, ConfigError, InstanceConfig, Loaded, ModelConfig, bundle::read_bundle, range::Ranges};
use crate::{
    domain::{InstanceId, InstanceSpec, ModelId, ModelIndex, ModelSpec, Now, suggestion},
    gateway::GatewayError,
    policy::POLICIES,
    pool::PoolError,
    predict::Predictor,
    snapshots::SOURCES,
    store,
    telemetry::clock::LiveClock,
};

/// A configuration that a router can be built from.
#[derive(Clone)]
pub struct Checked {
    /// The raw values.
    pub config: Config,
    /// The models, in the file's order.
    pub models: Vec<ModelSpec>,
    /// The instances, in the file's order, at the same positions as in `config.instances`.
    pub instances: Vec<InstanceSpec>,
    /// The loaded bundle, or the prior.
    pub predictor: Arc<Predictor>,
    /// What works but is probably not meant.
    pub warnings: Vec<Warning>,
}

impl fmt::Debug for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checked").field("predictor", &self.predictor.version()).finish_non_exhaustive()
    }
}

/// What works but is probably not meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// A model that nothing serves.
    Unserved {
        /// The model.
        model: String,
    },
    /// A model of which neither accuracy nor length is known.
    Unpredicted {
        /// The model.
        model: String,
    },
    /// An instance without batch-time coefficients.
    Uncalibrated {
        /// The instance.
        instance: String,
    },
    /// Queueing parameters, which no estimator of this version reads.
    QueueingUnused {
        /// The instance.
        instance: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unserved { model } => write!(f, "no instance serves model `{model}`"),
            Self::Unpredicted { model } => write!(
                f,
                "nothing predicts the accuracy of model `{model}`; name a bundle that knows it or set its `prior`"
            ),
            Self::Uncalibrated { instance } => write!(
                f,
                "instance `{instance}` has no `batch_time`; its first-token times are rough until it is calibrated"
            ),
            Self::QueueingUnused { instance } => {
                write!(f, "`lps` of instance `{instance}` is read by no estimator of this version")
            }
        }
    }
}

impl Loaded {
    /// Checks everything and builds the checked values. Must be called inside a tokio runtime, in which
    /// snapshot sources are tried out.
    ///
    /// # Errors
    /// The first thing that cannot be used, with its place and a hint.
    pub fn check(self) -> Result<Checked, ConfigError> {
        self.check_routing()?;
        self.check_sections()?;
        self.check_serving()?;
        let models = self.models()?;
        self.check_aliases(&models)?;
        let instances = self.instances(&models)?;
        self.check_tokenizers()?;
        let predictor = self.predictor()?;
        let warnings = warnings(&self.config, &models, &instances, &predictor);
        Ok(Checked { config: self.config, models, instances, predictor: Arc::new(predictor), warnings })
    }

    fn check_routing(&self) -> Result<(), ConfigError> {
        let policy = &self.config.routing.policy;
        let names: Vec<&str> = POLICIES.iter().map(|entry| entry.name).collect();
        self.known("routing.policy.name", "policy", &policy.name, &names)?;
        policy.build().map_err(|error| self.section("routing.policy.options", error))?;
        self.config.routing.check().map_err(|error| self.section("routing", error))?;
        if self.config.routing.virtual_model.is_empty() {
            return Err(self.out_of_range(
                "routing.virtual_model",
                "empty",
                "the name that leaves the choice",
            ));
        }
        Ok(())
    }

    fn check_sections(&self) -> Result<(), ConfigError> {
        let Config { store, telemetry, affinity, .. } = &self.config;
        affinity.check().map_err(|error| self.section("affinity", error))?;
        if let Some(url) = &store.url {
            store::entry(url).map_err(|error| self.section("store.url", error))?;
        }
        if store.queue_mib == 0 {
            return Err(self.out_of_range("store.queue_mib", "0", "at least 1"));
        }
        if store.queue == 0 {
            return Err(self.out_of_range("store.queue", "0", "at least 1"));
        }
        telemetry.check().map_err(|error| self.section("telemetry", error))
    }

    fn check_serving(&self) -> Result<(), ConfigError> {
        let Config { listen, upstream, pool, .. } = &self.config;
        if listen.max_body_mib == 0 {
            return Err(self.out_of_range("listen.max_body_mib", "0", "at least 1"));
        }
        upstream.check().map_err(|error| {
            let key = match &error {
                GatewayError::TimeOut { key, .. } => key,
                GatewayError::Secret { .. } => "upstream.authorization",
                _ => "upstream",
            };
            self.section(key, error)
        })?;
        pool.check().map_err(|error| match error {
            PoolError::Config { key } => self.section(&format!("pool.{key}"), error),
            _ => self.section("pool", error),
        })
    }

    /// Reads each tokenizer folder once, however many models share it.
    fn check_tokenizers(&self) -> Result<(), ConfigError> {
        let clock: Arc<dyn Now> = Arc::new(LiveClock::new());
        let mut read = HashSet::new();
        for (i, model) in self.config.models.iter().enumerate() {
            let mut tokenizer = model.tokenizer.clone();
            // An error is to tell the whole path that was tried.
            tokenizer.files = tokenizer.files.map(|folder| path::absolute(&folder).unwrap_or(folder));
            if read.insert(tokenizer.files.clone()) {
                let place = |error| self.section(&format!("models.{i}.tokenizer.files"), error);
                tokenizer.check(&clock).map_err(place)?;
            }
        }
        Ok(())
    }

    fn models(&self) -> Result<Vec<ModelSpec>, ConfigError> {
        if self.config.models.is_empty() {
            return Err(ConfigError::Empty { what: "models" });
        }
        self.unique("models", "model", self.config.models.iter().map(|model| model.id.as_str()))?;
        self.config.models.iter().enumerate().map(|(i, model)| self.model(i, model)).collect()
    }

    fn model(&self, i: usize, model: &ModelConfig) -> Result<ModelSpec, ConfigError> {
        let key = format!("models.{i}");
        let ranges = Ranges { loaded: self, key: &key };
        if model.id == self.config.routing.virtual_model {
            let expected = "another name than `routing.virtual_model`, which leaves the choice to the router";
            return Err(self.out_of_range(&format!("{key}.id"), &model.id, expected));
        }
        ranges.name("id", &model.id)?;
        ranges.positive("parameters_b", Some(model.parameters_b))?;
        ranges.positive("max_model_len", Some(f64::from(model.max_model_len)))?;
        ranges.price("price", &model.price)?;
        ranges.share("prior.accuracy", model.prior.accuracy)?;
        ranges.positive("prior.output_tokens", model.prior.output_tokens)?;
        Ok(ModelSpec {
            id: ModelId::from(model.id.as_str()),
            parameters_b: model.parameters_b,
            max_model_len_tokens: model.max_model_len,
            price: model.price,
            capabilities: model.capabilities.clone(),
            prior_accuracy: model.prior.accuracy,
            prior_output_tokens: model.prior.output_tokens,
        })
    }

    fn check_aliases(&self, models: &[ModelSpec]) -> Result<(), ConfigError> {
        let routing = &self.config.routing;
        let mut names: Vec<&str> = models.iter().map(|model| model.id.as_str()).collect();
        for alias in routing.aliases.keys() {
            if names.contains(&alias.as_str()) || *alias == routing.virtual_model {
                let expected = "a name that no model has";
                return Err(self.out_of_range(&format!("routing.aliases.{alias}"), alias, expected));
            }
        }
        names.push(&routing.virtual_model);
        for (alias, target) in &routing.aliases {
            self.known(&format!("routing.aliases.{alias}"), "model", target, &names)?;
        }
        Ok(())
    }

    fn instances(&self, models: &[ModelSpec]) -> Result<Vec<InstanceSpec>, ConfigError> {
        let instances = &self.config.instances;
        if instances.is_empty() {
            return Err(ConfigError::Empty { what: "instances" });
        }
        self.unique("instances", "instance", instances.iter().map(|instance| instance.id.as_str()))?;
        instances.iter().enumerate().map(|(i, instance)| self.instance(i, instance, models)).collect()
    }

    fn instance(
        &self,
        i: usize,
        instance: &InstanceConfig,
        models: &[ModelSpec],
    ) -> Result<InstanceSpec, ConfigError> {
        let key = format!("instances.{i}");
        let ranges = Ranges { loaded: self, key: &key };
        ranges.name("id", &instance.id)?;
        ranges.address("url", &instance.url)?;
        let names: Vec<&str> = models.iter().map(|model| model.id.as_str()).collect();
        let model = self.known(&format!("{key}.model"), "model", &instance.model, &names)?;
        let sources: Vec<&str> = SOURCES.iter().map(|entry| entry.name).collect();
        self.known(
            &format!("{key}.snapshots.source"),
            "snapshot source",
            &instance.snapshots.source,
            &sources,
        )?;
        instance.snapshots.build().map_err(|error| self.section(&format!("{key}.snapshots"), error))?;
        if let Some(times) = &instance.batch_time {
            ranges.positive("batch_time.b0_s", Some(times.b0_s))?;
            for (name, value) in
                [("b1_s", times.b1_s), ("b2_s", times.b2_s), ("b3_s", times.b3_s), ("b4_s", times.b4_s)]
            {
                ranges.not_negative(&format!("batch_time.{name}"), value)?;
            }
        }
        ranges.not_negative("overhead.ingress_s", instance.overhead.ingress_s)?;
        ranges.not_negative("overhead.egress_s", instance.overhead.egress_s)?;
        ranges.positive("effective_prefill_tokens_per_s", instance.effective_prefill_tokens_per_s)?;
        ranges.positive("peak_prefill_tokens_per_s", instance.peak_prefill_tokens_per_s)?;
        ranges.positive("lps.service_rate_per_s", instance.lps.service_rate_per_s)?;
        ranges.positive("lps.concurrency", instance.lps.concurrency.map(f64::from))?;
        if let Some(price) = &instance.price {
            ranges.price("price", price)?;
        }
        Ok(InstanceSpec {
            id: InstanceId::from(instance.id.as_str()),
            model: ModelIndex(model),
            dp_rank: instance.dp_rank,
            price: instance.price.unwrap_or(models[model].price),
            batch_time: instance.batch_time,
            overhead: instance.overhead,
            effective_prefill_tokens_per_s: instance.effective_prefill_tokens_per_s,
            peak_prefill_tokens_per_s: instance.peak_prefill_tokens_per_s,
        })
    }

    fn predictor(&self) -> Result<Predictor, ConfigError> {
        let predictors = &self.config.predictors;
        let Some(folder) = &predictors.bundle else { return Ok(Predictor::prior()) };
        let folder = path::absolute(folder).unwrap_or_else(|_| folder.clone());
        let files = self.bundle_files(&folder)?;
        let predictor =
            Predictor::from_bundle(&files).map_err(|error| self.section("predictors.bundle", error))?;
        if predictor.is_synthetic() && !predictors.allow_synthetic {
            let place = self.place("predictors.bundle");
            return Err(ConfigError::Synthetic { place, path: folder });
        }
        Ok(predictor)
    }

    fn bundle_files(&self, folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, ConfigError> {
        read_bundle(folder).map_err(|error| ConfigError::BundleFile {
            place: self.place("predictors.bundle"),
            path: error.path.into(),
            source: error.source,
        })
    }

    /// Returns the position of a name among the known ones.
    fn known(&self, key: &str, kind: &'static str, name: &str, known: &[&str]) -> Result<usize, ConfigError> {
        known.iter().position(|candidate| *candidate == name).ok_or_else(|| ConfigError::UnknownName {
            place: self.place(key),
            kind,
            name: name.into(),
            suggestion: suggestion(name, known),
        })
    }

    fn unique<'a>(
        &self,
        key: &str,
        kind: &'static str,
        names: impl Iterator<Item = &'a str>,
    ) -> Result<(), ConfigError> {
        let mut seen = HashSet::new();
        for (i, name) in names.enumerate() {
            if !seen.insert(name) {
                let place = self.place(&format!("{key}.{i}.id"));
                return Err(ConfigError::Duplicate { place, kind, name: name.into() });
            }
        }
        Ok(())
    }

    fn section(&self, key: &str, source: impl std::error::Error + Send + Sync + 'static) -> ConfigError {
        ConfigError::Section { place: self.place(key), source: Box::new(source) }
    }

    pub(super) fn out_of_range(&self, key: &str, value: &str, expected: &'static str) -> ConfigError {
        ConfigError::Range { place: self.place(key), key: key.into(), value: value.into(), expected }
    }
}

fn warnings(
    config: &Config,
    models: &[ModelSpec],
    instances: &[InstanceSpec],
    predictor: &Predictor,
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for (i, model) in models.iter().enumerate() {
        let id = model.id.as_str();
        if !instances.iter().any(|instance| instance.model.0 == i) {
            warnings.push(Warning::Unserved { model: id.into() });
        }
        if !predictor.knows(id) && model.prior_accuracy.is_none() {
            warnings.push(Warning::Unpredicted { model: id.into() });
        }
    }
    for instance in &config.instances {
        if instance.batch_time.is_none() {
            warnings.push(Warning::Uncalibrated { instance: instance.id.clone() });
        }
        if instance.lps != super::LpsConfig::default() {
            warnings.push(Warning::QueueingUnused { instance: instance.id.clone() });
        }
    }
    warnings
}
