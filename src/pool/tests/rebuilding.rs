//! States rebuilt from the ledger alone.

use super::*;
use crate::domain::BasisSource;

#[test]
fn without_any_snapshot_the_assumed_engine_is_idle() {
    let bench = Bench::new(1);
    let view = bench.pool.view(0, bench.clock.now());
    let basis = view.basis.unwrap();
    assert_eq!(basis.source, BasisSource::Ledger);
    assert_eq!(view.resident_requests, None, "others' requests are unknown, not none");
    let engine = &basis.snapshot.engine;
    assert_eq!(
        (engine.max_num_batched_tokens, engine.max_num_seqs, engine.max_model_len),
        (8192, 256, 40_960)
    );
    assert!(basis.snapshot.running.is_empty() && basis.dispatched.is_empty());
}

#[test]
fn a_prefill_under_way_is_replayed_from_its_arrival() {
    let bench = Bench::new(1);
    let _long = bench.reserve(0, "r1", load(9000, 90));
    bench.clock.advance_ms(100);
    let basis = bench.basis();
    assert_eq!(basis.snapshot.captured_unix_us.unix_us(), START_US + INGRESS_US);
    assert_eq!(bench.on_their_way(), ["r1"]);
}

#[test]
fn a_streaming_answer_runs_with_what_it_produced() {
    let bench = Bench::new(1);
    let mut streaming = bench.reserve(0, "r1", load(160, 90));
    bench.clock.advance_ms(100);
    streaming.first_token();
    streaming.tokens(1);
    bench.clock.advance_ms(90);
    streaming.tokens(32);
    let basis = bench.basis();
    let resident = &basis.snapshot.running[0];
    assert_eq!((resident.prompt_tokens, resident.output_tokens, resident.computed_tokens), (160, 33, 192));
    assert_eq!((resident.kv_blocks, basis.predicted_remaining["r1"]), (12, 57));
    assert_eq!(basis.snapshot.free_kv_blocks, basis.snapshot.engine.num_kv_blocks - 1 - 12);
    assert_eq!(basis.snapshot.captured_unix_us, bench.clock.now());
}

#[test]
fn a_streaming_answer_is_taken_back_to_the_capture_at_its_mean_pace() {
    let bench = Bench::new(1);
    let mut streaming = bench.reserve(0, "r1", load(160, 90));
    bench.clock.advance_ms(100);
    streaming.first_token();
    bench.clock.advance_ms(60);
    let _behind = bench.reserve(0, "r2", load(4000, 10));
    bench.clock.advance_ms(40);
    streaming.tokens(50);
    let basis = bench.basis();
    assert_eq!(basis.snapshot.captured_unix_us.unix_us(), START_US + 160_000 + INGRESS_US);
    // 50 tokens in 100 ms, of which 36 ms lie after the capture: 32 of them before.
    assert_eq!(basis.snapshot.running[0].output_tokens, 32);
    assert_eq!(basis.predicted_remaining["r1"], 58);
    assert_eq!(bench.on_their_way(), ["r2"]);
}

#[test]
fn an_answer_that_does_not_stream_is_half_way_once_out_of_reach() {
    let bench = Bench::new(1);
    let _quiet = bench.reserve_with(ReserveRequest { streamed: false, ..request(0, "r1") });
    bench.clock.advance_ms(1000);
    assert_eq!(bench.on_their_way(), ["r1"], "within reach the replay tells how far it is");
    bench.clock.advance_ms(1500);
    let basis = bench.basis();
    assert!(basis.dispatched.is_empty());
    assert_eq!((basis.snapshot.running[0].output_tokens, basis.predicted_remaining["r1"]), (25, 25));
}

#[test]
fn a_stale_snapshot_gives_way_to_the_ledger_but_its_parameters_stay() {
    let bench = Bench::new(1);
    let told = EngineParams { max_num_seqs: 7, ..engine() };
    let snapshot = Snapshot { engine: told, ..bench.snapshot(1, &[decoding("x", 10, 1)], &[]) };
    bench.pool.publish(0, snapshot, bench.clock.now()).unwrap();
    bench.pool.source_lost(0, bench.clock.now());
    bench.clock.advance_ms(2000);
    assert_eq!(bench.basis().source, BasisSource::Snapshot, "a lost source's last word still counts");
    bench.clock.advance_ms(1);
    let basis = bench.basis();
    assert_eq!((basis.source, basis.snapshot.engine.max_num_seqs), (BasisSource::Ledger, 7));
    assert!(bench.pool.source_status(0).unwrap().lost);
    bench.publish(2, &[], &[]);
    assert_eq!(bench.basis().source, BasisSource::Snapshot);
    assert!(!bench.pool.source_status(0).unwrap().lost);
}

#[test]
fn a_rebuilt_state_is_kept_for_its_period_while_only_tokens_arrive() {
    let bench = Bench::new(1);
    let mut streaming = bench.reserve(0, "r1", load(160, 90));
    streaming.first_token();
    let before = bench.basis();
    streaming.tokens(5);
    bench.clock.advance_ms(19);
    assert!(Arc::ptr_eq(&before.snapshot, &bench.basis().snapshot));
    bench.clock.advance_ms(1);
    assert_eq!(bench.basis().snapshot.running[0].output_tokens, 5);
}
