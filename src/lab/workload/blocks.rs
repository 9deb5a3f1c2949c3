//! Hashes of blocks of 16 tokens, such that texts share those of a common beginning and no others.

use std::sync::Arc;

use rand::RngCore;

use crate::domain::PREFIX_BLOCK_TOKENS;

/// A text that grows at its end; its beginning may be common to others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    /// Stands for the common beginning.
    common: u64,
    /// Full blocks of it.
    common_blocks: u32,
    /// Stands for the rest.
    own: u64,
}

impl Blocks {
    /// Begins a text whose first `common_tokens` are those of every text with the same `common` key.
    pub(super) fn begin(common: u64, common_tokens: u32, rng: &mut dyn RngCore) -> Self {
        Self { common, common_blocks: common_tokens / PREFIX_BLOCK_TOKENS, own: rng.next_u64() }
    }

    /// Returns the hashes of the full blocks within its first `tokens`.
    pub(super) fn hashes(self, tokens: u32) -> Arc<[u64]> {
        let key = |block: u32| if block < self.common_blocks { self.common } else { self.own };
        (0..tokens / PREFIX_BLOCK_TOKENS).map(|block| mixed(key(block), u64::from(block))).collect()
    }
}

/// Scrambles a key and a position (SplitMix64's finaliser).
pub(super) const fn mixed(key: u64, position: u64) -> u64 {
    let value = key.wrapping_add(position.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn texts_share_their_common_blocks_and_grow_at_the_end() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        // 40 common tokens fill two blocks; the third holds own tokens too.
        let (a, b) = (Blocks::begin(7, 40, &mut rng), Blocks::begin(7, 40, &mut rng));
        let (short, long, other) = (a.hashes(63), a.hashes(100), b.hashes(63));
        assert_eq!((short.len(), long.len()), (3, 6));
        assert_eq!(short[..], long[..3]);
        assert_eq!(short[..2], other[..2]);
        assert_ne!(short[2], other[2]);
    }
}
