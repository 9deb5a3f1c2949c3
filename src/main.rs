//! The `bear` command.

fn main() {}
