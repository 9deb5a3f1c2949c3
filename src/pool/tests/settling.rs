//! Reservations: what they count and how they end.

use super::*;
use crate::domain::{Ending, Load};

fn only_end(bench: &Bench) -> Outcome {
    let ends = bench.ends.0.lock().unwrap();
    assert_eq!(ends.len(), 1);
    ends[0].clone()
}

#[test]
fn a_finished_stream_tells_times_tokens_and_cost() {
    let bench = Bench::new(1);
    let mut reservation = bench.reserve(0, "r1", load(1000, 50));
    assert_eq!((reservation.attempt_id(), reservation.instance()), ("r1", 0));
    assert_eq!(bench.pool.load(0), Load { requests: 1, uncached_prefill_tokens: 1000 });
    bench.clock.advance_ms(120);
    reservation.first_token();
    assert_eq!(bench.pool.load(0), Load { requests: 1, uncached_prefill_tokens: 0 });
    bench.clock.advance_ms(380);
    reservation.first_token();
    reservation.tokens(40);
    reservation.usage(1000, Some(600), 42);
    reservation.finish(Ending::Complete);
    let end = only_end(&bench);
    assert_eq!((end.ttft_s, end.e2e_s), (Some(0.12), 0.5));
    assert_eq!((end.prompt_tokens, end.cached_tokens, end.output_tokens), (Some(1000), Some(600), Some(42)));
    // 400 at 1 and 600 at 0.1 and 42 at 10 USD a million.
    assert!((end.cost_usd.unwrap() - 880e-6).abs() < 1e-12);
    assert_eq!(bench.pool.load(0), Load::default());
}

#[test]
fn a_dropped_one_was_cancelled_and_its_cost_is_unknown() {
    let bench = Bench::new(1);
    let mut reservation = bench.reserve(0, "r1", load(1000, 50));
    reservation.first_token();
    reservation.tokens(7);
    drop(reservation);
    let end = only_end(&bench);
    assert_eq!((end.ending, end.output_tokens, end.cost_usd), (Ending::Cancelled, Some(7), None));
    assert_eq!(bench.pool.load(0), Load::default());
}

#[test]
fn a_drop_after_the_ending_was_told_ends_so() {
    let bench = Bench::new(1);
    let mut reservation = bench.reserve(0, "r1", load(1000, 50));
    reservation.ends_as(Ending::TimedOut);
    drop(reservation);
    let end = only_end(&bench);
    assert_eq!((end.ending, end.ttft_s, end.output_tokens), (Ending::TimedOut, None, None));
}

#[test]
fn an_answer_that_does_not_stream_has_no_ttft() {
    let bench = Bench::new(1);
    let mut reservation = bench.reserve_with(ReserveRequest { streamed: false, ..request(0, "r1") });
    reservation.first_token();
    reservation.finish(Ending::Complete);
    assert_eq!(only_end(&bench).ttft_s, None);
}

#[test]
fn a_panic_settles_once() {
    let bench = Bench::new(1);
    let reservation = bench.reserve(0, "r1", load(1000, 50));
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _held = reservation;
        panic!("on purpose");
    }));
    assert!(unwound.is_err());
    assert_eq!(only_end(&bench).ending, Ending::Cancelled);
    assert_eq!(bench.pool.load(0), Load::default());
}

#[test]
fn cached_tokens_are_no_prefill_load() {
    let bench = Bench::new(1);
    let _held = bench.reserve(0, "r1", QueryLoad { cached_tokens: 640, ..load(1000, 50) });
    assert_eq!(bench.pool.load(0).uncached_prefill_tokens, 360);
}

#[test]
fn two_attempts_of_one_id_count_twice_and_leave_apart() {
    let bench = Bench::new(1);
    let first = bench.reserve(0, "r1", load(1000, 50));
    let second = bench.reserve(0, "r1", load(10, 50));
    assert_eq!(bench.pool.load(0), Load { requests: 2, uncached_prefill_tokens: 1010 });
    drop(first);
    assert_eq!(bench.pool.load(0), Load { requests: 1, uncached_prefill_tokens: 10 });
    drop(second);
    assert_eq!(bench.pool.load(0), Load::default());
}
