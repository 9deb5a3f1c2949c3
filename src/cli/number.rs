//! Numbers on the command line that must make sense: anything else is wrong usage.

use anyhow::ensure;

/// Reads a positive number of at most 1e9.
pub(super) fn positive(text: &str) -> anyhow::Result<f64> {
    let value: f64 = text.parse()?;
    ensure!(value > 0.0 && value <= 1e9, "it must be over 0 and at most 1e9");
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_positive_finite_numbers_pass() {
        assert_eq!(positive("0.5").unwrap(), 0.5);
        for text in ["0", "-1", "nan", "inf", "2e9", "fast", ""] {
            assert!(positive(text).is_err(), "{text}");
        }
    }
}
