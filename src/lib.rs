//! `orchestrate` runs multi-node GPU training on bare machines: one inventory, one command, nothing left behind.
//!
//! The rooms, ground to roof, those of a floor by name. A room never uses a later floor; the order within a floor is in
//! `docs/architecture.md`, and `tests/architecture.rs` enforces it. Nothing is re-exported here, so that an import names its room.

// The build without tests keeps the rule of .clippy.toml for everything else.
#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "tests read files, start programs and measure time"))]

// Ground floor: values in, values out; no clock, files, tasks, terminal or network.
pub mod diagnose;
pub mod event;
pub mod inventory;
pub mod model;
pub mod plan;
pub(crate) mod preflight;
pub mod state;
pub mod text;
// First floor: what reaches hosts.
pub mod remote;
pub mod sandbox;
pub(crate) mod ssh_config;
pub(crate) mod transfer;
// Second floor: what carries out a plan.
pub(crate) mod engine;
// Third floor: what people and files see.
pub mod report;
pub mod tui;
// Fourth floor: the workflows that commands share.
pub(crate) mod lifecycle;
// Roof.
pub mod cli;
