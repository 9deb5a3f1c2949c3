//! The pipeline's parts on hand-made sites.

use std::sync::Arc;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::domain::{
    Bounds, Endpoint, InstanceId, InstanceSpec, Load, ModelIndex, Named, Needs, Overhead, Price, Timestamp,
    Tradeoff,
};

fn query(target_ms: Option<u64>) -> Query {
    Query {
        id: String::from("q"),
        arrived: Timestamp::from_unix_us(0),
        tenant: None,
        priority: 0,
        adapter: None,
        endpoint: Endpoint::Chat,
        named: Named::Virtual,
        requested_model: String::from("auto"),
        needs: Needs::default(),
        streamed: true,
        max_output_tokens: None,
        choices: 1,
        ttft_target: target_ms.map(std::time::Duration::from_millis),
        tpot_target: None,
        bounds: Bounds::default(),
        tradeoff: Tradeoff { lambda_per_usd: 0.0, delta_per_s: 0.0 },
        prompts: Vec::new(),
        prefix: [].into(),
    }
}

fn view(uncached_tokens: u64, peak_tokens_per_s: Option<f64>) -> InstanceView {
    InstanceView {
        spec: Arc::new(InstanceSpec {
            id: InstanceId::from("i"),
            model: ModelIndex(0),
            dp_rank: 0,
            price: Price::default(),
            batch_time: None,
            overhead: Overhead::default(),
            effective_prefill_tokens_per_s: None,
            peak_prefill_tokens_per_s: peak_tokens_per_s,
        }),
        basis: None,
        resident_requests: None,
        load: Load { requests: 0, uncached_prefill_tokens: uncached_tokens },
        usable: Ok(()),
    }
}

fn site(view: &InstanceView, hit: Option<f64>) -> Site<'_> {
    let load = QueryLoad {
        prompt_tokens: 1000,
        cached_tokens: 0,
        cached_blocks_in_use: 0,
        output_tokens: 10,
        priority: 0,
    };
    Site { view, load, hit }
}

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(3)
}

fn keep(views: &[(InstanceView, Option<f64>)], target_ms: Option<u64>) -> Vec<usize> {
    let sites: Vec<Site<'_>> = views.iter().map(|(view, hit)| site(view, *hit)).collect();
    PrefixGate::default().keep(&query(target_ms), &sites, &mut rng())
}

#[test]
fn token_load_looks_ahead_at_the_uncached_part_of_the_query() {
    let view = view(3096, None);
    let score = |hit| TokenLoad::default().score(&query(None), &site(&view, hit)).unwrap();
    // 3096 in flight and 1000 to add are 4096 of 4194304 tokens: 1/1024.
    assert_eq!(score(Some(0.0)), 1.0 - 1.0 / 1024.0);
    assert_eq!(score(Some(0.5)), 1.0 - 3596.0 / 4_194_304.0);
    assert_eq!(score(None), score(Some(0.0)), "an unknown hit takes nothing off");
}

#[test]
fn token_load_ends_at_zero() {
    let view = view(9_000_000, None);
    assert_eq!(TokenLoad::default().score(&query(None), &site(&view, None)), Some(0.0));
}

#[test]
fn max_score_puts_ties_into_one_tier_in_random_order() {
    let mut rng = rng();
    let mut firsts = [0; 4];
    for _ in 0..600 {
        let order = MaxScore.order(&[0.5, 0.9, 0.9, 0.1], &mut rng);
        let tiers: Vec<usize> = order.iter().map(|ranked| ranked.tier).collect();
        assert_eq!(tiers, [0, 0, 1, 2]);
        assert_eq!((order[2].position, order[3].position), (0, 3));
        firsts[order[0].position] += 1;
    }
    assert_eq!(firsts[0] + firsts[3], 0);
    assert!(firsts[1] > 240 && firsts[2] > 240, "{firsts:?}");
}

#[test]
fn the_pipeline_ranks_by_token_load() {
    let views = [view(500, None), view(0, None), view(100, None)];
    let sites: Vec<Site<'_>> = views.iter().map(|view| site(view, None)).collect();
    let pipeline = Pipeline::from_config(&AffinityConfig::default()).unwrap();
    let ranking = pipeline.rank(&query(None), &sites, &mut rng());
    let places: Vec<(usize, usize)> = ranking.iter().map(|r| (r.position, r.tier)).collect();
    assert_eq!(places, [(1, 0), (2, 1), (0, 2)]);
}

#[test]
fn what_the_gate_leaves_out_follows_behind() {
    let views = [view(0, Some(1e4)), view(5000, Some(1e4)), view(9000, Some(1e4))];
    let hits = [None, Some(0.9), Some(0.95)];
    let sites: Vec<Site<'_>> = views.iter().zip(hits).map(|(view, hit)| site(view, hit)).collect();
    let pipeline = Pipeline::from_config(&AffinityConfig::default()).unwrap();
    let ranking = pipeline.rank(&query(None), &sites, &mut rng());
    let places: Vec<(usize, usize)> = ranking.iter().map(|r| (r.position, r.tier)).collect();
    assert_eq!(places, [(1, 0), (2, 1), (0, 2)]);
}

#[test]
fn the_gate_passes_all_while_hits_are_unknown_or_small() {
    assert_eq!(keep(&[(view(0, Some(1e4)), None), (view(0, Some(1e4)), None)], None), [0, 1]);
    assert_eq!(keep(&[(view(0, Some(1e4)), Some(0.79)), (view(0, Some(1e4)), Some(0.0))], None), [0, 1]);
}

#[test]
fn the_gate_opens_where_sticking_costs_more_than_the_penalty() {
    // 10,000 tokens/s: 180,000 tokens more are 18 s, the default penalty.
    let pair = |warm_tokens| [(view(warm_tokens, Some(1e4)), Some(0.8)), (view(0, Some(1e4)), Some(0.1))];
    assert_eq!(keep(&pair(180_000), None), [0]);
    assert_eq!(keep(&pair(180_001), None), [0, 1]);
    assert_eq!(keep(&pair(5000), Some(500)), [0], "half a second is within the target");
    assert_eq!(keep(&pair(5001), Some(500)), [0, 1], "the target bounds the penalty");
}

#[test]
fn the_gate_narrows_nothing_where_a_backlog_cannot_be_told() {
    assert_eq!(keep(&[(view(0, None), Some(0.9)), (view(0, Some(1e4)), Some(0.1))], None), [0, 1]);
}

#[test]
fn the_configuration_names_what_is_out_of_range() {
    let check = |config: AffinityConfig| config.check().unwrap_err().to_string();
    let base = AffinityConfig::default();
    assert!(base.check().is_ok());
    assert!(check(AffinityConfig { threshold: 1.5, ..base }).contains("affinity.threshold is 1.5"));
    assert!(check(AffinityConfig { max_ttft_penalty_ms: -1.0, ..base }).contains("max_ttft_penalty_ms"));
    assert!(check(AffinityConfig { exploration: 0.1, ..base }).contains("exploration"));
}

#[test]
fn the_registries_build_what_they_name() {
    assert!(FILTERS.iter().all(|entry| (entry.build)().name() == entry.name));
    assert!(SCORERS.iter().all(|entry| (entry.build)().name() == entry.name));
    assert!(PICKERS.iter().all(|entry| (entry.build)().name() == entry.name));
}
