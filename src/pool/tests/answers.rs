//! Requests for several answers: as many residents, whatever is known of them.

use super::*;
use crate::domain::{BasisSource, Ending};

fn ask(bench: &Bench, id: &str, prompt_tokens: u32, choices: u32) -> Reservation {
    bench.reserve_with(ReserveRequest { choices, load: load(prompt_tokens, 90), ..request(0, id) })
}

#[test]
fn each_answer_is_on_its_way_and_all_but_the_first_find_the_prompt_cached() {
    let bench = Bench::new(1);
    let _held = ask(&bench, "r1", 160, 3);
    let dispatched = bench.basis().dispatched;
    let shown: Vec<_> = dispatched.iter().map(|d| (d.id.as_str(), d.cached_tokens)).collect();
    // One token is left to compute: nine of the ten full blocks count.
    assert_eq!(shown, [("r1", 0), ("r1#1", 144), ("r1#2", 144)]);
    assert_eq!(dispatched[1].cached_blocks_in_use, 9);
    assert_eq!(bench.pool.load(0).requests, 1);
}

#[test]
fn listed_answers_are_ours_and_are_not_on_their_way_again() {
    let bench = Bench::new(1);
    let held = ask(&bench, "r1", 160, 3);
    bench.clock.advance_ms(20);
    bench.publish(1, &[decoding("r1", 160, 20), decoding("r1#2", 160, 30), decoding("x#1", 160, 30)], &[]);
    let basis = bench.basis();
    assert_eq!(basis.source, BasisSource::Snapshot);
    let remaining = |id: &str| basis.predicted_remaining[id];
    assert_eq!((remaining("r1"), remaining("r1#2"), remaining("x#1")), (70, 60, 70));
    assert!(basis.dispatched.is_empty(), "the second one has come and gone");
    assert_eq!(bench.pool.view(0, bench.clock.now()).resident_requests, Some(3));
    held.finish(Ending::Complete);
    assert_eq!(bench.pool.view(0, bench.clock.now()).resident_requests, Some(1));
}

#[test]
fn a_rebuilt_state_holds_every_answer_with_its_share_of_the_tokens() {
    let bench = Bench::new(1);
    let mut held = ask(&bench, "r1", 160, 4);
    bench.clock.advance_ms(30);
    held.first_token();
    for _ in 0..40 {
        held.tokens(4);
        bench.clock.advance_ms(10);
    }
    let basis = bench.basis();
    assert_eq!(basis.source, BasisSource::Ledger);
    let ids: Vec<&str> = basis.snapshot.running.iter().map(|r| r.id.as_str()).collect();
    assert_eq!(ids, ["r1", "r1#1", "r1#2", "r1#3"]);
    for resident in &basis.snapshot.running {
        assert!((38..=40).contains(&resident.output_tokens), "{resident:?}");
        assert_eq!(basis.predicted_remaining[&resident.id], 90 - resident.output_tokens);
    }
    let (first, second) = (&basis.snapshot.running[0], &basis.snapshot.running[1]);
    assert_eq!(second.kv_blocks_exclusive, Some(first.kv_blocks - 9));
    let held_blocks = first.kv_blocks + 3 * (first.kv_blocks - 9);
    let engine = &basis.snapshot.engine;
    assert_eq!(basis.snapshot.free_kv_blocks, engine.num_kv_blocks - 1 - held_blocks);
}

#[test]
fn a_request_for_countless_answers_stays_bounded() {
    let bench = Bench::new(1);
    let _held = ask(&bench, "r1", 160, u32::MAX);
    assert_eq!(bench.basis().dispatched.len(), 128);
}

#[test]
fn lengths_are_learnt_an_answer_and_only_from_what_is_typical() {
    let expected = |choices, typical, output_tokens| {
        let bench = Bench::new(1);
        for n in 0..30 {
            let id = n.to_string();
            let mut held = bench.reserve_with(ReserveRequest { choices, typical, ..request(0, &id) });
            held.usage(100, None, output_tokens);
            held.finish(Ending::Complete);
        }
        bench.pool.expected_output_tokens(ModelIndex(0), 100)
    };
    assert_eq!(expected(1, true, 40), 40.0);
    assert_eq!(expected(4, true, 40), 10.0);
    let prior = 100.0;
    assert_eq!((expected(1, false, 40), expected(1, true, 0)), (prior, prior));
}
