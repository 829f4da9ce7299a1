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
mod beside;
mod bytes;
mod check;
mod diagnosis;
mod ending;
mod escapes;
mod guide;
mod hang;
mod hostile;
mod laptop;
mod launchers;
#[path = "../it/load.rs"]
mod load;
mod loss;
mod owners;
#[path = "../remote/person.rs"]
mod person;
mod record;
mod registry;
mod sets;
mod shell;
mod smoke;
#[path = "../remote/soft_agent.rs"]
mod soft_agent;
mod support;
mod sweep;
#[path = "../it/terminal.rs"]
#[expect(dead_code, reason = "not every helper is used here")]
mod terminal;
mod trouble;
mod tui;
mod way;
mod whole;
