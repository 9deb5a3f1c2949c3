//! Fits the projection: principal components of the training prompts' normalised counts.

use bear::predict::{
    Pca, PredictError, QueryFeatures,
    features::{COMPONENTS, HASH_BUCKETS},
};
use nalgebra::{DMatrix, SymmetricEigen};

/// Fits mean and axes by the covariance's eigenvectors, largest eigenvalue first.
///
/// An eigenvector's sign is free: the one whose largest entry is positive is taken.
///
/// # Errors
/// Passes on what [`Pca::new`] refuses.
pub fn fit<'a>(prompts: impl Iterator<Item = &'a QueryFeatures>) -> Result<Pca, PredictError> {
    let mut count = 0.0_f64;
    let mut mean = vec![0.0_f64; HASH_BUCKETS];
    let mut moments = DMatrix::<f64>::zeros(HASH_BUCKETS, HASH_BUCKETS);
    for features in prompts {
        count += 1.0;
        let scale = 1.0 / f64::from(features.tokens().max(1));
        let counts = features.sparse_counts();
        for (a, first) in counts {
            let first = f64::from(*first) * scale;
            mean[usize::from(*a)] += first;
            for (b, second) in counts.iter().take_while(|(b, _)| b <= a) {
                moments[(usize::from(*a), usize::from(*b))] += first * f64::from(*second) * scale;
            }
        }
    }
    let count = count.max(1.0);
    mean.iter_mut().for_each(|value| *value /= count);
    let covariance = DMatrix::from_fn(HASH_BUCKETS, HASH_BUCKETS, |a, b| {
        moments[(a.max(b), a.min(b))] / count - mean[a] * mean[b]
    });
    let eigen = SymmetricEigen::new(covariance);
    let mut order: Vec<usize> = (0..HASH_BUCKETS).collect();
    order.sort_by(|a, b| eigen.eigenvalues[*b].total_cmp(&eigen.eigenvalues[*a]));
    let mut axes = vec![[0.0; COMPONENTS]; HASH_BUCKETS];
    for (k, column) in order.into_iter().take(COMPONENTS).enumerate() {
        let axis = eigen.eigenvectors.column(column);
        let largest = axis.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(1.0);
        for (row, value) in axes.iter_mut().zip(axis.iter()) {
            row[k] = value * largest.signum();
        }
    }
    Pca::new(mean, axes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_counts(counts: &str) -> QueryFeatures {
        let json = format!(
            r#"{{"version":"v","tokens":10,"characters":9,"sentences":1,"cues":[],"counts":{counts}}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn the_first_component_is_the_direction_of_most_variance() {
        let prompts: Vec<QueryFeatures> = (0..=8)
            .map(|i| with_counts(&format!("[[3,{}],[7,{}]]", i - 4, if i % 2 == 0 { 1 } else { -1 })))
            .collect();
        let pca = fit(prompts.iter()).unwrap();
        let project = |counts: &[(u16, i32)]| pca.project(counts, 10)[0] - pca.project(&[], 10)[0];
        assert!((project(&[(3, 10)]) - 1.0).abs() < 0.05, "bucket 3 varies most: {}", project(&[(3, 10)]));
        assert!(project(&[(7, 10)]).abs() < 0.3);
        assert!(project(&[(100, 10)]).abs() < 1e-9);
    }

    #[test]
    fn components_are_centred_on_the_training_prompts() {
        let prompts: Vec<QueryFeatures> = (1..=5).map(|i| with_counts(&format!("[[1,{i}],[2,1]]"))).collect();
        let pca = fit(prompts.iter()).unwrap();
        for k in 0..COMPONENTS {
            let sum: f64 = prompts.iter().map(|p| pca.project(p.sparse_counts(), p.tokens())[k]).sum();
            assert!(sum.abs() < 1e-9, "component {k} has mean {}", sum / 5.0);
        }
    }
}
