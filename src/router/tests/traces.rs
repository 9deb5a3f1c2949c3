//! A dry run shows everything and leaves no trace.

use proptest::prelude::*;

use super::*;
use crate::domain::Load;

/// What a later decision could see, as text.
fn state(rig: &Rig) -> String {
    let pool = rig.router.pool();
    let views: Vec<InstanceView> = (0..pool.len()).map(|i| pool.view(i, rig.clock.now())).collect();
    format!("{views:?}")
}

#[test]
fn a_dry_run_estimates_every_eligible_instance() {
    let rig = Rig::new();
    rig.router.pool().set_draining(1, true);
    let decision = rig.dry_run(&described(target(100))).unwrap();
    let estimated: Vec<bool> = decision.candidates.iter().map(|row| row.ttft_s.is_some()).collect();
    assert_eq!(estimated, [true, false, true]);
    assert_eq!(decision.candidates.iter().filter(|row| row.chosen).count(), 1);
    assert!(decision.candidates[1].ineligible.is_some());
}

#[test]
fn a_dry_run_takes_no_turn() {
    let rig = Rig::with(models(), "round-robin");
    let turn = |decision: Decision| decision.candidates.iter().position(|row| row.chosen).unwrap();
    for _ in 0..3 {
        assert_eq!(turn(rig.dry_run(&described(|_| {})).unwrap()), 0);
    }
    assert_eq!(rig.route(&described(|_| {})).unwrap().instance, 0);
    assert_eq!(turn(rig.dry_run(&described(|_| {})).unwrap()), 1);
}

proptest! {
    #[test]
    fn a_dry_run_leaves_no_trace_and_shows_what_a_real_run_picks(
        policy in prop::sample::select(
            crate::policy::POLICIES.iter().map(|entry| entry.name).collect::<Vec<_>>()
        ),
        ttfts in prop::array::uniform3(prop::option::of(0u64..400)),
        target_ms in prop::option::of(1u64..400),
        before in 0usize..4,
        draining in prop::option::of(0usize..3),
    ) {
        let rig = Rig::with(models(), policy);
        rig.ttfts_ms(ttfts);
        let held: Vec<Routed> = (0..before).map(|_| rig.route(&described(|_| {})).unwrap()).collect();
        if let Some(i) = draining {
            rig.router.pool().set_draining(i, true);
        }
        let query = described(|query| query.ttft_target = target_ms.map(Duration::from_millis));
        let before = state(&rig);
        let dry = rig.dry_run(&query).unwrap();
        prop_assert_eq!(&before, &state(&rig));
        let real = rig.route(&query).unwrap();
        let chosen = dry.candidates.iter().position(|row| row.chosen);
        prop_assert_eq!(chosen, Some(real.instance));
        prop_assert_eq!((dry.reason, dry.propensity), (real.decision.reason, real.decision.propensity));
        drop((held, real));
        let none: Vec<Load> = vec![Load::default(); 3];
        prop_assert_eq!((0..3).map(|i| rig.router.pool().load(i)).collect::<Vec<_>>(), none);
    }
}
