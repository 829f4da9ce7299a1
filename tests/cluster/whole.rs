//! Tier 2: what `tests/run --whole` proves beside everything else.

mod host_keys;
mod many_hosts;
mod ssh_login;
