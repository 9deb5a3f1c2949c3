//! What another policy would have chosen for a logged row, how likely, and whether the log can tell at all.

use std::cell::Cell;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::{
    Change, LoggedRow, Unestimated,
    candidates::{Kept, Missed, Rebuilt},
    roster::Roster,
    world::{HYPOTHESES, Stage, World},
};
use crate::{
    domain::{
        Candidate, CountSource, Ineligible, ModelId, Named, Prediction, PromptCount, Query, Reason, Tradeoff,
    },
    lab::LabError,
    policy::{self, Choice, PolicyConfig},
};

/// Probabilities closer than this are the same; one this close to 1 is certain.
const SAME_PROBABILITY: f64 = 1e-9;
/// Draws of a policy that draws, to find the probability of the logged choice.
const MOST_DRAWS: i32 = 64;

/// Why the log cannot answer for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The choice depends on a TTFT that was never estimated.
    NoEstimate,
    /// The choice depends on a time past the first token, which rows do not hold.
    NoCompletionTime,
    /// The choice depends on the order of replicas, which rows hold for the chosen model only.
    NoRanking,
    /// The choice depends on queues, caches, throughputs, prices, prefixes or what the policy has learned.
    NoState,
    /// An instance of the new pool is not in the row: it was never logged then.
    NotInPool,
    /// The new price lets in an instance that a cost bound kept out; nothing else was recorded of it.
    NoEligibility,
    /// The new pool has no instance that may serve the request.
    NoneLeft,
}

impl Why {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::NoEstimate,
        Self::NoCompletionTime,
        Self::NoRanking,
        Self::NoState,
        Self::NotInPool,
        Self::NoEligibility,
        Self::NoneLeft,
    ];

    /// Returns its name in reports.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::NoEstimate => "no-estimate",
            Self::NoCompletionTime => "no-completion-time",
            Self::NoRanking => "no-ranking",
            Self::NoState => "no-state",
            Self::NotInPool => "not-in-pool",
            Self::NoEligibility => "no-eligibility",
            Self::NoneLeft => "none-left",
        }
    }

    /// Returns the reason in words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::NoEstimate => "needs a TTFT that was not estimated then",
            Self::NoCompletionTime => "needs a time past the first token, which rows do not hold",
            Self::NoRanking => "needs the order of replicas, logged for the chosen model only",
            Self::NoState => "needs queues, caches, prices or learned state, which rows do not hold",
            Self::NotInPool => "an instance asked for was not in the pool then",
            Self::NoEligibility => "the new price lets in an instance of which nothing else is logged",
            Self::NoneLeft => "no instance of the new pool may serve the request",
        }
    }
}

/// The new choice, as far as the log tells; places are those of the row's table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Chosen {
    /// This instance.
    Instance {
        /// Its place.
        candidate: usize,
        /// Probability of it from the same state.
        propensity: f64,
    },
    /// One of a model's instances, nobody knows which.
    Model {
        /// The place of one of them.
        candidate: usize,
    },
    /// The log cannot tell.
    Nothing(Why),
}

/// A row under the change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// The new choice.
    pub chosen: Chosen,
    /// What is predicted of it now; absent: no choice.
    pub prediction: Option<Prediction>,
    /// Probability of the *logged* choice under the new policy; absent: the log cannot tell.
    pub of_logged: Option<f64>,
    /// Whether it rests on what stands for a TTFT that was never estimated.
    pub assumed: bool,
    /// Whether the logged policy surely never makes the new choice from the same state.
    pub unsupported: bool,
}

/// Answers rows in the order of the log.
pub struct Replayer {
    change: Change,
    seed: u64,
    roster: Roster,
    stage: Stage,
    worlds: Vec<World>,
    /// Rows answered so far.
    rows: u64,
}

impl Replayer {
    /// Makes a replayer whose draws follow `seed`.
    ///
    /// # Errors
    /// [`LabError::Policy`] where the change names a policy or an option that does not exist.
    pub fn new(change: Change, seed: u64) -> Result<Self, LabError> {
        let mut worlds: Vec<World> = HYPOTHESES.iter().map(World::new).collect();
        if let Some(config) = &change.policy {
            for world in &mut worlds {
                world.enact(config)?;
            }
        }
        Ok(Self { change, seed, roster: Roster::default(), stage: Stage::new(), worlds, rows: 0 })
    }

    /// Returns what is different.
    #[must_use]
    pub const fn change(&self) -> &Change {
        &self.change
    }

    /// Returns names of the change that no row so far had, as instance or model.
    pub fn unseen(&self) -> impl Iterator<Item = String> {
        let Change { without, only, prices, .. } = &self.change;
        self.roster.unseen(without.iter().chain(only).chain(prices.keys())).into_iter()
    }

    /// Returns the names of all instances and models so far.
    pub fn seen(&self) -> impl Iterator<Item = &str> {
        let models = self.roster.models.iter().map(String::as_str);
        models.chain(self.roster.seats.iter().map(|seat| seat.id.as_str()))
    }

    /// Answers one row.
    ///
    /// # Errors
    /// [`LabError::Policy`] where the row names a policy that does not exist and the change none.
    pub fn answer(&mut self, row: &LoggedRow) -> Result<Answer, LabError> {
        self.rows += 1;
        let policy = match &self.change.policy {
            Some(config) => config.name.clone(),
            None => self.enact(&row.decision.policy)?,
        };
        let seats = self.roster.seat(&row.decision.candidates);
        self.stage.seat(&self.roster.seats, &self.change.prices);
        match self.kept(row, &seats) {
            Ok(kept) => Ok(self.choose(row, &kept, &policy)),
            Err(why) => Ok(nothing(why)),
        }
    }

    fn enact(&mut self, name: &str) -> Result<String, LabError> {
        let config = PolicyConfig { name: name.to_owned(), ..PolicyConfig::default() };
        for world in &mut self.worlds {
            world.enact(&config)?;
        }
        Ok(config.name)
    }

    /// Returns the instances that may be chosen: eligible as logged, in the new pool, in bounds at the new price.
    fn kept(&self, row: &LoggedRow, seats: &[usize]) -> Result<Vec<Kept>, Why> {
        let table = &row.decision.candidates;
        let there = |name: &String| table.iter().any(|c| c.instance.as_str() == name || c.model == *name);
        if !self.change.only.iter().all(there) {
            return Err(Why::NotInPool);
        }
        let mut kept = Vec::with_capacity(table.len());
        for (i, (candidate, &seat)) in table.iter().zip(seats).enumerate() {
            if !self.change.keeps(candidate) {
                continue;
            }
            let prediction = self.change.predict(row, candidate);
            let repriced = self.change.prices.contains_key(&candidate.model);
            let over = matches!((row.query.bounds.max_cost_usd, prediction.cost_usd), (Some(most), Some(cost)) if cost > most);
            match &candidate.ineligible {
                Some(Ineligible::MaxCost { .. }) if repriced && !over => return Err(Why::NoEligibility),
                None if !(repriced && over) => kept.push(Kept { row: i, seat, prediction }),
                _ => {}
            }
        }
        if kept.is_empty() { Err(Why::NoneLeft) } else { Ok(kept) }
    }

    /// Asks the worlds, with the change's assumption only where nothing else answers, and carries out their choices.
    fn choose(&self, row: &LoggedRow, kept: &[Kept], policy: &str) -> Answer {
        let (mut answer, mut choices) = self.agree(row, kept, policy, Unestimated::Refuse);
        let assume = self.change.unestimated;
        if answer.chosen == Chosen::Nothing(Why::NoEstimate) && assume != Unestimated::Refuse {
            (answer, choices) = self.agree(row, kept, policy, assume);
            // Outcomes tell nothing of what is only assumed.
            answer = Answer { of_logged: None, unsupported: false, assumed: true, ..answer };
        }
        let Some(first) = choices.first() else { return answer };
        for (world, Choice { instance, .. }) in self.worlds.iter().zip(&choices) {
            if let Some(policy) = world.policy(policy) {
                let places = (*instance, first.instance);
                world.carry_out(policy, &self.query(row, world), kept, places, row);
            }
        }
        answer
    }

    /// Lets every world choose; returns what they agree on and their choices.
    fn agree(
        &self,
        row: &LoggedRow,
        kept: &[Kept],
        policy: &str,
        unestimated: Unestimated,
    ) -> (Answer, Vec<Choice>) {
        let queries: Vec<Query> = self.worlds.iter().map(|world| self.query(row, world)).collect();
        let mut rngs = vec![ChaCha8Rng::seed_from_u64(self.seed ^ (self.rows << 16)); self.worlds.len()];
        let mut missed = Missed::default();
        let model_of = |kept: &Kept| ModelId::from(row.decision.candidates[kept.row].model.as_str());
        let models: Vec<ModelId> = kept.iter().map(model_of).collect();
        let logged = row.chosen().and_then(|chosen| kept.iter().position(|kept| kept.row == chosen));
        let mut draw = |first: Option<usize>| -> Vec<Choice> {
            let mut choices: Vec<Choice> = Vec::with_capacity(self.worlds.len());
            for ((world, query), rng) in self.worlds.iter().zip(&queries).zip(&mut rngs) {
                let against = choices.first().map_or(0, |choice| choice.instance);
                let hypothesis = world.hypothesis;
                let views = self.stage.views(hypothesis, kept, &self.roster.seats, against);
                let missed_here = Cell::default();
                let models = models.clone();
                let rebuilt = Rebuilt {
                    row,
                    kept,
                    hypothesis,
                    views,
                    models,
                    against,
                    first,
                    unestimated,
                    missed: missed_here,
                };
                choices.extend(match query.named {
                    Named::Model(_) => policy::pinned(query, &rebuilt, rng),
                    Named::Virtual => world.policy(policy).and_then(|p| p.choose(query, &rebuilt, rng)),
                });
                missed.join(rebuilt.missed.get());
            }
            choices
        };
        let first = draw(None);
        let choice = match first.first() {
            Some(choice) if first.len() == self.worlds.len() => choice,
            _ => return (nothing(Why::NoneLeft), Vec::new()),
        };
        let mut answer = match agreed(&first) {
            true => {
                let place = kept[choice.instance];
                Answer {
                    chosen: Chosen::Instance { candidate: place.row, propensity: choice.propensity },
                    prediction: Some(place.prediction),
                    of_logged: probability(choice.clone(), logged, &mut draw),
                    assumed: false,
                    unsupported: false,
                }
            }
            false => self.by_model(&first, kept, logged).unwrap_or_else(|| nothing(why(missed))),
        };
        answer.unsupported = answer.of_logged == Some(0.0) && never_taken(row, answer.chosen);
        (answer, first)
    }

    /// Settles for the model where the worlds differ only in which of its replicas they take.
    fn by_model(&self, choices: &[Choice], kept: &[Kept], logged: Option<usize>) -> Option<Answer> {
        let kind = |i: usize| {
            let seat = &self.roster.seats[kept[i].seat];
            (seat.model, seat.price_class)
        };
        let first = choices.first()?;
        let one_kind =
            choices.iter().all(|c| kind(c.instance) == kind(first.instance) && certain(c.propensity));
        let place = kept[first.instance];
        one_kind.then(|| Answer {
            chosen: Chosen::Model { candidate: place.row },
            prediction: Some(place.prediction),
            of_logged: match logged {
                Some(logged) if kind(logged) == kind(first.instance) => None,
                _ => Some(0.0),
            },
            assumed: false,
            unsupported: false,
        })
    }

    /// Returns the row's query as the new policy would have got it in a world.
    fn query(&self, row: &LoggedRow, world: &World) -> Query {
        let decision = &row.decision;
        let table = &decision.candidates;
        let mut prompts = vec![PromptCount::one(0, CountSource::Bytes); self.roster.models.len()];
        for candidate in table {
            let model = self.roster.models.iter().position(|model| *model == candidate.model);
            if let Some(prompt) = model.and_then(|model| prompts.get_mut(model)) {
                *prompt = PromptCount::one(candidate.prompt_tokens, count_source(candidate));
            }
        }
        let pinned = decision.reason == Reason::Pinned
            || table.iter().any(|c| matches!(c.ineligible, Some(Ineligible::OtherModel)));
        let chosen_model = row
            .chosen()
            .and_then(|chosen| self.roster.models.iter().position(|model| *model == table[chosen].model));
        let named = match chosen_model {
            Some(model) if pinned => Named::Model(crate::domain::ModelIndex(model)),
            _ => Named::Virtual,
        };
        let prompt_tokens = table.first().map_or(0, |candidate| candidate.prompt_tokens);
        let target = decision.ttft_target_ms.map(|ms| ms / 1e3);
        Query {
            id: decision.request_id.clone(),
            named,
            requested_model: decision.requested_model.clone().unwrap_or_default(),
            ttft_target: target.and_then(|s| std::time::Duration::try_from_secs_f64(s).ok()),
            tradeoff: Tradeoff {
                lambda_per_usd: self.change.lambda_per_usd(row),
                delta_per_s: self.change.delta_per_s.unwrap_or(decision.delta_per_s),
            },
            prompts,
            prefix: world.hypothesis.prefix(self.rows, prompt_tokens),
            ..row.query.clone()
        }
    }
}

/// Returns the probability of the logged choice under a policy whose worlds agree; absent: they do not always.
///
/// A policy tells the probability of what it drew. Where a ranking draws, the logged choice is put first in its
/// tier: if it is taken there, its probability is told. A policy with dice of its own draws until it draws the
/// logged choice or has drawn all it may; one not found in n draws though it had a chance p is made up for by
/// those found, which count p / (1 − (1−p)^n).
fn probability(
    first: Choice,
    logged: Option<usize>,
    draw: &mut dyn FnMut(Option<usize>) -> Vec<Choice>,
) -> Option<f64> {
    let Some(logged) = logged else { return Some(0.0) };
    if certain(first.propensity) {
        return Some(if first.instance == logged { 1.0 } else { 0.0 });
    }
    let ranked_first = draw(Some(logged));
    if let Some(choice) = ranked_first.first().filter(|choice| choice.instance == logged) {
        return agreed(&ranked_first).then_some(choice.propensity);
    }
    let mut drawn: Vec<(usize, f64)> = vec![(first.instance, first.propensity)];
    for _ in 1..MOST_DRAWS {
        let found = drawn.iter().any(|&(instance, _)| instance == logged);
        if found || certain(drawn.iter().map(|&(_, p)| p).sum()) {
            break;
        }
        let choices = draw(None);
        let choice = choices.first().filter(|_| agreed(&choices))?;
        if drawn.iter().all(|&(instance, _)| instance != choice.instance) {
            drawn.push((choice.instance, choice.propensity));
        }
    }
    let found = drawn.iter().find(|&&(instance, _)| instance == logged);
    Some(found.map_or(0.0, |&(_, p)| p / (1.0 - (1.0 - p).powi(MOST_DRAWS))))
}

/// Returns whether all worlds chose alike, and as likely.
fn agreed(choices: &[Choice]) -> bool {
    choices.windows(2).all(|two| {
        two[0].instance == two[1].instance
            && (two[0].propensity - two[1].propensity).abs() <= SAME_PROBABILITY
    })
}

fn certain(propensity: f64) -> bool {
    propensity >= 1.0 - SAME_PROBABILITY
}

/// Returns whether the logged policy surely never makes the new choice: it was certain of its own, or drew
/// among replicas that the new one is not of.
fn never_taken(row: &LoggedRow, chosen: Chosen) -> bool {
    let table = &row.decision.candidates;
    if certain(row.decision.propensity) {
        return true;
    }
    let among = table.iter().filter(|candidate| candidate.interchangeable).count();
    let drawn = |candidate: &Candidate| candidate.interchangeable && candidate.feasible == Some(true);
    match chosen {
        Chosen::Instance { candidate, .. } => among > 1 && !drawn(&table[candidate]),
        Chosen::Model { .. } => among > 1,
        Chosen::Nothing(_) => false,
    }
}

const fn nothing(why: Why) -> Answer {
    Answer {
        chosen: Chosen::Nothing(why),
        prediction: None,
        of_logged: None,
        assumed: false,
        unsupported: false,
    }
}

const fn why(missed: Missed) -> Why {
    match missed {
        Missed { horizon: true, .. } => Why::NoCompletionTime,
        Missed { estimate: true, .. } => Why::NoEstimate,
        Missed { ranking: true, .. } => Why::NoRanking,
        _ => Why::NoState,
    }
}

fn count_source(candidate: &Candidate) -> CountSource {
    let known = [CountSource::Tokenizer, CountSource::Engine];
    let of_label = known.into_iter().find(|source| source.label() == candidate.count_source);
    of_label.unwrap_or(CountSource::Bytes)
}
