//! The truth: the product against real hosts, each with OpenSSH, a Docker Engine of its own, and real torchrun (`tests/cluster/hosts`).
//!
//! Every test compares what is on the hosts before and after. The suite runs serially: there is one set of hosts.
#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "the proof is a real program with real hosts, driven by helpers of a test"
)]

mod beside;
mod bytes;
mod ending;
mod guide;
mod laptop;
mod loss;
mod support;
mod sweep;
mod trouble;
mod way;
