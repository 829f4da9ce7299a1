//! The product as a person meets it: the real program against a sandbox of fake hosts, judged by exit code, words, files and what is left.
#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    reason = "the proof is a real program with real files, driven by helpers of a test"
)]

mod advice;
mod check;
mod cli;
mod detach;
mod diagnose;
mod ended;
mod failure;
mod hang;
mod hostile;
mod laptop;
mod launchers;
mod load;
mod looked;
mod many;
mod meanwhile;
mod refused;
mod registry;
mod renumbered;
mod rerun;
mod shell;
mod signals;
mod smoke;
mod support;
mod terminal;
mod tui;
mod up;
