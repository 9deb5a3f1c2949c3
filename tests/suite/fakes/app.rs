//! A gateway on a loopback port over scripted upstreams.
//!
//! The pool: `small` (accuracy 0.5, one instance) and `big` (0.9, two instances, takes images), both
//! without calibration; by default `auto` goes to `big`, the better answer at the same price.

use std::{net::SocketAddr, sync::Arc};

use arc_swap::ArcSwap;
use bear::{
    affinity::{AffinityConfig, Pipeline},
    domain::{Capabilities, InstanceSpec, ModelIndex, ModelSpec, Now, Overhead, Price},
    gateway::{
        Dice, Gateway, GatewayConfig, Parts, serve,
        tokenize::{TokenizerConfig, Tokenizers},
    },
    latency::{EstimatorSetup, estimator},
    policy::PolicyConfig,
    pool::{Pool, PoolConfig},
    predict::Predictor,
    router::{self, Router, RouterConfig},
    store::{DecisionRow, Recorder, StoreConfig},
    telemetry::{clock::LiveClock, prometheus},
};
use tokio::net::TcpListener;

use super::Upstreams;

/// What differs from the default app.
pub(crate) struct Options {
    pub(crate) gateway: GatewayConfig,
    pub(crate) router: RouterConfig,
    pub(crate) pool: PoolConfig,
    pub(crate) tokenizer: TokenizerConfig,
    pub(crate) keep_prompts: bool,
    pub(crate) models: Vec<ModelSpec>,
    pub(crate) instances: Vec<InstanceSpec>,
    pub(crate) clock: Arc<dyn Now>,
    pub(crate) dice: Dice,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            gateway: GatewayConfig::default(),
            router: RouterConfig {
                policy: PolicyConfig { name: "bear".into(), ..PolicyConfig::default() },
                ..RouterConfig::default()
            },
            pool: PoolConfig { breaker_failures: 0, ..PoolConfig::default() },
            tokenizer: TokenizerConfig::default(),
            keep_prompts: false,
            models: models(),
            instances: instances(),
            clock: Arc::new(LiveClock::new()),
            dice: Dice::default(),
        }
    }
}

/// The app under test.
pub(crate) struct TestApp {
    pub(crate) address: SocketAddr,
    pub(crate) upstreams: Upstreams,
    pub(crate) pool: Arc<Pool>,
    pub(crate) client: reqwest::Client,
    recorder: Recorder,
    folder: tempfile::TempDir,
}

/// Returns a chat body with `rest` after the messages.
pub(crate) fn chat(model: &str, rest: &str) -> String {
    format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"hello"}}]{rest}}}"#)
}

impl TestApp {
    /// Starts the default app.
    pub(crate) async fn start() -> Self {
        Self::with(Options::default()).await
    }

    /// Starts an app.
    pub(crate) async fn with(options: Options) -> Self {
        let upstreams = Upstreams::start(3).await;
        Self::over(options, upstreams.clone(), upstreams.urls.clone()).await
    }

    /// Starts an app over given addresses.
    pub(crate) async fn over(options: Options, upstreams: Upstreams, urls: Vec<String>) -> Self {
        let tokenizers = vec![options.tokenizer; options.models.len()];
        let setup = EstimatorSetup {
            parameters_b: options.models.iter().map(|model| model.parameters_b).collect(),
            ..EstimatorSetup::default()
        };
        let pool = Arc::new(Pool::new(options.models, options.instances, options.pool).unwrap());
        let predictor = Arc::new(ArcSwap::from_pointee(Predictor::prior()));
        let parts = router::Parts {
            pool: Arc::clone(&pool),
            policy: options.router.policy.build().unwrap(),
            affinity: Pipeline::from_config(&AffinityConfig::default()).unwrap(),
            predictor: Arc::clone(&predictor),
            estimator: Arc::from((estimator("bea").unwrap().construct)(&setup)),
        };
        let clock = options.clock;
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/bear.db", folder.path().display());
        let store =
            StoreConfig { url: Some(url), keep_prompts: options.keep_prompts, ..StoreConfig::default() };
        let recorder = Recorder::start(&store).unwrap();
        let tokenizers = Tokenizers::load(&tokenizers, &clock).unwrap();
        let gateway = Gateway::new(
            Parts {
                router: Arc::new(Router::new(parts, options.router)),
                urls,
                tokenizers,
                predictor,
                recorder: recorder.clone(),
                clock,
                dice: options.dice,
                metrics: Some(prometheus::install().unwrap()),
            },
            options.gateway,
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, Arc::new(gateway.unwrap()), std::future::pending()));
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { address, upstreams, pool, client, recorder, folder }
    }

    /// Returns the address of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Prepares a POST of a JSON body.
    pub(crate) fn post(&self, path: &str, body: impl Into<String>) -> reqwest::RequestBuilder {
        self.client.post(self.url(path)).header("content-type", "application/json").body(body.into())
    }

    /// Posts a chat and waits for the head of its answer.
    pub(crate) async fn chat(&self, body: impl Into<String>) -> reqwest::Response {
        self.post("/v1/chat/completions", body).send().await.unwrap()
    }

    /// Gets a path.
    pub(crate) async fn get(&self, path: &str) -> reqwest::Response {
        self.client.get(self.url(path)).send().await.unwrap()
    }

    /// Returns whether no request is on any instance's ledger.
    pub(crate) fn is_idle(&self) -> bool {
        (0..self.pool.len()).all(|i| self.pool.load(i) == bear::domain::Load::default())
    }

    /// Ends the recorder and returns every decision row, oldest first.
    pub(crate) async fn rows(&self) -> Vec<DecisionRow> {
        self.recorder.shutdown(std::time::Duration::from_secs(20)).await;
        let url = format!("sqlite://{}/bear.db", self.folder.path().display());
        let mut rows = bear::store::open(&url, bear::store::IfMissing::Fail)
            .await
            .unwrap()
            .recent(10_000)
            .await
            .unwrap();
        rows.reverse();
        rows
    }
}

fn models() -> Vec<ModelSpec> {
    let price = Price { input_usd_per_mtok: 0.1, output_usd_per_mtok: 0.4, cached_input_usd_per_mtok: None };
    let model = |id: &str, parameters_b: f64, accuracy: f64, modalities: &[&str]| ModelSpec {
        id: id.into(),
        parameters_b,
        max_model_len_tokens: 4096,
        price,
        capabilities: Capabilities {
            modalities: modalities.iter().map(|kind| (*kind).to_owned()).collect(),
            ..Capabilities::default()
        },
        prior_accuracy: Some(accuracy),
        prior_output_tokens: Some(20.0),
    };
    vec![model("small", 0.6, 0.5, &["text"]), model("big", 8.2, 0.9, &["text", "image"])]
}

fn instances() -> Vec<InstanceSpec> {
    let instance = |id: &str, model: usize| InstanceSpec {
        id: id.into(),
        model: ModelIndex(model),
        dp_rank: 0,
        price: models()[model].price,
        batch_time: None,
        overhead: Overhead::default(),
        effective_prefill_tokens_per_s: None,
        peak_prefill_tokens_per_s: None,
    };
    vec![instance("small-0", 0), instance("big-0", 1), instance("big-1", 1)]
}
