//! Run lines as the numbers of figures: means over seeds with their intervals, shares, margins, pairs of
//! estimate and truth. Pure: what is drawn of them, and how, is for others to say.

mod interval;
#[cfg(test)]
pub(crate) mod made;
mod margins;
mod pairs;
mod runs;
#[cfg(test)]
mod tests;

pub use interval::{interval, percentile};
pub use margins::{Margin, Rivals, margins, mean_margin, relative};
pub use pairs::{Belief, Lengths, Pairs, RealisedKind, beliefs, estimates, lengths};
pub use runs::{Composition, Point, Runs, Series};
