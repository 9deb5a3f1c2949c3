//! Two drawn at random, the better of them taken.

use std::cmp::Ordering;

use rand::{Rng, RngCore};

/// Draws two of `n` candidates, every ordered pair alike, and takes the better, the first of equals;
/// returns it with its probability. Of one candidate it takes that one.
///
/// `order` compares two candidates, the better one less.
pub(super) fn better_of_two(
    n: usize,
    order: impl Fn(usize, usize) -> Ordering,
    rng: &mut dyn RngCore,
) -> Option<(usize, f64)> {
    if n < 2 {
        return (n == 1).then_some((0, 1.0));
    }
    let first = rng.random_range(0..n);
    let second = (first + rng.random_range(1..n)) % n;
    let taken = if order(first, second).is_le() { first } else { second };
    Some((taken, probability(n, taken, order)))
}

/// Returns how likely `taken` is drawn and wins: of the n(n−1)/2 pairs those that it wins, and half of
/// those that it ties.
fn probability(n: usize, taken: usize, order: impl Fn(usize, usize) -> Ordering) -> f64 {
    let others = (0..n).filter(|&other| other != taken);
    let wins: f64 = others
        .map(|other| match order(taken, other) {
            Ordering::Less => 1.0,
            Ordering::Equal => 0.5,
            Ordering::Greater => 0.0,
        })
        .sum();
    wins / (n * (n - 1) / 2) as f64
}
