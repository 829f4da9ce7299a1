//! What travels between a host and this program: each protocol has one reader here, beside its writer in `assets/`. Everything read is
//! hostile until a strict grammar has passed it.

pub(crate) mod all_runs;
pub(crate) mod host_metrics;
pub mod lock_record;
pub(crate) mod log_ends;
pub mod log_frames;
pub(crate) mod nvidia_smi;
pub(crate) mod pull_output;
pub(crate) mod run_follower;
pub(crate) mod run_record;
pub(crate) mod stacks;
