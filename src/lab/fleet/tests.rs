//! Whole runs of small scenarios.

use serde_json::json;

use super::*;
use crate::lab::{Failure, Scenario};

/// Three models, one instance each, four tasks at 8 requests a second for a minute, predicted by means.
fn scenario(change: impl FnOnce(&mut Scenario)) -> Scenario {
    let mut scenario = Scenario::parse(
        "
        name: small
        pool:
          - {profile: qwen3-0.6b-h100, price: {input_usd_per_mtok: 0.044, output_usd_per_mtok: 0.173}}
          - {profile: qwen3-8b-h100, price: {input_usd_per_mtok: 0.072, output_usd_per_mtok: 0.287}}
          - {profile: qwen3-32b-2xh100, price: {input_usd_per_mtok: 0.287, output_usd_per_mtok: 0.640}}
        workload: {name: four-tasks}
        arrivals: {name: poisson, options: {rate_qps: 8.0}}
        duration_s: 40
        warmup_s: 10
        predictor: {kind: mean}
        routers: [{label: bear, policy: {name: bear}}]
        ",
        "small",
    )
    .unwrap();
    change(&mut scenario);
    scenario
}

fn play(scenario: &Scenario, seed: u64) -> Run {
    run(scenario, &scenario.routers[0], seed, &Supplies::default()).unwrap()
}

fn policy(scenario: &mut Scenario, name: &str) {
    scenario.routers[0].policy.name = name.to_owned();
}

#[test]
fn every_request_is_answered_and_nothing_is_left_behind() {
    let run = play(&scenario(|s| s.keep_requests = 10_000), 1);
    let expected = 8.0 * 40.0;
    assert!((run.metrics.requests as f64 - expected).abs() < 4.0 * f64::sqrt(expected), "{:?}", run.metrics);
    assert_eq!(run.metrics.failed, 0);
    assert_eq!(run.requests.len() as u64, run.metrics.requests);
    assert!(run.requests.is_sorted_by_key(|r| r.at_us));
    for r in &run.requests {
        assert!(r.ttft_s.unwrap() > 0.006 && r.e2e_s.unwrap() >= r.ttft_s.unwrap(), "{r:?}");
        assert!(r.at_us >= 10_000_000 && r.at_us < 50_000_000);
    }
    let m = &run.metrics;
    assert!(m.on_time_utility <= m.best_utility && m.attainment > 0.5, "{m:?}");
    let total: f64 = m.model_share.values().sum();
    assert!((total - 1.0).abs() < 1e-9);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_gives_another() {
    let scenario = scenario(|s| s.router_count = 2);
    let bytes = |seed| serde_json::to_string(&play(&scenario, seed).metrics).unwrap();
    assert_eq!(bytes(5), bytes(5));
    assert_ne!(bytes(5), bytes(6));
}

#[test]
fn routers_see_the_same_traffic() {
    let arrivals = |name: &str| -> Vec<(u64, u32, Option<u64>)> {
        let scenario = scenario(|s| {
            s.keep_requests = 10_000;
            policy(s, name);
        });
        let key = |r: &RequestRecord| (r.at_us, r.prompt_tokens, r.target_s.map(|t| (t * 1e6) as u64));
        play(&scenario, 2).requests.iter().map(key).collect()
    };
    let bear = arrivals("bear");
    assert!(bear.len() > 200);
    assert_eq!(bear, arrivals("round-robin"));
}

#[test]
fn round_robin_deals_evenly_and_bear_is_on_time_more_often() {
    let of = |name: &str| play(&scenario(|s| policy(s, name)), 3).metrics;
    let (bear, dealt) = (of("bear"), of("round-robin"));
    for share in dealt.model_share.values() {
        assert!((share - 1.0 / 3.0).abs() < 0.01, "{dealt:?}");
    }
    assert!(bear.attainment > dealt.attainment + 0.05, "{} {}", bear.attainment, dealt.attainment);
    assert!(bear.on_time_utility > dealt.on_time_utility);
    assert!((1.0..=3.0).contains(&bear.estimates_per_decision), "{}", bear.estimates_per_decision);
    assert!(bear.ttft_mape.unwrap() < 0.15, "{:?}", bear.ttft_mape);
}

#[test]
fn an_oracle_does_no_worse_than_means() {
    let mean = play(&scenario(|_| {}), 4).metrics;
    let oracle = play(&scenario(|s| s.routers[0].predictor = Some(PredictorChoice::Oracle)), 4).metrics;
    assert!(oracle.on_time_utility > mean.on_time_utility, "{oracle:?} {mean:?}");
    assert!(oracle.on_time_utility <= oracle.best_utility);
}

#[test]
fn a_failed_instance_gets_nothing_until_it_is_back_and_its_requests_go_elsewhere() {
    let down = |s: &mut Scenario| {
        s.keep_requests = 10_000;
        policy(s, "round-robin");
        s.failures = vec![Failure { instance: String::from("qwen3-8b-0"), at_s: 10.0, for_s: 10.0 }];
    };
    let run = play(&scenario(down), 5);
    let at = |from_s: u64, to_s: u64| {
        let within = |r: &&RequestRecord| (from_s * 1_000_000..to_s * 1_000_000).contains(&r.at_us);
        let served =
            run.requests.iter().filter(within).filter(|r| r.model == "qwen3-8b" && r.e2e_s.is_some());
        served.count()
    };
    // Down from 20 s to 30 s of the run; the breaker closes some seconds after.
    assert!(at(10, 15) > 5 && at(38, 50) > 5);
    assert_eq!(at(20, 30), 0);
    // Whoever had begun to answer is lost; the rest was answered elsewhere.
    assert!(run.metrics.failed > 0 && run.metrics.failed < 60, "{}", run.metrics.failed);
}

#[test]
fn a_journal_holds_what_came_of_every_request_of_one_router() {
    let mut scenario = scenario(|s| s.keep_requests = 10_000);
    scenario.warmup_s = 0.0;
    let run = play(&scenario, 7);
    let supplies = Supplies::default();
    let kept = journal(&scenario, &scenario.routers[0], 7, &supplies).unwrap();
    assert!(kept.entries.is_sorted_by_key(|entry| entry.at));
    let count = |of: fn(&Note) -> bool| kept.entries.iter().filter(|entry| of(&entry.note)).count();
    let requests = run.requests.len();
    assert_eq!(count(|note| matches!(note, Note::Arrival { .. })), requests);
    assert_eq!(count(|note| matches!(note, Note::Decision { decision: Some(_), .. })), requests);
    assert_eq!(count(|note| matches!(note, Note::Token { last: Some(_), .. })), requests);
    scenario.router_count = 2;
    let shared = journal(&scenario, &scenario.routers[0], 7, &supplies).unwrap_err().to_string();
    assert!(shared.contains("router_count") && shared.contains('2'), "{shared}");
}

/// Returns how old the snapshots were that each decision rests on, microseconds, of decisions late enough to have
/// one.
fn ages_us(scenario: &Scenario, from_s: f64) -> Vec<u64> {
    let kept = journal(scenario, &scenario.routers[0], 3, &Supplies::default()).unwrap();
    let started = kept.entries[0].at;
    let late = |entry: &&Entry| entry.at.since(started).as_secs_f64() >= from_s;
    let ages = |entry: &Entry| match &entry.note {
        Note::Decision { decision: Some(decision), .. } => decision
            .candidates
            .iter()
            .filter(|row| row.source.as_deref() == Some("bea"))
            .filter_map(|row| row.age_s)
            .map(|age_s| (age_s * 1e6).round() as u64)
            .collect(),
        _ => Vec::new(),
    };
    kept.entries.iter().filter(late).flat_map(ages).collect()
}

#[test]
fn every_decision_rests_on_a_snapshot_as_old_as_the_rule_says() {
    let of = |period_ms: f64, delay_ms: f64, change: fn(&mut Scenario)| {
        let scenario = scenario(|s| {
            s.warmup_s = 0.0;
            (s.snapshots.period_ms, s.snapshots.delay_ms) = (period_ms, delay_ms);
            change(s);
        });
        let ages = ages_us(&scenario, 2.0);
        assert!(ages.len() > 20, "{}", ages.len());
        ages
    };
    let open = |_: &mut Scenario| {};
    let closed = |s: &mut Scenario| {
        s.arrivals.name = String::from("closed-loop");
        s.arrivals.options = json!({"concurrency": 10, "think_s": 0.5}).as_object().cloned().unwrap();
    };
    let agentic = |s: &mut Scenario| {
        s.workload.name = String::from("agentic");
        s.arrivals.options = json!({"rate_qps": 0.5}).as_object().cloned().unwrap();
    };
    for delay_ms in [25.0, 400.0] {
        let wanted = (delay_ms * 1e3) as u64;
        assert!(of(0.0, delay_ms, open).iter().all(|age| *age == wanted), "{delay_ms}");
    }
    assert!(of(0.0, 0.0, closed).iter().all(|age| *age == 0));
    for change in [open, closed, agentic] {
        let ages = of(50.0, 30.0, change);
        assert!(ages.iter().all(|age| (30_000..80_000).contains(age)), "{:?}", ages.iter().max());
    }
    let late = scenario(|s| {
        closed(s);
        s.snapshots.delay_ms = 100.0;
    });
    let error = run(&late, &late.routers[0], 1, &Supplies::default()).unwrap_err().to_string();
    assert!(error.contains("snapshots.period_ms") && error.contains("give a period"), "{error}");
}

#[test]
fn clients_that_wait_wait_a_while_where_nothing_is_up_and_what_is_lost_is_nobodys() {
    let run = play(
        &scenario(|s| {
            s.arrivals.name = String::from("closed-loop");
            s.arrivals.options = json!({"concurrency": 10}).as_object().cloned().unwrap();
            s.keep_requests = 100_000;
            let down = |model: &str| Failure { instance: format!("{model}-0"), at_s: 5.0, for_s: 5.0 };
            s.failures = ["qwen3-0.6b", "qwen3-8b", "qwen3-32b"].map(down).into();
        }),
        1,
    );
    // Ten clients, each failed once by the loss and then about once a second for a few seconds.
    assert!((20..=200).contains(&run.metrics.failed), "{}", run.metrics.failed);
    let unplaced = run.requests.iter().filter(|r| r.instance.is_empty()).count() as f64;
    let placed: f64 = run.metrics.instance_share.values().sum();
    assert!(unplaced > 0.0 && (placed + unplaced / run.metrics.requests as f64 - 1.0).abs() < 1e-9);
}

#[test]
fn turns_that_would_have_followed_a_lost_one_are_lost_with_it() {
    let down = |s: &mut Scenario| {
        s.workload.name = String::from("agentic");
        s.arrivals.options = json!({"rate_qps": 0.5}).as_object().cloned().unwrap();
        s.warmup_s = 0.0;
        s.keep_requests = 100_000;
        let down = |model: &str| Failure { instance: format!("{model}-0"), at_s: 0.0, for_s: 1e3 };
        s.failures = ["qwen3-0.6b", "qwen3-8b", "qwen3-32b"].map(down).into();
    };
    let (lost, whole) = (
        play(&scenario(down), 2),
        play(
            &scenario(|s| {
                down(s);
                s.failures.clear();
            }),
            2,
        ),
    );
    assert_eq!(lost.metrics.failed, lost.metrics.requests);
    assert_eq!(lost.metrics.on_time_utility, 0.0);
    // As many turns are counted, but for those that answering takes past the end.
    assert!(
        lost.metrics.requests >= whole.metrics.requests && whole.metrics.requests > 10,
        "{:?}",
        whole.metrics
    );
}

#[test]
fn throughput_is_what_is_finished_in_the_measured_time() {
    let overloaded = play(
        &scenario(|s| {
            policy(s, "latency-agnostic");
            s.arrivals.options = json!({"rate_qps": 20.0}).as_object().cloned().unwrap();
        }),
        6,
    );
    let m = overloaded.metrics;
    assert!(m.answers_per_s < 0.8 * m.requests as f64 / 40.0, "{} of {}", m.answers_per_s, m.requests);
}

#[test]
fn an_unknown_instance_or_name_is_named() {
    let error = |change: &dyn Fn(&mut Scenario)| {
        let scenario = scenario(|s| change(s));
        run(&scenario, &scenario.routers[0], 1, &Supplies::default()).unwrap_err().to_string()
    };
    let nowhere = Failure { instance: String::from("qwen3-9b-0"), at_s: 1.0, for_s: 1.0 };
    assert!(error(&|s| s.failures = vec![nowhere.clone()]).contains("qwen3-8b-0"));
    assert!(error(&|s| s.workload.name = String::from("five-tasks")).contains("four-tasks"));
    assert!(error(&|s| s.predictor = PredictorChoice::Bundle(String::from("mine"))).contains("mine"));
    assert!(error(&|s| policy(s, "baer")).contains("bear"));
    assert!(error(&|s| s.routers[0].estimator = String::from("bae")).contains("bea"));
    assert!(error(&|s| s.pool.clear()).contains("pool"));
    assert!(
        error(&|s| s.arrivals.options = json!({"rate": 3}).as_object().cloned().unwrap()).contains("rate")
    );
}

#[test]
fn stale_snapshots_and_lost_senses_cost_accuracy() {
    let mape = |change: &dyn Fn(&mut Scenario)| {
        let m = play(&scenario(|s| change(s)), 6).metrics;
        m.ttft_mape.unwrap()
    };
    let fresh = mape(&|_| {});
    let stale = mape(&|s| s.snapshots.delay_ms = 400.0);
    let blind = mape(&|s| {
        s.snapshots.delay_ms = 400.0;
        s.snapshots.roll_forward = false;
        s.snapshots.ledger = false;
    });
    assert!(fresh < stale && stale < blind, "{fresh} {stale} {blind}");
    let periodic = mape(&|s| s.snapshots.period_ms = 20.0);
    assert!((periodic - fresh).abs() < 0.05, "{periodic} {fresh}");
    let ledger_only = mape(&|s| s.snapshots.enabled = false);
    assert!(ledger_only < 0.5, "{ledger_only}");
}
