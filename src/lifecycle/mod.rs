//! The workflows that commands share: session, preflight, launch, follow, teardown, stop ladder. The terminal and the dashboard are passed in
//! (`operator`).

pub(crate) mod attach;
pub(crate) mod check;
pub(crate) mod clear_recorded_hosts;
pub(crate) mod collect_stacks;
pub(crate) mod confirm;
pub(crate) mod down;
pub(crate) mod error;
pub(crate) mod execute_launch;
pub(crate) mod follow;
pub(crate) mod follow_tasks;
pub(crate) mod hang_watchdog;
pub(crate) mod hangup_signal;
pub(crate) mod launch;
pub(crate) mod launch_request;
pub(crate) mod local_context;
pub(crate) mod log_copies;
pub(crate) mod log_fetch;
pub(crate) mod operator;
pub(crate) mod plan_preview;
pub(crate) mod preflight;
pub(crate) mod prepare_launch;
pub(crate) mod random;
pub(crate) mod reconcile;
pub(crate) mod recorded_hosts;
pub(crate) mod remaining_items;
pub(crate) mod reporter_task;
pub(crate) mod session;
pub(crate) mod slurm_follow;
pub(crate) mod slurm_job;
pub(crate) mod smoke;
pub(crate) mod stop_controller;
pub(crate) mod stop_ladder;
pub(crate) mod task_preview;
pub(crate) mod teardown;
pub(crate) mod transfer_files;
