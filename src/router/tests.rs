//! The router over two small models and an estimator that says what the test wants.

mod eligibility;
mod steps;
mod traces;

use std::{
    collections::BTreeSet,
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::{
    affinity::AffinityConfig,
    domain::{
        Bounds, Capabilities, CountSource, Endpoint, Estimate, EstimateSource, Horizon, InstanceId,
        InstanceSpec, InstanceView, ModelId, ModelIndex, ModelSpec, Named, Needs, NoEstimate, Now, Outcome,
        Overhead, Price, PromptCount, QueryLoad, Timestamp, Tradeoff, Ttft,
    },
    policy::PolicyConfig,
    pool::{NoSink, PoolConfig},
};

pub(super) const ARRIVED_US: u64 = 1_764_460_800_000_000;

pub(super) struct Clock(AtomicU64);

impl Clock {
    pub(super) fn advance_ms(&self, ms: u64) {
        self.0.fetch_add(ms * 1000, Ordering::Relaxed);
    }
}

impl Now for Clock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_us(self.0.load(Ordering::Relaxed))
    }
}

/// Milliseconds of TTFT by pool position; absent: never.
pub(super) struct Fixed(pub(super) Mutex<Vec<Option<u64>>>);

impl Estimator for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn estimate(&self, load: QueryLoad, view: &InstanceView, _now: Timestamp, _horizon: Horizon) -> Estimate {
        assert!(load.output_tokens >= 1 && load.prompt_tokens >= 1);
        let position: usize = view.spec.id.as_str().parse().unwrap();
        let ms = self.0.lock().unwrap()[position];
        Estimate {
            ttft: ms.map_or(Err(NoEstimate::Unschedulable), |ms| {
                Ok(Ttft { wait_s: 0.0, prefill_s: ms as f64 / 1e3 })
            }),
            e2e_s: None,
            tpot_s: None,
            spread_s: None,
            source: EstimateSource::Bea,
            age_s: Some(0.0),
        }
    }
}

/// Two replicas of a small model, one instance of a large one.
pub(super) struct Rig {
    pub(super) router: Router,
    pub(super) clock: Arc<Clock>,
    pub(super) fixed: Arc<Fixed>,
}

pub(super) const SMALL: ModelIndex = ModelIndex(0);
pub(super) const LARGE: ModelIndex = ModelIndex(1);

/// Made once: loading the tokenizer is slow.
static PRIOR: LazyLock<Arc<Predictor>> = LazyLock::new(|| Arc::new(Predictor::prior()));

static FEATURES: LazyLock<Arc<QueryFeatures>> =
    LazyLock::new(|| Arc::new(PRIOR.describe("List three rivers.")));

pub(super) fn models() -> Vec<ModelSpec> {
    let model = |id: &str, accuracy, output_tokens, usd| ModelSpec {
        id: ModelId::from(id),
        parameters_b: 1.0,
        max_model_len_tokens: 4096,
        price: Price { input_usd_per_mtok: usd, output_usd_per_mtok: 2.0 * usd, ..Price::default() },
        capabilities: Capabilities::default(),
        prior_accuracy: Some(accuracy),
        prior_output_tokens: Some(output_tokens),
    };
    vec![model("small", 0.4, 100.0, 0.1), model("large", 0.9, 200.0, 1.0)]
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with(models(), "bear")
    }

    pub(super) fn with(models: Vec<ModelSpec>, policy: &str) -> Self {
        let instance = |position: usize, model: ModelIndex| InstanceSpec {
            id: InstanceId::from(position.to_string().as_str()),
            model,
            dp_rank: 0,
            price: models[model.0].price,
            batch_time: None,
            overhead: Overhead::default(),
            effective_prefill_tokens_per_s: None,
            peak_prefill_tokens_per_s: None,
        };
        let instances = vec![instance(0, SMALL), instance(1, SMALL), instance(2, LARGE)];
        let policy = PolicyConfig { name: policy.to_owned(), ..PolicyConfig::default() };
        let config = RouterConfig { policy: policy.clone(), ..RouterConfig::default() };
        let fixed = Arc::new(Fixed(Mutex::new(vec![Some(50), Some(50), Some(50)])));
        let parts = Parts {
            pool: Arc::new(Pool::new(models, instances, PoolConfig::default()).unwrap()),
            policy: policy.build().unwrap(),
            affinity: Pipeline::from_config(&AffinityConfig::default()).unwrap(),
            predictor: Arc::new(ArcSwap::new(Arc::clone(&PRIOR))),
            estimator: Arc::clone(&fixed) as Arc<dyn Estimator>,
        };
        let router = Router::new(parts, config);
        Self { router, clock: Arc::new(Clock(AtomicU64::new(ARRIVED_US))), fixed }
    }

    pub(super) fn ttfts_ms(&self, ms: [Option<u64>; 3]) {
        *self.fixed.0.lock().unwrap() = ms.to_vec();
    }

    pub(super) fn route(&self, described: &Described) -> Result<Routed, RouteError> {
        self.attempt(described, &[], 1)
    }

    pub(super) fn attempt(
        &self,
        described: &Described,
        exclude: &[usize],
        number: u32,
    ) -> Result<Routed, RouteError> {
        let attempt = Attempt { id: String::from("attempt"), exclude, number, sink: Arc::new(NoSink) };
        let now: Arc<dyn Now> = Arc::clone(&self.clock) as Arc<dyn Now>;
        self.router.route(described, attempt, &now, &mut rng(), &Silent)
    }

    pub(super) fn dry_run(&self, described: &Described) -> Result<Decision, RouteError> {
        self.router.dry_run(described, self.clock.now(), &mut rng())
    }
}

pub(super) fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(11)
}

/// A virtual request with 1000 prompt tokens under either model, no target.
pub(super) fn described(change: impl FnOnce(&mut Query)) -> Described {
    let mut query = Query {
        id: String::from("q"),
        arrived: Timestamp::from_unix_us(ARRIVED_US),
        tenant: None,
        priority: 0,
        adapter: None,
        endpoint: Endpoint::Chat,
        named: Named::Virtual,
        requested_model: String::from("auto"),
        needs: Needs::default(),
        streamed: true,
        max_output_tokens: None,
        choices: 1,
        ttft_target: None,
        tpot_target: None,
        bounds: Bounds::default(),
        tradeoff: Tradeoff { lambda_per_usd: 100.0, delta_per_s: 0.0 },
        prompts: vec![PromptCount::one(1000, CountSource::Tokenizer); 2],
        prefix: [].into(),
    };
    change(&mut query);
    Described { query, features: Some(Arc::clone(&FEATURES)), given: None }
}

/// Every row's reason for being out.
pub(super) fn reasons(rows: &[Candidate]) -> Vec<Option<crate::domain::Ineligible>> {
    rows.iter().map(|row| row.ineligible.clone()).collect()
}

pub(super) fn none_eligible(result: Result<Routed, RouteError>) -> Vec<Candidate> {
    match result {
        Err(RouteError::NoneEligible(rows)) => rows,
        other => panic!("expected none eligible, got {other:?}"),
    }
}

pub(super) fn none_usable(result: Result<Routed, RouteError>) -> Vec<Candidate> {
    match result {
        Err(RouteError::NoneUsable(rows)) => rows,
        other => panic!("expected none usable, got {other:?}"),
    }
}

pub(super) fn modalities(kinds: &[&str]) -> BTreeSet<String> {
    kinds.iter().map(|kind| (*kind).to_owned()).collect()
}

pub(super) fn target(ms: u64) -> impl FnOnce(&mut Query) {
    move |query| query.ttft_target = Some(Duration::from_millis(ms))
}

/// Hears every end.
#[derive(Default)]
pub(super) struct Ends(pub(super) Mutex<Vec<Outcome>>);

impl SettleSink for Ends {
    fn settled(&self, outcome: &Outcome) {
        self.0.lock().unwrap().push(outcome.clone());
    }
}
