//! The HTTP mouth of the router.

pub mod tokenize;
