//! Parses, runs, exits.

fn main() {}
