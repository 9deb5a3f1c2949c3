//! What a model is predicted to make of a query.

/// Predictions for one query on one candidate (eq. 4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Predicted accuracy in [0,1].
    pub accuracy: f64,
    /// Predicted output tokens, at least 1, at most the client's cap.
    pub output_tokens: f64,
    /// Predicted cost, USD.
    pub cost_usd: f64,
    /// U = accuracy − λ·cost (eq. 4).
    pub utility: f64,
}
