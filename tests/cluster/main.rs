//! End-to-end tests on real hosts: each has OpenSSH, its own Docker Engine and real torchrun (`tests/cluster/hosts`).
//!
//! Every test compares the state of the hosts before and after. One test at a time uses a set of hosts.
#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "the tests use the real program and hosts through helpers"
)]

mod appender;
mod argument_fidelity;
mod check;
mod concurrent_runs;
mod connection_loss;
mod diagnosis;
#[path = "../remote/fake_agent.rs"]
mod fake_agent;
mod faulty_hosts;
mod files;
mod hang;
mod host_sets;
mod hostile_ranks;
mod kill_sweep;
mod laptop;
mod launchers;
#[path = "../it/load_scaling.rs"]
mod load_scaling;
mod multi_user;
mod playbook;
mod record;
mod registry_login;
mod routes_and_images;
mod run_endings;
#[path = "../remote/scripted_prompt.rs"]
mod scripted_prompt;
mod shell;
mod smoke;
mod support;
#[path = "../it/terminal.rs"]
#[expect(dead_code, reason = "not every helper is used here")]
mod terminal;
mod terminal_escapes;
mod training;
mod tui;
mod whole;
