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

/// Streams `steps` steps of 10 ms with `tokens` tokens each.
fn stream(bench: &Bench, reservation: &mut Reservation, steps: u32, tokens: u32) {
    for _ in 0..steps {
        bench.clock.advance_ms(10);
        reservation.first_token();
        reservation.tokens(tokens);
    }
}

#[test]
fn a_streaming_answer_runs_with_what_it_had_a_step_before_the_last() {
    let bench = Bench::new(1);
    let mut streaming = bench.reserve(0, "r1", load(160, 90));
    bench.clock.advance_ms(90);
    stream(&bench, &mut streaming, 34, 1);
    let basis = bench.basis();
    let resident = &basis.snapshot.running[0];
    assert_eq!((resident.prompt_tokens, resident.output_tokens, resident.computed_tokens), (160, 33, 192));
    assert_eq!((resident.kv_blocks, basis.predicted_remaining["r1"]), (12, 57));
    assert_eq!(basis.snapshot.free_kv_blocks, basis.snapshot.engine.num_kv_blocks - 1 - 12);
    let last_but_one_us = bench.clock.now().unix_us() - 10_000 - 2000;
    assert_eq!(basis.snapshot.captured_unix_us.unix_us(), last_but_one_us, "less the egress");
}

#[test]
fn a_streaming_answer_is_taken_back_to_where_an_unanswered_request_came() {
    for tokens in [1, 3] {
        let bench = Bench::new(1);
        let mut streaming = bench.reserve(0, "r1", load(160, 300));
        stream(&bench, &mut streaming, 20, tokens);
        bench.clock.advance_ms(1);
        let _behind = bench.reserve(0, "r2", load(4000, 10));
        stream(&bench, &mut streaming, 5, tokens);
        let basis = bench.basis();
        // It came 5 ms after step 20 was seen and 3 ms before step 21 ended: the capture ends step 19.
        assert_eq!(basis.snapshot.captured_unix_us.unix_us(), START_US + 190_000 - 2000);
        assert_eq!(basis.snapshot.running[0].output_tokens, 19 * tokens);
        assert_eq!(basis.predicted_remaining["r1"], 300 - 19 * tokens);
        assert_eq!(bench.on_their_way(), ["r2"]);
    }
}

#[test]
fn a_prefill_that_ended_after_the_moment_is_replayed_from_before_it() {
    let bench = Bench::new(1);
    let mut first = bench.reserve(0, "r1", load(9000, 90));
    bench.clock.advance_ms(100);
    let _second = bench.reserve(0, "r2", load(9000, 90));
    bench.clock.advance_ms(100);
    stream(&bench, &mut first, 1, 1);
    let basis = bench.basis();
    assert_eq!(basis.snapshot.captured_unix_us.unix_us(), START_US + INGRESS_US);
    assert_eq!(bench.on_their_way(), ["r1", "r2"]);
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
    streaming.tokens(1);
    let before = bench.basis();
    streaming.tokens(5);
    bench.clock.advance_ms(19);
    assert!(Arc::ptr_eq(&before.snapshot, &bench.basis().snapshot));
    bench.clock.advance_ms(1);
    assert!(!Arc::ptr_eq(&before.snapshot, &bench.basis().snapshot));
}
