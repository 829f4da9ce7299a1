//! ssh_config as OpenSSH understands it: which files, which lines hold for a host, and where every setting came from.
//!
//! Uses nothing of the house but patterns of `known_hosts`. `files` reads, `line` understands one line, `walk` decides for one host, `ask` puts
//! to the ssh program what cannot be decided here. The truth about the format is OpenSSH's readconf.c; the tests ask `ssh -G` for it.

#[cfg(test)]
mod against_ssh;
pub(super) mod ask;
mod condition;
pub(super) mod files;
mod jump;
mod keywords;
mod line;
mod options;
mod port;
mod tokens;
pub(super) mod walk;

pub(super) use self::jump::Jump;
pub(super) use self::line::{Source, split as words};
pub(super) use self::options::{Options, Origin, Value};
pub(super) use self::tokens::Tokens;
