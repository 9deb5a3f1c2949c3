//! Who may serve a request, and what the client is told otherwise.

use super::*;
use crate::domain::Ineligible;

#[test]
fn the_prompt_and_the_output_asked_for_must_fit_the_context() {
    let rig = Rig::new();
    let fits = |prompt_tokens, cap| {
        let result = rig.route(&described(|query| {
            query.prompts = vec![PromptCount::one(prompt_tokens, CountSource::Tokenizer); 2];
            query.max_output_tokens = cap;
        }));
        result.map(|routed| routed.instance)
    };
    assert!(fits(4095, None).is_ok() && fits(4000, Some(96)).is_ok());
    let too_long = Ineligible::ContextLength { needed_tokens: 4097, max_model_len_tokens: 4096 };
    for result in [fits(4096, None), fits(4000, Some(97))] {
        let Err(RouteError::NoneEligible(rows)) = result else { panic!("{result:?}") };
        assert_eq!(reasons(&rows), vec![Some(too_long.clone()); 3]);
    }
}

#[test]
fn each_model_counts_the_prompt_its_own_way() {
    let rig = Rig::new();
    let routed = rig.route(&described(|query| query.prompts[1].longest_tokens = 9999)).unwrap();
    assert_ne!(routed.instance, 2);
    assert!(matches!(
        routed.decision.candidates[2].ineligible,
        Some(Ineligible::ContextLength { needed_tokens: 10_000, .. })
    ));
}

#[test]
fn of_several_prompts_each_must_fit_and_not_their_sum() {
    let rig = Rig::new();
    let several = |longest_tokens| {
        let count = PromptCount { tokens: 9000, longest_tokens, source: CountSource::Tokenizer };
        rig.route(&described(|query| query.prompts = vec![count; 2]))
    };
    let routed = several(3000).unwrap();
    let basis = rig.router.pool().view(routed.instance, rig.clock.now()).basis.unwrap();
    assert_eq!(basis.dispatched[0].prompt_tokens, 4095, "the work of as much as one sequence holds");
    let too_long = Ineligible::ContextLength { needed_tokens: 4097, max_model_len_tokens: 4096 };
    assert_eq!(reasons(&none_eligible(several(4096))), vec![Some(too_long); 3]);
}

#[test]
fn a_guess_by_bytes_refuses_nothing() {
    let rig = Rig::new();
    let query = described(|query| {
        query.endpoint = Endpoint::Other(String::from("embeddings"));
        query.prompts = vec![PromptCount::one(9000, CountSource::Bytes); 2];
    });
    let routed = rig.route(&query).unwrap();
    let chosen = routed.decision.chosen().unwrap();
    assert_eq!((chosen.prompt_tokens, chosen.count_source.as_str()), (9000, "bytes"));
    assert_eq!(chosen.feasible, Some(true));
}

#[test]
fn abilities_rule_models_out() {
    let mut models = models();
    models[0].capabilities =
        Capabilities { tools: false, structured_output: false, ..Capabilities::default() };
    models[1].capabilities.modalities = modalities(&["text", "image"]);
    let rig = Rig::with(models, "bear");
    rig.ttfts_ms([Some(1), Some(1), Some(900)]);
    let reason = |needs: Needs| {
        let routed = rig.route(&described(|query| query.needs = needs)).unwrap();
        assert_eq!(routed.instance, 2);
        routed.decision.candidates[0].ineligible.clone().unwrap()
    };
    let image = Needs { modalities: modalities(&["text", "image"]), ..Needs::default() };
    assert_eq!(reason(image), Ineligible::Modality { modality: String::from("image") });
    assert_eq!(reason(Needs { tools: true, ..Needs::default() }), Ineligible::Tools);
    assert_eq!(reason(Needs { structured_output: true, ..Needs::default() }), Ineligible::StructuredOutput);
    let audio = Needs { modalities: modalities(&["audio"]), ..Needs::default() };
    let rows = none_eligible(rig.route(&described(|query| query.needs = audio)));
    assert_eq!(rows.iter().filter(|row| row.ineligible.is_some()).count(), 3);
}

#[test]
fn bounds_rule_models_out_with_their_numbers() {
    let rig = Rig::new();
    let routed = rig.route(&described(|query| query.bounds.min_accuracy = Some(0.5))).unwrap();
    let out = routed.decision.candidates[0].ineligible.clone().unwrap();
    assert_eq!(out, Ineligible::MinAccuracy { accuracy: 0.4, min_accuracy: 0.5 });
    // Small: 1000·0.1 + 100·0.2 = 120e-6; large: 1000·1 + 200·2 = 1400e-6.
    let routed = rig.route(&described(|query| query.bounds.max_cost_usd = Some(200e-6))).unwrap();
    assert_eq!(routed.decision.chosen().unwrap().model, "small");
    let rows = none_eligible(rig.route(&described(|query| {
        query.bounds = Bounds { min_accuracy: Some(0.5), max_cost_usd: Some(200e-6) };
    })));
    assert!(matches!(rows[0].ineligible, Some(Ineligible::MinAccuracy { .. })));
    assert!(
        matches!(rows[2].ineligible, Some(Ineligible::MaxCost { max_cost_usd, .. }) if max_cost_usd == 200e-6)
    );
    assert!((rows[2].cost_usd.unwrap() - 1400e-6).abs() < 1e-12, "the numbers are shown");
}

#[test]
fn a_bound_on_the_unknown_is_not_kept() {
    let mut models = models();
    models[0].prior_accuracy = None;
    models[1].prior_output_tokens = None;
    let rig = Rig::with(models, "bear");
    let rows = none_eligible(rig.route(&described(|query| {
        query.bounds = Bounds { min_accuracy: Some(0.1), max_cost_usd: Some(1.0) };
    })));
    let unknown = |bound: &str| Some(Ineligible::UnknownPrediction { bound: bound.to_owned() });
    assert_eq!(reasons(&rows), [unknown("min_accuracy"), unknown("min_accuracy"), unknown("max_cost_usd")]);
}

#[test]
fn what_is_down_or_has_failed_the_request_is_not_chosen() {
    let rig = Rig::new();
    rig.router.pool().set_draining(2, true);
    let routed = rig.attempt(&described(|_| {}), &[0], 2).unwrap();
    assert_eq!((routed.instance, routed.decision.reason), (1, crate::domain::Reason::Retry));
    let why = |row: &Candidate| match &row.ineligible {
        Some(Ineligible::Unusable { why }) => why.clone(),
        other => panic!("{other:?}"),
    };
    let rows = none_usable(rig.attempt(&described(|_| {}), &[0, 1], 2));
    assert_eq!(why(&rows[0]), "already failed this request");
    assert_eq!(why(&rows[2]), "draining");
}

#[test]
fn a_model_that_could_serve_if_it_were_up_makes_the_pool_unusable_not_unfit() {
    let rig = Rig::new();
    rig.router.pool().set_draining(2, true);
    let rows = none_usable(rig.route(&described(|query| query.named = Named::Model(LARGE))));
    assert_eq!(rows[0].ineligible, Some(Ineligible::OtherModel));
}
