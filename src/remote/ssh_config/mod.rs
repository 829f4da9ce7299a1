//! ssh_config as OpenSSH understands it: which files, which lines hold for a host, and where every setting came from.
//!
//! Uses nothing of the house but patterns of `known_hosts`. `files` reads, `line` understands one line, `walk` decides for one host, `ask` puts
//! to the ssh program what cannot be decided here. The truth about the format is OpenSSH's readconf.c; the tests ask `ssh -G` for it.

mod condition;
pub(super) mod files;
mod jump;
mod keywords;
mod line;
mod options;
mod port;
pub(super) mod resolve;
pub(super) mod ssh_g;
#[cfg(test)]
mod ssh_g_tests;
mod tokens;

pub(super) use self::jump::JumpHost;
pub(super) use self::line::{ConfigFile, split_words as words};
pub(super) use self::options::{OptionValue, SettingOrigin, SshOptions};
pub(super) use self::tokens::PercentTokens;
