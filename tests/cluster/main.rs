//! The truth: the product against real hosts, each with OpenSSH, a Docker Engine of its own, and real torchrun (`tests/cluster/hosts`).
//!
//! Every test compares what is on the hosts before and after. The suite runs serially: there is one set of hosts.
#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "the proof is a real program with real hosts, driven by helpers of a test"
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
