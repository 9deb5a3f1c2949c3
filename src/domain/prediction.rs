//! What a model is predicted to make of a query.

/// Predictions for one query on one candidate (eq. 4); an absent one is unknown, never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prediction {
    /// Predicted accuracy in `[0,1]`.
    pub accuracy: Option<f64>,
    /// Predicted output tokens of one answer, at least 1, at most the client's cap.
    pub output_tokens: Option<f64>,
    /// Predicted cost of all answers, USD.
    pub cost_usd: Option<f64>,
    /// U = accuracy − λ·cost (eq. 4); known where both are.
    pub utility: Option<f64>,
}
