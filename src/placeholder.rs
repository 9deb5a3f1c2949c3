//! Stand-ins for the rooms `latency` and `predict` until they are merged.

pub mod latency {
    //! Stand-in.
    use crate::domain as d;
    /// Stand-in.
    pub trait Estimator: Send + Sync {
        /// Stand-in.
        fn name(&self) -> &'static str;
        /// Stand-in.
        fn estimate(
            &self,
            load: d::QueryLoad,
            view: &d::InstanceView,
            now: d::Timestamp,
            horizon: d::Horizon,
        ) -> d::Estimate;
    }
}
pub mod predict {
    //! Stand-in.
    use crate::domain as d;
    /// Stand-in.
    #[derive(Clone, Debug)]
    pub struct QueryFeatures;
    /// Stand-in.
    #[derive(Debug)]
    pub struct Predictor;
    /// Stand-in.
    #[derive(Clone, Copy, Debug)]
    pub enum PredictionSource {
        /// Stand-in.
        Prior,
        /// Stand-in.
        Unknown,
    }
    impl PredictionSource {
        /// Stand-in.
        #[must_use]
        pub const fn label(self) -> &'static str {
            "prior"
        }
    }
    /// Stand-in.
    #[derive(Clone, Copy, Debug)]
    pub struct ModelPrediction {
        /// Stand-in.
        pub accuracy: Option<f64>,
        /// Stand-in.
        pub output_tokens: Option<f64>,
        /// Stand-in.
        pub source: PredictionSource,
    }
    impl Predictor {
        /// Stand-in.
        #[must_use]
        pub const fn prior() -> Self {
            Self
        }
        /// Stand-in.
        #[must_use]
        pub fn predict(&self, _f: &QueryFeatures, model: &d::ModelSpec) -> ModelPrediction {
            ModelPrediction {
                accuracy: model.prior_accuracy,
                output_tokens: model.prior_output_tokens,
                source: PredictionSource::Prior,
            }
        }
    }
    /// Stand-in.
    #[must_use]
    pub fn cost_usd(price: &d::Price, prompt_tokens: u32, cached_tokens: u32, output_tokens: f64) -> f64 {
        let cached = cached_tokens.min(prompt_tokens);
        let cached_price = price.cached_input_usd_per_mtok.unwrap_or(price.input_usd_per_mtok);
        (f64::from(prompt_tokens - cached) * price.input_usd_per_mtok
            + f64::from(cached) * cached_price
            + output_tokens * price.output_usd_per_mtok)
            / 1e6
    }
}
