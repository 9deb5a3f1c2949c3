//! How many output tokens a resident still has: from its prediction, what it produced and its cap.

/// What an answer that has reached its predicted length still has, as a share of the prediction.
///
/// The mean residual of a lognormal length at its mean is `Φ(σ/2)/Φ(−σ/2) − 1` of that mean: 0.49 at
/// σ = 0.5, about what a per-query prediction leaves unexplained.
const OUTLIVED_OWN: f64 = 0.5;

/// The same where only the mean over all answers is known: σ = 0.85 gives 0.97.
const OUTLIVED_STRANGER: f64 = 1.0;

/// Whose length it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// A request of this router, with its own prediction.
    Own,
    /// Anyone else's: the prediction is a mean over answers.
    Stranger,
}

/// Returns the remaining output tokens, at least 1: `⌈predicted − produced⌉`, for one that outlived its
/// prediction the mean residual; at most what `max_tokens` leaves.
pub(super) fn remaining_tokens(
    whose: Whose,
    predicted_tokens: f64,
    produced_tokens: u32,
    max_tokens: Option<u32>,
) -> u32 {
    let left = predicted_tokens - f64::from(produced_tokens);
    let expected = if left > 0.0 {
        left
    } else {
        let share = if whose == Whose::Own { OUTLIVED_OWN } else { OUTLIVED_STRANGER };
        predicted_tokens * share
    };
    clamp(expected.ceil() as u32, produced_tokens, max_tokens)
}

/// Clamps to what `max_tokens` leaves, and to at least 1.
pub(super) fn clamp(tokens: u32, produced_tokens: u32, max_tokens: Option<u32>) -> u32 {
    let cap = max_tokens.map_or(u32::MAX, |max| max.saturating_sub(produced_tokens));
    tokens.min(cap).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_predicted_less_what_was_produced() {
        assert_eq!(remaining_tokens(Whose::Own, 120.2, 20, None), 101);
        assert_eq!(remaining_tokens(Whose::Stranger, 120.0, 119, None), 1);
    }

    #[test]
    fn an_outlived_prediction_leaves_its_mean_residual() {
        assert_eq!(remaining_tokens(Whose::Own, 100.0, 100, None), 50);
        assert_eq!(remaining_tokens(Whose::Own, 100.0, 900, None), 50);
        assert_eq!(remaining_tokens(Whose::Stranger, 100.0, 900, None), 100);
    }

    #[test]
    fn the_cap_bounds_it_and_one_is_the_least() {
        assert_eq!(remaining_tokens(Whose::Own, 100.0, 10, Some(40)), 30);
        assert_eq!(remaining_tokens(Whose::Own, 100.0, 40, Some(40)), 1);
        assert_eq!(remaining_tokens(Whose::Own, 1.0, 1, None), 1);
    }
}
