//! End-to-end tests: the real program against a sandbox of fake hosts, judged by exit code, output, files and leftovers.
#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    reason = "the tests use the real program and files through helpers"
)]

mod check;
mod concurrent_changes;
mod copy_tasks;
mod detach;
mod diagnose;
mod down_followers;
mod down_verification;
mod failure;
mod hang;
mod host_tasks;
mod hostile_hosts;
mod launch_refusals;
mod launchers;
mod load_scaling;
mod many_hosts;
mod mid_run_faults;
mod output_streams;
mod prepare;
mod prepare_attach;
mod prepare_preview;
mod pull_progress;
mod query_commands;
mod registry_login;
mod reordered_hosts;
mod rerun;
mod run_outcomes;
mod shell;
mod signals;
mod smoke;
mod suggested_commands;
mod support;
mod sync_delete;
mod terminal;
#[path = "../../src/plan/test_program.rs"]
mod test_program;
mod transfer;
mod tui;
mod up;
