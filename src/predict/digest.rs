//! Digests as bundles write them, and as they part prompts.

use sha2::{Digest, Sha256};

/// Writes bytes in lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hashes text to 0 ≤ x < 1: a prompt whose id's value is under the held-out share is never trained on.
#[must_use]
pub fn fraction(text: &str) -> f64 {
    let bits = Sha256::digest(text).iter().take(8).fold(0_u64, |bits, byte| (bits << 8) | u64::from(*byte));
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_two_digits() {
        assert_eq!(hex(&[0x00, 0x0a, 0xff]), "000aff");
        assert_eq!(hex(&[]), "");
    }

    #[test]
    fn fractions_are_the_first_bits_of_the_hash() {
        // SHA-256 of the empty text begins e3b0c442 98fc1c14: 0xe3b0c442 / 2^32 = 0.889416.
        assert!((fraction("") - 0.889_416).abs() < 1e-6);
        let under = (0..4_000).filter(|id| fraction(&id.to_string()) < 0.2).count();
        assert!((760..840).contains(&under), "{under}");
    }
}
