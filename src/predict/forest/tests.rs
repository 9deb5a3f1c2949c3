//! Checks of the trees.
