//! What features, projection and manifest agree on: the features' version and the sizes of the hashed part.

/// The feature function's version; the tokenizer's digest is appended to it where features are described.
pub const FEATURE_VERSION: &str = "bear.features.v1";
/// Buckets of the signed hashing vector (paper A.4).
pub const HASH_BUCKETS: usize = 512;
/// Principal components kept of it (paper A.4).
pub const COMPONENTS: usize = 16;
