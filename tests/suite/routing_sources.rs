//! Snapshots over HTTP into a pool: what arrives, what a failing address does, and the way back.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};
use bear::{
    domain::{
        BasisSource, Capabilities, InstanceId, InstanceSpec, ModelId, ModelIndex, ModelSpec, Now, Overhead,
        Price,
    },
    pool::{Pool, PoolConfig},
    snapshots::{self, SnapshotConfig},
    telemetry::clock::LiveClock,
};
use serde_json::json;
use tokio::net::TcpListener;

/// What the fake engine answers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mood {
    Well,
    Failing,
    Babbling,
}

struct Engine {
    clock: Arc<LiveClock>,
    mood: Mutex<Mood>,
    asked: AtomicUsize,
}

async fn snapshot(State(engine): State<Arc<Engine>>) -> impl IntoResponse {
    let asked = engine.asked.fetch_add(1, Ordering::Relaxed);
    let captured_us = engine.clock.now().unix_us();
    let mood = *engine.mood.lock().unwrap();
    match mood {
        Mood::Failing => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
        Mood::Babbling => (StatusCode::OK, String::from(r#"{"schema":"bear.snapshot.v1"}"#)),
        Mood::Well => {
            let document = json!({"schema":"bear.snapshot.v1","instance":"e","nonce":"n","seq":asked,
                "captured_unix_us":captured_us,
                "engine":{"scheduler":"vllm-v1","max_num_batched_tokens":8192,"max_num_seqs":256,
                    "block_size":16,"num_kv_blocks":23550,"max_model_len":40960},
                "free_kv_blocks":23492,
                "waiting":[{"id":"x","prompt_tokens":400,"computed_tokens":0,"output_tokens":0}]});
            (StatusCode::OK, document.to_string())
        }
    }
}

async fn serve(engine: Arc<Engine>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new().route("/bear/snapshot", get(snapshot)).with_state(engine);
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}/bear/snapshot")
}

fn pool() -> Arc<Pool> {
    let model = ModelSpec {
        id: ModelId::from("m"),
        parameters_b: 8.2,
        max_model_len_tokens: 40_960,
        price: Price::default(),
        capabilities: Capabilities::default(),
        prior_accuracy: None,
        prior_output_tokens: None,
    };
    let instance = InstanceSpec {
        id: InstanceId::from("i"),
        model: ModelIndex(0),
        dp_rank: 0,
        price: Price::default(),
        batch_time: None,
        overhead: Overhead::default(),
        effective_prefill_tokens_per_s: None,
        peak_prefill_tokens_per_s: None,
    };
    Arc::new(Pool::new(vec![model], vec![instance], PoolConfig::default()).unwrap())
}

/// Waits until `done`, or fails after far longer than it should take.
async fn until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..2000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never: {what}");
}

#[tokio::test]
async fn snapshots_arrive_stop_and_come_back() {
    let clock = Arc::new(LiveClock::new());
    let engine = Arc::new(Engine {
        clock: Arc::clone(&clock),
        mood: Mutex::new(Mood::Well),
        asked: AtomicUsize::new(0),
    });
    let address = serve(Arc::clone(&engine)).await;
    let pool = pool();
    let config = SnapshotConfig { source: String::from("http"), address: Some(address), period_ms: 5 };
    let source = config.build().unwrap().unwrap();
    let task = snapshots::spawn(source, Arc::clone(&pool), 0, Arc::clone(&clock) as Arc<dyn Now>);
    let status = || pool.source_status(0).unwrap();
    let mood = |mood| *engine.mood.lock().unwrap() = mood;

    until("two snapshots", || status().accepted >= 2).await;
    let view = pool.view(0, clock.now());
    assert_eq!(view.basis.unwrap().source, BasisSource::Snapshot);
    assert_eq!(view.resident_requests, Some(1));

    mood(Mood::Failing);
    until("the loss of a failing source", || status().lost).await;
    mood(Mood::Well);
    until("the return of a failing source", || !status().lost).await;

    mood(Mood::Babbling);
    until("the loss of a babbling source", || status().lost).await;
    let before = status().accepted;
    mood(Mood::Well);
    until("the return of a babbling source", || status().accepted > before).await;
    assert_eq!(status().refused, 0);
    task.abort();
}
