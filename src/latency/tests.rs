//! The view that the estimators' tests share, and the registry.

use std::sync::Arc;

use super::*;
use crate::domain::{
    Basis, BasisSource, BatchTimeCoefficients, InstanceId, InstanceSpec, Load, ModelIndex, Overhead, Price,
    Snapshot,
    snapshot::{EngineParams, QueuePolicy, Resident, SCHEMA, WaitingBeyond},
};

/// An instance whose every batch takes 10 ms, with 2 ms of ingress and 3 ms of egress, and 10,000 prefill
/// tokens a second.
pub(super) fn spec() -> InstanceSpec {
    InstanceSpec {
        id: InstanceId::from("m-0"),
        model: ModelIndex(0),
        dp_rank: 0,
        price: Price { input_usd_per_mtok: 0.1, output_usd_per_mtok: 0.1, cached_input_usd_per_mtok: None },
        batch_time: Some(BatchTimeCoefficients { b0_s: 0.01, b1_s: 0.0, b2_s: 0.0, b3_s: 0.0, b4_s: 0.0 }),
        overhead: Overhead { ingress_s: 0.002, egress_s: 0.003 },
        effective_prefill_tokens_per_s: Some(10_000.0),
        peak_prefill_tokens_per_s: None,
    }
}

/// Two residents that decode for long, no batch in flight, synchronous.
pub(super) fn basis() -> Basis {
    let resident = |id: &str| Resident {
        id: id.to_owned(),
        prompt_tokens: 100,
        computed_tokens: 110,
        output_tokens: 11,
        kv_blocks: 7,
        ..Resident::default()
    };
    let snapshot = Snapshot {
        schema: SCHEMA.to_owned(),
        instance: String::from("m-0"),
        dp_rank: 0,
        nonce: String::new(),
        seq: 1,
        captured_unix_us: Timestamp::from_unix_us(1_764_460_800_000_000),
        engine: EngineParams {
            scheduler: String::from("vllm-v1"),
            max_num_batched_tokens: 8_192,
            max_num_seqs: 256,
            block_size: 16,
            num_kv_blocks: 23_550,
            max_model_len: 40_000,
            long_prefill_token_threshold: 0,
            watermark_blocks: 0,
            reserve_full_isl: true,
            enable_chunked_prefill: true,
            enable_prefix_caching: true,
            policy: QueuePolicy::Fcfs,
            async_scheduling: false,
        },
        free_kv_blocks: 23_000,
        in_flight: None,
        running: vec![resident("a"), resident("b")],
        waiting: Vec::new(),
        waiting_beyond: WaitingBeyond::default(),
        scheduler_state: None,
    };
    let predicted = ["a", "b"].map(|id| (id.to_owned(), 1_000));
    Basis {
        source: BasisSource::Snapshot,
        snapshot: Arc::new(snapshot),
        predicted_remaining: Arc::new(predicted.into()),
        dispatched: [].into(),
    }
}

/// A view of such an instance.
pub(super) fn view(spec: InstanceSpec, basis: Option<Basis>) -> InstanceView {
    InstanceView {
        spec: Arc::new(spec),
        basis,
        resident_requests: None,
        load: Load::default(),
        usable: Ok(()),
    }
}

/// An uncached query of five output tokens.
pub(super) fn load(prompt_tokens: u32) -> QueryLoad {
    QueryLoad { prompt_tokens, cached_tokens: 0, cached_blocks_in_use: 0, output_tokens: 5, priority: 0 }
}

#[test]
fn the_registry_is_sorted_and_makes_what_it_names() {
    assert!(ESTIMATORS.is_sorted_by_key(|entry| entry.name));
    for entry in ESTIMATORS {
        let found = estimator(entry.name).unwrap();
        assert_eq!((found.construct)(&EstimatorSetup::default()).name(), entry.name);
    }
    assert!(matches!(estimator("bae"), Err(LatencyError::UnknownEstimator { .. })));
}
