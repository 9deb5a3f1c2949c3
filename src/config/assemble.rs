//! From a checked configuration to a running router: the one path that `bear serve`, `bear demo` and
//! the tests share.

use std::{future::Future, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use metrics::gauge;
use thiserror::Error;
use tokio::{net::TcpListener, task::JoinHandle, time::interval};

use super::{Checked, show::digest, watch::watch};
use crate::{
    affinity::Pipeline,
    domain::Now,
    gateway::{self, Dice, Gateway, GatewayConfig, GatewayError, tokenize::Tokenizers},
    latency::{self, Estimator, EstimatorSetup},
    pool::Pool,
    router::{self, Router},
    snapshots,
    store::{Origin, Recorder, RecorderStats},
    telemetry::{
        names::{self, label},
        prometheus::{Exposition, UPKEEP_PERIOD},
    },
};

/// The estimator that routes: it falls back to coarser ones by itself where a view allows no replay.
const ESTIMATOR: &str = "bea";
/// Longest wait for the store to take the last rows.
const LAST_ROWS: Duration = Duration::from_secs(5);

/// A part that could not be set up.
#[derive(Debug, Error)]
#[error("cannot set up the {part}")]
pub struct AssembleError {
    /// Which.
    pub part: &'static str,
    /// The room's word.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// A router whose background tasks run; requests flow once it serves. Dropping it ends the tasks.
pub struct Running {
    /// The HTTP side.
    pub gateway: Arc<Gateway>,
    /// The instances' live state.
    pub pool: Arc<Pool>,
    /// Who keeps decision rows.
    pub recorder: Recorder,
    tasks: Vec<JoinHandle<()>>,
}

/// Builds the predictor, the pool, its snapshot sources, the router, the store's recorder and the
/// gateway, and starts their tasks on the present tokio runtime. Nothing listens yet.
///
/// # Errors
/// [`AssembleError`] names the part and the cause.
pub fn assemble(
    checked: &Checked,
    clock: &Arc<dyn Now>,
    metrics: Option<Exposition>,
) -> Result<Running, AssembleError> {
    let config = &checked.config;
    let predictor = Arc::new(ArcSwap::from(Arc::clone(&checked.predictor)));
    gauge!(names::PREDICTOR_INFO.name, label::VERSION => checked.predictor.version().to_owned()).set(1.0);
    let pool = Pool::new(checked.models.clone(), checked.instances.clone(), config.pool);
    let pool = Arc::new(pool.map_err(part("pool"))?);
    let parts = router::Parts {
        pool: Arc::clone(&pool),
        policy: config.routing.policy.build().map_err(part("routing policy"))?,
        affinity: Pipeline::from_config(&config.affinity).map_err(part("affinity pipeline"))?,
        predictor: Arc::clone(&predictor),
        estimator: estimator(checked)?,
    };
    let router = Arc::new(Router::new(parts, config.routing.clone()));
    let tokenizers: Vec<_> = config.models.iter().map(|model| model.tokenizer.clone()).collect();
    let origin = Origin { config_digest: digest(config), ..Origin::default() };
    let recorder = Recorder::start_as(&config.store, origin).map_err(part("store"))?;
    let mut tasks = snapshot_tasks(checked, &pool, clock)?;
    tasks.push(watch(Arc::clone(&pool), Arc::clone(clock)));
    tasks.extend(metrics.clone().map(upkeep));
    let parts = gateway::Parts {
        router,
        urls: config.instances.iter().map(|instance| instance.url.clone()).collect(),
        tokenizers: Tokenizers::load(&tokenizers, clock).map_err(part("tokenizers"))?,
        predictor,
        recorder: recorder.clone(),
        clock: Arc::clone(clock),
        dice: Dice::default(),
        metrics,
    };
    let http = GatewayConfig { listen: config.listen.clone(), upstream: config.upstream.clone() };
    let gateway = Arc::new(Gateway::new(parts, http).map_err(part("gateway"))?);
    Ok(Running { gateway, pool, recorder, tasks })
}

impl Running {
    /// Serves clients on `listener` until `shutdown` completes; then answers under way end, sources
    /// stop, and the last decisions are written.
    ///
    /// # Errors
    /// [`GatewayError`] where the listener fails.
    pub async fn serve(
        self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<RecorderStats, GatewayError> {
        let served = gateway::serve(listener, Arc::clone(&self.gateway), shutdown).await;
        let written = self.recorder.shutdown(LAST_ROWS).await;
        served.map(|()| written)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn part<E: std::error::Error + Send + Sync + 'static>(part: &'static str) -> impl Fn(E) -> AssembleError {
    move |source| AssembleError { part, source: Box::new(source) }
}

fn estimator(checked: &Checked) -> Result<Arc<dyn Estimator>, AssembleError> {
    let setup = EstimatorSetup {
        config: checked.config.latency,
        parameters_b: checked.models.iter().map(|model| model.parameters_b).collect(),
    };
    let entry = latency::estimator(ESTIMATOR).map_err(part("estimator"))?;
    Ok(Arc::from((entry.construct)(&setup)))
}

fn snapshot_tasks(
    checked: &Checked,
    pool: &Arc<Pool>,
    clock: &Arc<dyn Now>,
) -> Result<Vec<JoinHandle<()>>, AssembleError> {
    let mut sources = Vec::new();
    for instance in &checked.config.instances {
        sources.push(instance.snapshots.build().map_err(part("snapshot source"))?);
    }
    let spawn = |(i, source)| snapshots::spawn(source, Arc::clone(pool), i, Arc::clone(clock));
    let given = sources.into_iter().enumerate().filter_map(|(i, source)| Some((i, source?)));
    Ok(given.map(spawn).collect())
}

/// Folds samples into their buckets now and then, scraped or not.
fn upkeep(exposition: Exposition) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut ticks = interval(UPKEEP_PERIOD);
        loop {
            ticks.tick().await;
            exposition.upkeep();
        }
    })
}
