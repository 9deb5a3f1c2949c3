//! The lists of filters, scorers and pickers.

use super::{Filter, MaxScore, Picker, PrefixGate, Scorer, TokenLoad};

/// One line of a registry.
pub struct Entry<T: ?Sized> {
    /// The registered name.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Makes one with its defaults.
    pub build: fn() -> Box<T>,
}

/// Every filter, sorted by name.
pub const FILTERS: &[Entry<dyn Filter>] = &[Entry {
    name: "prefix-gate",
    summary: "instances that hold the prefix, until their backlog costs more than it saves",
    build: || Box::new(PrefixGate::default()),
}];

/// Every scorer, sorted by name.
pub const SCORERS: &[Entry<dyn Scorer>] = &[Entry {
    name: "token-load",
    summary: "uncached prompt tokens in flight, the query's own included",
    build: || Box::new(TokenLoad::default()),
}];

/// Every picker, sorted by name.
pub const PICKERS: &[Entry<dyn Picker>] = &[Entry {
    name: "max-score",
    summary: "highest score first, ties in uniformly random order",
    build: || Box::new(MaxScore),
}];
