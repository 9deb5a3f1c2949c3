//! The lab: what a simulated request costs, on a small pool and on a very large one.
//!
//! The whole million requests on a thousand instances is `bear lab run config/scenarios/scale.yaml --jobs 1`.
#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};

use bear::lab::{
    PredictorChoice, Scenario,
    fleet::{self, Supplies},
};

/// A scenario that ships, shortened, with predictions that need no file.
fn scenario(text: &str, duration_s: f64) -> Scenario {
    let scenario = Scenario::parse(text, "bench").unwrap();
    Scenario { duration_s, warmup_s: 0.0, predictor: PredictorChoice::Mean, ..scenario }
}

fn requests(scenario: &Scenario) -> u64 {
    fleet::run(scenario, &scenario.routers[0], 1, &Supplies::default()).unwrap().metrics.requests
}

fn played(c: &mut Criterion) {
    let small = scenario(include_str!("../config/scenarios/poisson.yaml"), 1200.0);
    let large = scenario(include_str!("../config/scenarios/scale.yaml"), 4.0);
    let mut group = c.benchmark_group("lab");
    group.sample_size(10);
    for (name, scenario) in [("three instances, 20 minutes", &small), ("1000 instances, 4 seconds", &large)] {
        group.throughput(Throughput::Elements(requests(scenario)));
        group.bench_function(name, |b| b.iter(|| requests(scenario)));
    }
    group.finish();
}

criterion_group!(benches, played);
criterion_main!(benches);
