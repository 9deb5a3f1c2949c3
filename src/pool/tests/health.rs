//! Draining and the breaker.

use super::*;

fn usable(bench: &Bench) -> Result<(), &'static str> {
    bench.pool.view(0, bench.clock.now()).usable
}

fn breaker(bench: &Bench) -> Option<Breaker> {
    bench.pool.breaker(0, bench.clock.now())
}

fn fail(bench: &Bench, times: u32) {
    for _ in 0..times {
        bench.pool.report_connect_failure(0, bench.clock.now());
    }
}

#[test]
fn draining_takes_an_instance_out_and_back() {
    let bench = Bench::new(1);
    bench.pool.set_draining(0, true);
    assert_eq!(usable(&bench), Err("draining"));
    bench.pool.set_draining(0, false);
    assert_eq!(usable(&bench), Ok(()));
}

#[test]
fn the_breaker_opens_after_failures_in_a_row() {
    let bench = Bench::new(1);
    fail(&bench, 4);
    bench.pool.report_success(0);
    fail(&bench, 4);
    assert_eq!(usable(&bench), Ok(()), "a success starts the count again");
    fail(&bench, 1);
    assert!(usable(&bench).unwrap_err().contains("breaker open"));
}

#[test]
fn after_the_cool_down_one_probe_goes_and_decides() {
    let bench = Bench::new(1);
    fail(&bench, 5);
    bench.clock.advance_ms(4999);
    assert!(usable(&bench).is_err());
    assert_eq!(breaker(&bench), Some(Breaker::Open));
    bench.clock.advance_ms(1);
    assert_eq!(usable(&bench), Ok(()));
    assert_eq!(breaker(&bench), Some(Breaker::Probing));
    let probe = bench.reserve(0, "probe", load(10, 10));
    assert!(usable(&bench).unwrap_err().contains("half open"), "no second one beside it");
    fail(&bench, 1);
    drop(probe);
    assert!(usable(&bench).unwrap_err().contains("breaker open"), "one failed probe is enough");
    bench.clock.advance_ms(5000);
    let _probe = bench.reserve(0, "again", load(10, 10));
    bench.pool.report_success(0);
    assert_eq!(usable(&bench), Ok(()));
    assert_eq!(breaker(&bench), Some(Breaker::Closed));
}

#[test]
fn a_probe_that_never_reports_makes_way_for_the_next() {
    let bench = Bench::new(1);
    fail(&bench, 5);
    bench.clock.advance_ms(5000);
    drop(bench.reserve(0, "probe", load(10, 10)));
    assert!(usable(&bench).is_err());
    bench.clock.advance_ms(5000);
    assert_eq!(usable(&bench), Ok(()));
}
