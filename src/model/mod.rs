//! The nouns that every room shares: phases, levels, exits, log files, ranks, GPUs, remote commands. Uses `text` alone.

pub mod exit;
pub mod gpu;
pub mod level;
pub mod log_file;
pub mod phase;
pub mod rank;
pub mod remote_command;
pub mod script_frame;
pub mod tcp_reachability;
