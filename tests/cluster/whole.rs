//! Tier 2: what `tests/run --whole` proves beside everything else.

mod login;
mod many;
mod trust;
