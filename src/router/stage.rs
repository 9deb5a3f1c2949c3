//! The steps of a decision, announced to whoever measures or traces them.

/// One step of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Which instances may serve the query.
    Eligible,
    /// Accuracy, length, cost and utility a model.
    Predict,
    /// One view an instance.
    Observe,
    /// TTFT of one instance: inside `Decide` for each one asked about, after it for a pick that was not.
    Estimate,
    /// The policy's choice.
    Decide,
    /// The ranking of interchangeable instances, inside `Decide`.
    Affinity,
    /// Entering the ledger.
    Reserve,
}

impl Stage {
    /// Returns the label used in metrics and spans.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Eligible => "eligible",
            Self::Predict => "predict",
            Self::Observe => "observe",
            Self::Estimate => "estimate",
            Self::Decide => "decide",
            Self::Affinity => "affinity",
            Self::Reserve => "reserve",
        }
    }
}

/// Hears when a step begins and ends.
pub trait StageObserver {
    /// A step begins.
    fn enter(&self, stage: Stage);
    /// The same step ends.
    fn leave(&self, stage: Stage);
}

/// Hears nothing.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl StageObserver for Silent {
    fn enter(&self, _stage: Stage) {}
    fn leave(&self, _stage: Stage) {}
}

/// Announces a step around `work`.
pub(super) fn staged<T>(observer: &dyn StageObserver, stage: Stage, work: impl FnOnce() -> T) -> T {
    observer.enter(stage);
    let result = work();
    observer.leave(stage);
    result
}
