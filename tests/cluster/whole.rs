//! Tier 2: the additional tests of `tests/run --whole`.

mod host_keys;
mod many_hosts;
mod ssh_login;
