//! Snapshots merged with the ledger.

use super::*;
use crate::domain::{BasisSource, snapshot::InFlight};

fn remaining(bench: &Bench, id: &str) -> Option<u32> {
    bench.basis().predicted_remaining.get(id).copied()
}

#[test]
fn residents_of_ours_have_what_their_prediction_leaves() {
    let bench = Bench::new(1);
    let _r1 = bench.reserve(0, "r1", load(900, 120));
    let _r2 = bench.reserve(0, "r2", load(4000, 300));
    bench.clock.advance_ms(50);
    bench.publish(1, &[decoding("r1", 900, 20)], &[waiting("r2", 4000)]);
    let basis = bench.basis();
    assert_eq!(basis.source, BasisSource::Snapshot);
    assert_eq!((remaining(&bench, "r1"), remaining(&bench, "r2")), (Some(100), Some(300)));
    assert!(basis.dispatched.is_empty(), "both are listed");
    assert_eq!(bench.pool.view(0, bench.clock.now()).resident_requests, Some(2));
}

#[test]
fn the_cap_bounds_a_resident_and_an_outlived_one_has_its_mean_residual() {
    let bench = Bench::new(1);
    let _a = bench.reserve_with(ReserveRequest { max_output_tokens: Some(60), ..request(0, "a") });
    let _b = bench.reserve(0, "b", load(100, 50));
    bench.clock.advance_ms(50);
    bench.publish(1, &[decoding("a", 100, 55), decoding("b", 100, 80)], &[]);
    assert_eq!(remaining(&bench, "a"), Some(5), "60 asked, 55 produced");
    assert_eq!(remaining(&bench, "b"), Some(25), "half of the 50 predicted");
}

#[test]
fn strangers_have_the_models_prior_until_enough_answers_were_seen() {
    let bench = Bench::new(1);
    let stranger = Resident { max_tokens: Some(500), ..decoding("x", 100, 30) };
    bench.publish(1, std::slice::from_ref(&stranger), &[]);
    assert_eq!(remaining(&bench, "x"), Some(70), "prior 100, produced 30");
    for n in 0..20 {
        let mut reservation = bench.reserve(0, &format!("r{n}"), load(100, 50));
        reservation.usage(100, None, 230);
        reservation.finish(crate::domain::Ending::Complete);
    }
    bench.publish(2, &[stranger], &[]);
    assert_eq!(remaining(&bench, "x"), Some(200), "observed mean 230, produced 30");
}

#[test]
fn what_was_sent_after_the_capture_is_on_its_way() {
    let bench = Bench::new(1);
    bench.publish(1, &[], &[]);
    bench.clock.advance_ms(10);
    let _first = bench.reserve(0, "r1", load(800, 90));
    bench.clock.advance_ms(1);
    let _second = bench.reserve(0, "r2", load(700, 80));
    let basis = bench.basis();
    let expected = START_US + 10_000 + INGRESS_US;
    assert_eq!(basis.dispatched[0].at_unix_us.unix_us(), expected);
    assert_eq!((basis.dispatched[0].prompt_tokens, basis.dispatched[0].output_tokens), (800, 90));
    assert_eq!(bench.on_their_way(), ["r1", "r2"]);
    assert_eq!(bench.pool.view(0, bench.clock.now()).resident_requests, Some(2));
}

#[test]
fn one_in_transit_at_the_capture_is_on_its_way_until_the_grace_ends() {
    let bench = Bench::new(1);
    let _sent = bench.reserve(0, "r1", load(800, 90));
    bench.clock.advance_ms(100);
    bench.publish(1, &[], &[]);
    assert_eq!(bench.on_their_way(), ["r1"], "expected 96 ms before the capture, grace 250 ms");
    bench.clock.advance_ms(200);
    bench.publish(2, &[], &[]);
    assert!(bench.on_their_way().is_empty(), "the engine knows it under no name of ours");
}

#[test]
fn one_that_the_engine_has_finished_is_not_added_back() {
    let bench = Bench::new(1);
    let _listed = bench.reserve(0, "r1", load(800, 90));
    let mut streamed = bench.reserve(0, "r2", load(800, 90));
    bench.clock.advance_ms(20);
    bench.publish(1, &[decoding("r1", 800, 1)], &[]);
    assert_eq!(bench.on_their_way(), ["r2"]);
    streamed.first_token();
    bench.clock.advance_ms(20);
    bench.publish(2, &[], &[]);
    assert!(bench.on_their_way().is_empty(), "one was listed before, the other has its first token");
}

#[test]
fn one_among_the_summed_waiting_is_not_counted_twice() {
    let bench = Bench::new(1);
    let _sent = bench.reserve(0, "r1", load(800, 90));
    bench.clock.advance_ms(20);
    let beyond = WaitingBeyond { requests: 3, prefill_tokens: 2400 };
    let snapshot = Snapshot { waiting_beyond: beyond, ..bench.snapshot(1, &[], &[waiting("x", 10)]) };
    bench.pool.publish(0, snapshot, bench.clock.now()).unwrap();
    assert!(bench.on_their_way().is_empty());
    assert_eq!(bench.pool.view(0, bench.clock.now()).resident_requests, Some(4));
}

#[test]
fn one_that_settled_since_the_capture_has_only_what_it_showed() {
    let bench = Bench::new(1);
    let mut done = bench.reserve(0, "r1", load(800, 90));
    bench.clock.advance_ms(20);
    bench.publish(1, &[decoding("r1", 800, 10)], &[]);
    assert_eq!(remaining(&bench, "r1"), Some(80));
    done.first_token();
    done.tokens(14);
    done.finish(crate::domain::Ending::Complete);
    assert_eq!(remaining(&bench, "r1"), Some(4), "14 in all, 10 before the capture");
    assert_eq!(bench.pool.view(0, bench.clock.now()).resident_requests, Some(0));
}

#[test]
fn an_older_snapshot_is_let_pass_and_a_new_life_starts_over() {
    let bench = Bench::new(1);
    bench.publish(5, &[decoding("x", 10, 1)], &[]);
    bench.publish(4, &[], &[]);
    assert_eq!(bench.basis().snapshot.seq, 5);
    let reborn = Snapshot { nonce: String::from("next"), ..bench.snapshot(0, &[], &[]) };
    bench.pool.publish(0, reborn, bench.clock.now()).unwrap();
    assert_eq!((bench.basis().snapshot.seq, bench.basis().snapshot.nonce.as_str()), (0, "next"));
    let status = bench.pool.source_status(0).unwrap();
    assert_eq!((status.accepted, status.ignored, status.refused), (2, 1, 0));
}

#[test]
fn the_same_step_captured_later_is_taken() {
    let bench = Bench::new(1);
    bench.publish(5, &[], &[]);
    bench.clock.advance_ms(500);
    bench.publish(5, &[], &[waiting("x", 10)]);
    assert_eq!(bench.basis().snapshot.waiting.len(), 1);
}

#[test]
fn an_implausible_snapshot_is_refused_with_its_reason_and_the_old_one_stays() {
    let bench = Bench::new(1);
    bench.publish(1, &[], &[]);
    let refused = |change: &dyn Fn(&mut Snapshot)| {
        let mut snapshot = bench.snapshot(2, &[decoding("x", 10, 1)], &[]);
        change(&mut snapshot);
        bench.pool.publish(0, snapshot, bench.clock.now()).unwrap_err().to_string()
    };
    assert!(refused(&|s| s.schema = String::from("v9")).contains("schema"));
    assert!(refused(&|s| s.dp_rank = 1).contains("dp_rank 1"));
    assert!(refused(&|s| s.captured_unix_us = s.captured_unix_us.after_s(5.0)).contains("clocks"));
    assert!(refused(&|s| s.engine.block_size = 0).contains("engine.block_size"));
    assert!(refused(&|s| s.waiting = vec![waiting("x", 5)]).contains("waiting[0].id"));
    assert!(refused(&|s| s.engine.scheduler = String::from("v9")).contains("scheduler `v9` is not known"));
    let in_flight = InFlight { started_unix_us: bench.clock.now(), tokens: [(String::from("x"), 11)].into() };
    assert!(refused(&|s| s.in_flight = Some(in_flight.clone())).contains("in_flight.tokens.x"));
    assert_eq!(bench.basis().snapshot.seq, 1);
    assert_eq!(bench.pool.source_status(0).unwrap().refused, 7);
}

#[test]
fn a_snapshot_that_is_stale_when_it_comes_is_refused_and_the_status_says_why() {
    let bench = Bench::new(1);
    let snapshot = bench.snapshot(1, &[], &[]);
    bench.clock.advance_ms(2001);
    let error = bench.pool.publish(0, snapshot.clone(), bench.clock.now()).unwrap_err().to_string();
    assert!(error.contains("2.001 s before its receipt") && error.contains("clocks disagree"), "{error}");
    let status = bench.pool.source_status(0).unwrap();
    assert_eq!((status.accepted, status.refused, status.refusal), (0, 1, Some("clock-behind")));
    bench.publish(2, &[], &[]);
    assert_eq!(bench.pool.source_status(0).unwrap().refusal, None);
}

#[test]
fn a_view_shares_what_has_not_changed() {
    let bench = Bench::new(1);
    let _listed = bench.reserve(0, "r1", load(800, 90));
    bench.clock.advance_ms(20);
    bench.publish(1, &[decoding("r1", 800, 10)], &[]);
    let (before, again) = (bench.basis(), bench.basis());
    assert!(Arc::ptr_eq(&before.snapshot, &again.snapshot));
    assert!(Arc::ptr_eq(&before.dispatched, &again.dispatched));
    let _sent = bench.reserve(0, "r2", load(800, 90));
    let after = bench.basis();
    assert!(Arc::ptr_eq(&before.snapshot, &after.snapshot), "no residents are copied");
    assert!(Arc::ptr_eq(&before.predicted_remaining, &after.predicted_remaining));
    assert_eq!((before.dispatched.len(), after.dispatched.len()), (0, 1));
}

#[test]
fn a_prompt_the_engine_refuses_is_not_replayed() {
    let bench = Bench::new(1);
    let snapshot =
        Snapshot { engine: EngineParams { max_model_len: 1000, ..engine() }, ..bench.snapshot(1, &[], &[]) };
    bench.pool.publish(0, snapshot, bench.clock.now()).unwrap();
    let _sent = bench.reserve(0, "r1", load(1000, 90));
    assert!(bench.on_their_way().is_empty());
}
