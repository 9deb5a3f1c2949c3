//! Conversations, long answers, and mixtures.

use super::*;

/// The turns of a conversation, first one first.
fn turns(item: &Item) -> Vec<&Item> {
    std::iter::successors(Some(item), |item| item.follow_up.as_ref().map(|next| &next.item)).collect()
}

#[test]
fn agentic_conversations_have_the_posts_means() {
    let items = items("agentic", json!({"context_tokens": 10_000_000}), 1, 500);
    let conversations: Vec<Vec<&Item>> = items.iter().map(turns).collect();
    let count = mean(conversations.iter().map(|turns| turns.len() as f64));
    assert!((count - 6.0).abs() < 0.5, "{count}");
    assert!(conversations.iter().all(|turns| (2..=20).contains(&turns.len())));
    let outputs = conversations.iter().flatten().map(|item| f64::from(item.answers[1].output_tokens));
    assert!((mean(outputs.clone()) - 800.0).abs() < 40.0, "{}", mean(outputs));
    // A first prompt is the system prompt with one input; inputs of later turns are what the prompt grew by
    // beyond the answer.
    let first = mean(conversations.iter().map(|turns| f64::from(turns[0].prompt_tokens)));
    assert!((first - 56_500.0).abs() < 2_500.0, "{first}");
    let inputs = conversations.iter().flat_map(|turns| {
        turns.windows(2).map(|pair| {
            f64::from(pair[1].prompt_tokens - pair[0].prompt_tokens - pair[0].answers[1].output_tokens)
        })
    });
    assert!((mean(inputs.clone()) - 1_500.0).abs() < 80.0, "{}", mean(inputs));
    let tools = conversations.iter().flatten().filter_map(|item| item.follow_up.as_ref());
    assert!(tools.clone().all(|next| (1_000_000..=100_000_000).contains(&next.after_us)));
}

#[test]
fn a_turn_repeats_the_hashes_of_all_before_it_and_conversations_share_the_common_ones() {
    let items = items("agentic", json!({"token_scale": 0.25}), 2, 40);
    for item in &items {
        for pair in turns(item).windows(2) {
            let (before, after) = (&pair[0].block_hashes, &pair[1].block_hashes);
            assert_eq!(before[..], after[..before.len()]);
            let tokens = pair[0].prompt_tokens + pair[0].answers[1].output_tokens;
            assert_eq!(before.len(), tokens as usize / 16);
        }
        for turn in turns(item) {
            let longest = turn.answers.iter().map(|answer| answer.output_tokens).max().unwrap();
            assert!(turn.prompt_tokens + longest <= 40_960, "{} {longest}", turn.prompt_tokens);
        }
    }
    // 3,000 tokens at a quarter are 750: 46 full blocks.
    let (a, b) = (&items[0].block_hashes, &items[1].block_hashes);
    assert_eq!(a[..46], b[..46]);
    assert!(a[46..].iter().all(|hash| !b.contains(hash)));
}

#[test]
fn agentic_answers_are_judged_unless_told_otherwise() {
    let scores = |options| {
        let items = items("agentic", options, 3, 200);
        let answers: Vec<_> = items.iter().flat_map(turns).map(|item| item.answers[2].score).collect();
        answers
    };
    let judged = scores(json!({"token_scale": 0.1}));
    // Paper, table 2, aggregate of the largest model.
    let score = mean(judged.into_iter().map(Option::unwrap));
    assert!((score - 0.8954).abs() < 0.015, "{score}");
    assert!(scores(json!({"token_scale": 0.1, "judged": false})).iter().all(Option::is_none));
}

#[test]
fn long_outputs_have_the_catalogues_lengths_within_the_context() {
    let items = items("long-output", json!({}), 4, 4_000);
    let of = |task: &'static str| items.iter().filter(move |item| &*item.task == task);
    assert!((of("reasoning").count() as f64 / 4_000.0 - 0.5).abs() < 0.02);
    // A lognormal of mean 8,000 and deviation 6,500, clipped to 500–32,000, loses about 2% of its mean.
    let output = mean(of("reasoning").map(|item| f64::from(item.answers[1].output_tokens)));
    assert!((output - 7_900.0).abs() < 400.0, "{output}");
    let prompt = mean(of("reasoning").map(|item| f64::from(item.prompt_tokens)));
    assert!((prompt - 1_250.0).abs() < 60.0, "{prompt}");
    let output = mean(of("summarisation").map(|item| f64::from(item.answers[1].output_tokens)));
    assert!((output - 4_200.0).abs() < 200.0, "{output}");
    for item in &items {
        let longest = item.answers.iter().map(|answer| answer.output_tokens).max().unwrap();
        assert!(item.prompt_tokens + longest <= 40_960);
        assert_eq!(item.block_hashes.len(), item.prompt_tokens as usize / 16);
    }
    let (a, b) = (of("reasoning").next().unwrap(), of("reasoning").nth(1).unwrap());
    assert_eq!(a.block_hashes[..15], b.block_hashes[..15], "250 shared tokens are 15 full blocks");
    assert!(a.block_hashes.get(15) != b.block_hashes.get(15));
    let other = of("summarisation").next().unwrap();
    assert_ne!(a.block_hashes[0], other.block_hashes[0]);
}

#[test]
fn a_mixture_has_its_shares_and_outlives_a_part() {
    let options = json!({"parts": [
        {"name": "four-tasks", "options": {"mix": {"summarisation": 1}}, "weight": 3},
        {"name": "agentic", "options": {"token_scale": 0.1}, "weight": 1},
    ]});
    let items = items("mixed", options, 5, 1_500);
    let agentic = items.iter().filter(|item| &*item.task == "agentic").count() as f64 / 1_500.0;
    assert!((agentic - 0.25).abs() < 0.03, "{agentic}");
    let csv = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,480,10\n";
    let files = Files::from([(String::from("t"), csv.as_bytes().into())]);
    let trace = |weight: u32| json!({"name": "trace", "options": {"file": "t"}, "weight": weight});
    let mut both = made_with("mixed", json!({"parts": [trace(1), trace(5)]}), &files).unwrap();
    assert_eq!(drawn(&mut *both, 1, 9).len(), 2);
    let error = made("mixed", json!({"parts": [{"name": "agentics", "weight": 1}]})).err().unwrap();
    assert!(error.to_string().contains("`agentics`"), "{error}");
}
