//! The nouns that every room shares: phases, levels, exits, log files, ranks, GPUs, layers of images, remote commands. Uses `text` alone.

pub(crate) mod exit;
pub(crate) mod gpu;
pub(crate) mod layer_counts;
pub(crate) mod level;
pub mod log_file;
pub(crate) mod phase;
pub(crate) mod rank;
pub mod remote_command;
pub(crate) mod script_frame;
pub(crate) mod step_status;
pub mod tcp_reachability;

/// What to do about a host whose name has no address.
pub(crate) const ADDRESS_NOT_FOUND_HINT: &str =
    "correct the name in `hosts`, or give its address there (`{ name: NAME, address: 10.0.0.1 }`) or as `HostName` in ssh_config";

/// By how much the clocks of two hosts may differ, unless the inventory says otherwise: `check` and the dashboard warn beyond it.
pub(crate) const DEFAULT_MAX_CLOCK_SKEW_MS: u32 = 500;

/// Milliseconds since 1970-01-01T00:00:00Z on the laptop's clock.
pub type UnixMillis = i64;
