//! What a request costs at a price list (paper A.4).

use crate::domain::Price;

/// Tokens a price is quoted for.
const TOKENS_PER_PRICE: f64 = 1e6;

/// Returns the cost of a request in USD: prompt and output tokens at their prices (paper A.4).
///
/// Of `prompt_tokens`, `cached_tokens` (at most all of them) pay the cached price where the list has one.
#[must_use]
pub fn cost_usd(price: &Price, prompt_tokens: u32, cached_tokens: u32, output_tokens: f64) -> f64 {
    let cached_tokens = cached_tokens.min(prompt_tokens);
    let fresh_tokens = prompt_tokens - cached_tokens;
    let cached_price = price.cached_input_usd_per_mtok.unwrap_or(price.input_usd_per_mtok);
    (f64::from(fresh_tokens) * price.input_usd_per_mtok
        + f64::from(cached_tokens) * cached_price
        + output_tokens.max(0.0) * price.output_usd_per_mtok)
        / TOKENS_PER_PRICE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Qwen3-8B in the paper's Table 1, with a cached price of our own.
    const PRICE: Price =
        Price { input_usd_per_mtok: 0.072, output_usd_per_mtok: 0.287, cached_input_usd_per_mtok: None };

    #[test]
    fn prompt_and_output_pay_their_own_price() {
        let cost = cost_usd(&PRICE, 1_000, 0, 500.0);
        assert!((cost - (1_000.0 * 0.072e-6 + 500.0 * 0.287e-6)).abs() < 1e-15);
    }

    #[test]
    fn cached_tokens_pay_the_cached_price_where_there_is_one() {
        assert_eq!(cost_usd(&PRICE, 1_000, 400, 0.0), cost_usd(&PRICE, 1_000, 0, 0.0));
        let cheaper = Price { cached_input_usd_per_mtok: Some(0.01), ..PRICE };
        let cost = cost_usd(&cheaper, 1_000, 400, 0.0);
        assert!((cost - (600.0 * 0.072e-6 + 400.0 * 0.01e-6)).abs() < 1e-15);
        assert_eq!(cost_usd(&cheaper, 100, 400, 0.0), cost_usd(&cheaper, 100, 100, 0.0));
    }
}
