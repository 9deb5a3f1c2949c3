//! The projection of the hashed counts to their principal components (paper A.4), part of a bundle.

use super::{
    PredictError,
    shape::{COMPONENTS, HASH_BUCKETS},
};

/// First bytes of the file; the last one is the layout's version.
const MAGIC: &[u8; 8] = b"BEARPCA1";
/// Bytes before the numbers: magic, buckets and components as little-endian u32.
const HEADER_BYTES: usize = 16;

/// Mean and axes of the normalised counts, fitted on the training prompts.
#[derive(Clone, Debug, PartialEq)]
pub struct Pca {
    mean: Vec<f64>,
    /// One row a bucket, so that a sparse vector reads few rows.
    axes: Vec<[f64; COMPONENTS]>,
    /// The mean's own projection, taken off at the end.
    offset: [f64; COMPONENTS],
}

impl Pca {
    /// Builds a projection from its mean (one value a bucket) and axes (one row a bucket).
    ///
    /// # Errors
    /// Names a wrong count or a value that is not finite.
    pub fn new(mean: Vec<f64>, axes: Vec<[f64; COMPONENTS]>) -> Result<Self, PredictError> {
        if mean.len() != HASH_BUCKETS || axes.len() != HASH_BUCKETS {
            let what = format!("{} means and {} axis rows, expected {HASH_BUCKETS}", mean.len(), axes.len());
            return Err(PredictError::Pca { what });
        }
        if !mean.iter().chain(axes.iter().flatten()).all(|value| value.is_finite()) {
            return Err(PredictError::Pca { what: String::from("a value is not finite") });
        }
        let mut offset = [0.0; COMPONENTS];
        for (value, axis) in mean.iter().zip(&axes) {
            add_scaled(&mut offset, axis, *value);
        }
        Ok(Self { mean, axes, offset })
    }

    /// Reads `pca.bin`: magic, buckets, components, the mean, then one row of axes a bucket, all f64 LE.
    ///
    /// # Errors
    /// Names what is wrong with the bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PredictError> {
        let error = |what: String| PredictError::Pca { what };
        let (header, numbers) = bytes
            .split_at_checked(HEADER_BYTES)
            .ok_or_else(|| error(String::from("shorter than its header")))?;
        if !header.starts_with(MAGIC) {
            return Err(error(String::from("does not start with its magic")));
        }
        let shape = [HASH_BUCKETS as u32, COMPONENTS as u32].map(u32::to_le_bytes).concat();
        if header.get(MAGIC.len()..) != Some(&shape[..]) {
            return Err(error(format!("its shape is not {HASH_BUCKETS} by {COMPONENTS}")));
        }
        let expected = 8 * HASH_BUCKETS * (1 + COMPONENTS);
        if numbers.len() != expected {
            return Err(error(format!("{} bytes of numbers, expected {expected}", numbers.len())));
        }
        let (values, _) = numbers.as_chunks::<8>();
        let mut values = values.iter().map(|chunk| f64::from_le_bytes(*chunk));
        let mean = values.by_ref().take(HASH_BUCKETS).collect();
        let axes =
            (0..HASH_BUCKETS).map(|_| std::array::from_fn(|_| values.next().unwrap_or(f64::NAN))).collect();
        Self::new(mean, axes)
    }

    /// Writes what [`Self::from_bytes`] reads.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend((HASH_BUCKETS as u32).to_le_bytes());
        bytes.extend((COMPONENTS as u32).to_le_bytes());
        bytes
            .extend(self.mean.iter().chain(self.axes.iter().flatten()).flat_map(|value| value.to_le_bytes()));
        bytes
    }

    /// Projects signed counts of `tokens` tokens, normalised by that number, to the components.
    ///
    /// Sums run in bucket order, so that training and serving agree to the last bit.
    #[must_use]
    pub fn project(&self, counts: &[(u16, i32)], tokens: u32) -> [f64; COMPONENTS] {
        let mut components = self.offset.map(|value| -value);
        let scale = 1.0 / f64::from(tokens.max(1));
        for (bucket, count) in counts {
            if let Some(axis) = self.axes.get(usize::from(*bucket)) {
                add_scaled(&mut components, axis, f64::from(*count) * scale);
            }
        }
        components
    }
}

fn add_scaled(sum: &mut [f64; COMPONENTS], axis: &[f64; COMPONENTS], factor: f64) {
    for (total, value) in sum.iter_mut().zip(axis) {
        *total += factor * value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Pca {
        let mean = (0..HASH_BUCKETS).map(|b| b as f64 * 1e-4).collect();
        let axes = (0..HASH_BUCKETS)
            .map(|b| std::array::from_fn(|k| if b % COMPONENTS == k { 0.5 } else { 0.0 }))
            .collect();
        Pca::new(mean, axes).unwrap()
    }

    #[test]
    fn bytes_round_trip() {
        let pca = sample();
        assert_eq!(Pca::from_bytes(&pca.to_bytes()).unwrap(), pca);
    }

    #[test]
    fn the_projection_is_of_the_normalised_counts_less_their_mean() {
        let pca = sample();
        let with = pca.project(&[(1, 4), (2, -2)], 8);
        let without = pca.project(&[], 8);
        assert!((with[1] - without[1] - 0.25).abs() < 1e-12);
        assert!((with[2] - without[2] + 0.125).abs() < 1e-12);
        let expected: f64 = (0..HASH_BUCKETS).step_by(COMPONENTS).map(|b| b as f64 * 1e-4 * 0.5).sum();
        assert!((without[0] + expected).abs() < 1e-12);
    }

    #[test]
    fn wrong_bytes_are_refused() {
        let bytes = sample().to_bytes();
        for cut in [0, 7, 15, 16, bytes.len() - 1] {
            assert!(Pca::from_bytes(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        let mut other = bytes.clone();
        other[8] = 7;
        assert!(Pca::from_bytes(&other).is_err());
        let mut nan = bytes;
        nan[16..24].copy_from_slice(&f64::NAN.to_le_bytes());
        assert!(Pca::from_bytes(&nan).is_err());
    }
}
