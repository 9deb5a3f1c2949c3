//! The one integration binary: what the rooms promise each other, checked from outside.

mod predict;
