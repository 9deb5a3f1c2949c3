//! The driver: what a caller sees of batches, ends, aborts and snapshots, and what holds over any run.

use proptest::prelude::*;

use super::*;
use crate::domain::{
    Timestamp,
    snapshot::{EngineParams, QueuePolicy, Snapshot},
};

fn params() -> EngineParams {
    EngineParams {
        scheduler: String::from("vllm-v1"),
        max_num_batched_tokens: 100,
        max_num_seqs: 4,
        block_size: 10,
        num_kv_blocks: 31,
        max_model_len: 300,
        long_prefill_token_threshold: 0,
        watermark_blocks: 0,
        reserve_full_isl: true,
        enable_chunked_prefill: true,
        enable_prefix_caching: true,
        policy: QueuePolicy::Fcfs,
        async_scheduling: false,
    }
}

fn engine(change: impl FnOnce(&mut EngineParams)) -> Engine {
    let mut params = params();
    change(&mut params);
    Engine::with_block_cache(params).unwrap()
}

fn request(id: &str, prompt_tokens: u32, output_tokens: u32) -> NewRequest {
    NewRequest {
        id: id.to_owned(),
        prompt_tokens,
        output_tokens,
        max_tokens: None,
        priority: 0,
        block_hashes: [].into(),
    }
}

const T0: Timestamp = Timestamp::from_unix_us(1_764_460_800_000_000);

fn snapshot(engine: &Engine) -> Snapshot {
    let (instance, nonce) = (String::from("m"), String::from("n"));
    engine.snapshot(SnapshotMeta { instance, dp_rank: 0, nonce, captured: T0 })
}

/// Returns a begun batch as (id, tokens).
fn begin(engine: &mut Engine) -> Vec<(String, u32)> {
    let shape = engine.begin(T0).unwrap_or_default();
    shape.members.iter().map(|m| (m.id.to_string(), m.tokens)).collect()
}

fn batch(members: &[(&str, u32)]) -> Vec<(String, u32)> {
    members.iter().map(|(id, tokens)| ((*id).to_owned(), *tokens)).collect()
}

#[test]
fn a_request_runs_to_its_last_token() {
    let mut engine = engine(|_| ());
    engine.add(request("a", 150, 2)).unwrap();
    assert_eq!(begin(&mut engine), batch(&[("a", 100)]));
    assert_eq!(engine.end(), []);
    assert_eq!(begin(&mut engine), batch(&[("a", 50)]));
    let token = |output_tokens| Event::Token { id: "a".into(), output_tokens };
    assert_eq!(engine.end(), [token(1)]);
    assert_eq!(begin(&mut engine), batch(&[("a", 1)]));
    let finished = Event::Finished { id: "a".into(), output_tokens: 2, at_model_len: false };
    assert_eq!(engine.end(), [token(2), finished]);
    assert_eq!(engine.begin(T0), None);
    assert_eq!((engine.free_blocks(), engine.residents().len()), (30, 0));
    let expected = Counters {
        steps: 3,
        prefix_cache_queries: 150,
        prefix_cache_hits: 0,
        preemptions: 0,
        prompt_tokens: 150,
        generation_tokens: 2,
    };
    assert_eq!(*engine.counters(), expected);
}

#[test]
fn max_model_len_ends_a_request() {
    let mut engine = engine(|_| ());
    engine.add(request("a", 299, 50)).unwrap();
    let events: Vec<_> =
        (0..3).flat_map(|_| engine.begin(T0).map(|_| engine.end()).unwrap_or_default()).collect();
    assert_eq!(events[1], Event::Finished { id: "a".into(), output_tokens: 1, at_model_len: true });
}

#[test]
fn what_cannot_be_served_is_refused() {
    let mut engine = engine(|_| ());
    engine.add(request("a", 10, 1)).unwrap();
    assert_eq!(engine.add(request("a", 10, 1)), Err(EngineError::DuplicateId { id: String::from("a") }));
    assert_eq!(engine.add(request("b", 0, 1)), Err(EngineError::EmptyPrompt { id: String::from("b") }));
    let too_long = EngineError::TooLong { id: String::from("c"), num_tokens: 300, max_model_len: 300 };
    assert_eq!(engine.add(request("c", 300, 1)), Err(too_long));
    let unknown = Engine::with_block_cache(EngineParams { scheduler: String::from("x"), ..params() });
    assert!(matches!(unknown, Err(EngineError::UnknownScheduler { .. })));
}

#[test]
fn an_abort_frees_at_once_or_when_the_batch_ends() {
    let mut engine = engine(|_| ());
    engine.add(request("a", 50, 9)).unwrap();
    engine.add(request("b", 150, 9)).unwrap();
    assert_eq!(begin(&mut engine), batch(&[("a", 50), ("b", 50)]));
    engine.add(request("c", 50, 9)).unwrap();
    assert!(engine.abort("c"));
    assert!(engine.abort("a"));
    assert!(!engine.abort("a"), "it is gone for its caller");
    assert_eq!((engine.num_waiting(), engine.free_blocks()), (0, 20));
    let taken = snapshot(&engine);
    assert_eq!((taken.running.len(), taken.free_kv_blocks), (1, 25), "a snapshot shows who stays");
    assert_eq!(taken.in_flight.unwrap().tokens, [(String::from("b"), 50)].into());
    assert_eq!(engine.end(), [], "an aborted request emits nothing");
    assert_eq!(engine.free_blocks(), 25);
    engine.add(request("a", 10, 9)).unwrap();
    assert_eq!(begin(&mut engine), batch(&[("b", 100)]), "b's rest fills the budget");
}

#[test]
fn asynchronous_batches_are_formed_one_batch_ahead() {
    let mut engine = engine(|params| {
        params.async_scheduling = true;
        params.max_num_seqs = 2;
    });
    engine.add(request("a", 10, 1)).unwrap();
    engine.add(request("b", 10, 9)).unwrap();
    engine.add(request("c", 10, 9)).unwrap();
    assert_eq!(begin(&mut engine), batch(&[("a", 10), ("b", 10)]));
    assert_eq!(engine.end().len(), 3, "two tokens, and a is finished");
    assert_eq!(begin(&mut engine), batch(&[("b", 1)]), "a held its seat when this batch was formed");
    engine.end();
    assert_eq!(begin(&mut engine), batch(&[("b", 1), ("c", 10)]));
    engine.add(request("d", 10, 9)).unwrap();
    assert!(engine.abort("c"));
    engine.end();
    assert_eq!(begin(&mut engine), batch(&[("b", 1)]), "d came after the last batch began, c holds its seat");
    engine.end();
    assert_eq!(begin(&mut engine), batch(&[("b", 1), ("d", 10)]));
}

#[test]
fn a_snapshot_counts_the_running_batch_as_computed_and_not_yet_emitted() {
    let mut engine = engine(|params| params.max_num_seqs = 1);
    let hashes: std::sync::Arc<[u64]> = [1, 2, 3].into();
    engine.add(NewRequest { block_hashes: hashes.clone(), ..request("a", 35, 9) }).unwrap();
    engine.add(NewRequest { block_hashes: hashes, max_tokens: Some(7), ..request("b", 35, 9) }).unwrap();
    engine.begin(T0.after_s(-1.0));
    let taken = snapshot(&engine);
    let flying = taken.in_flight.unwrap();
    assert_eq!(flying.tokens, [(String::from("a"), 35)].into());
    let a = &taken.running[0];
    assert_eq!((a.computed_tokens, a.output_tokens, a.kv_blocks, a.kv_blocks_exclusive), (35, 0, 4, Some(4)));
    let b = &taken.waiting[0];
    assert_eq!((b.cached_tokens, b.cached_blocks_in_use, b.max_tokens), (30, 3, Some(7)));
    assert_eq!((taken.free_kv_blocks, taken.seq), (26, 0));
    engine.end();
    let taken = snapshot(&engine);
    assert_eq!((taken.in_flight, taken.running[0].output_tokens, taken.seq), (None, 1, 1));
}

#[test]
fn a_snapshot_sums_what_waits_past_512() {
    let mut engine = engine(|_| ());
    for i in 0..580 {
        engine.add(request(&i.to_string(), 20, 1)).unwrap();
    }
    let taken = snapshot(&engine);
    assert_eq!((taken.waiting.len(), taken.waiting_beyond.requests), (512, 68));
    assert_eq!(taken.waiting_beyond.prefill_tokens, 68 * 20);
}

/// One thing done to an engine.
#[derive(Clone, Debug)]
enum Operation {
    /// A prompt of shared blocks, then own tokens, with an output length and a priority.
    Add {
        family: u64,
        shared_blocks: u32,
        own_tokens: u32,
        output_tokens: u32,
        priority: i32,
    },
    Step,
    Begin,
    End,
    Abort(usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (0..3_u64, 0..12_u32, 1..120_u32, 1..40_u32, 0..3_i32).prop_map(
            |(family, shared_blocks, own_tokens, output_tokens, priority)| Operation::Add {
                family, shared_blocks, own_tokens, output_tokens, priority,
            }
        ),
        8 => Just(Operation::Step),
        1 => Just(Operation::Begin),
        1 => Just(Operation::End),
        1 => (0..8_usize).prop_map(Operation::Abort),
    ]
}

fn any_params() -> impl Strategy<Value = EngineParams> {
    let switches = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let numbers = (prop_oneof![Just(0_u32), Just(30)], 0..4_u32, 1..6_u32);
    (switches, numbers).prop_map(|((isl, caching, ahead, fcfs), (threshold, watermark, seats))| {
        EngineParams {
            reserve_full_isl: isl,
            enable_prefix_caching: caching,
            async_scheduling: ahead,
            policy: if fcfs { QueuePolicy::Fcfs } else { QueuePolicy::Priority },
            long_prefill_token_threshold: threshold,
            watermark_blocks: watermark,
            max_num_seqs: seats,
            ..params()
        }
    })
}

/// An engine under random operations, checked after each.
struct Watched {
    engine: Engine,
    added: u32,
    admitted: Vec<u32>,
}

impl Watched {
    fn apply(&mut self, operation: &Operation) {
        match *operation {
            Operation::Add { family, shared_blocks, own_tokens, output_tokens, priority } => {
                let own = u64::from(self.added) << 32;
                let shared = (1..=u64::from(shared_blocks)).map(|block| family << 60 | block);
                let hashes =
                    shared.chain((0..own_tokens / 10).map(|block| own | u64::from(block) << 16 | 0xffff));
                let new = NewRequest {
                    block_hashes: hashes.collect(),
                    priority,
                    ..request(&self.added.to_string(), shared_blocks * 10 + own_tokens, output_tokens)
                };
                self.engine.add(new).unwrap();
                self.added += 1;
            }
            Operation::Step => {
                self.begin();
                self.engine.end();
            }
            Operation::Begin => self.begin(),
            Operation::End => drop(self.engine.end()),
            Operation::Abort(nth) => {
                if let Some(id) = self.engine.residents().get(nth).cloned() {
                    self.engine.abort(&id);
                }
            }
        }
        self.engine.state.kv.assert_sound();
    }

    fn begin(&mut self) {
        let Some(shape) = self.engine.begin(T0) else { return };
        let config = self.engine.state.config;
        let tokens: u32 = shape.members.iter().map(|member| member.tokens).sum();
        assert!(tokens <= config.max_num_batched_tokens, "the budget is kept");
        assert!(shape.members.iter().all(|member| member.tokens > 0));
        assert!(self.engine.num_running() <= config.max_num_seqs as usize, "the seats are kept");
        let first = shape.members.iter().filter(|member| member.admission.is_some_and(|a| !a.resumed));
        self.admitted.extend(first.map(|member| member.id.parse::<u32>().unwrap()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_run_conserves_blocks_keeps_order_and_comes_to_rest(
        params in any_params(),
        operations in proptest::collection::vec(operation(), 1..80),
    ) {
        let fcfs = params.policy == QueuePolicy::Fcfs;
        let engine = Engine::with_block_cache(params).unwrap();
        let mut watched = Watched { engine, added: 0, admitted: Vec::new() };
        for operation in &operations {
            watched.apply(operation);
        }
        watched.engine.end();
        let mut steps = 0;
        while watched.engine.num_running() + watched.engine.num_waiting() > 0 && steps < 20_000 {
            watched.apply(&Operation::Step);
            steps += 1;
        }
        watched.begin();
        prop_assert_eq!(watched.engine.residents().len(), 0, "everyone is served");
        prop_assert_eq!(watched.engine.free_blocks(), 30);
        prop_assert!(!fcfs || watched.admitted.is_sorted(), "first come, first served: {:?}", watched.admitted);
    }
}

/// Returns a counted state with these (prompt, remaining, cached, blocks in use) waiting.
fn counted(params: &EngineParams, waiting: &[(u32, u32, u32, u32)]) -> EngineState<BlockCounts> {
    let config = SchedulerConfig::try_from(params).unwrap();
    let mut state = EngineState::new(config, BlockCounts::new(config, config.usable_blocks()));
    for (slot, &(prompt, remaining, cached_tokens, cached_blocks_in_use)) in waiting.iter().enumerate() {
        state.requests.push(Request {
            num_prompt_tokens: prompt,
            num_output_tokens: 0,
            num_computed_tokens: 0,
            num_remaining_tokens: remaining,
            priority: 0,
            arrival: slot as u64,
            status: RequestStatus::Waiting,
        });
        state.kv.push(BlockCount { cached_tokens, cached_blocks_in_use, ..BlockCount::default() });
        state.waiting.push_back(slot);
    }
    state
}

proptest! {
    #[test]
    fn counted_blocks_are_conserved(
        params in any_params(),
        waiting in proptest::collection::vec((1..250_u32, 1..60_u32, 0..250_u32, 0..9_u32), 1..10),
    ) {
        let mut state = counted(&params, &waiting);
        let mut vllm = (scheduler("vllm-v1").unwrap().counted)(&state.config, None).unwrap();
        let mut batch = Batch::default();
        for step in 0..10_000 {
            vllm.form(&mut state, &mut batch);
            let exclusive: u32 = state.running.iter().map(|&slot| state.kv.count(slot).exclusive).sum();
            prop_assert_eq!(state.kv.free() + exclusive, state.config.usable_blocks(), "step {}", step);
            let tokens: u32 = batch.members.iter().map(|member| member.num_scheduled_tokens).sum();
            prop_assert!(tokens <= params.max_num_batched_tokens);
            prop_assert!(state.running.len() <= params.max_num_seqs as usize);
            state.advance(&batch);
            for member in batch.members.iter().filter(|member| member.emits) {
                state.emit(member.slot);
            }
            state.release_finished(|_| ());
            if state.running.is_empty() && state.waiting.is_empty() {
                return Ok(());
            }
        }
        prop_assert!(false, "it never comes to rest");
    }
}
