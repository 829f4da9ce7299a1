//! OpenSSH's client configuration, and what `known_hosts` says of a host key.
//!
//! `config_files` reads, `config_line` understands one line, `resolve` decides for one host which lines apply and where each setting came from,
//! `known_hosts` gives the verdict on a key. The truth about the format is OpenSSH's readconf.c; the tests compare with `ssh -G`. What
//! cannot be decided here, `remote` asks the ssh program.

pub(crate) mod config_files;
mod config_line;
#[cfg(test)]
mod config_strategies;
mod jump;
mod keywords;
pub(crate) mod known_hosts;
mod match_condition;
pub(crate) mod name_rules;
mod options;
mod port;
pub(crate) mod resolve;
#[cfg(test)]
mod ssh_g_tests;
mod tokens;

pub(crate) use self::config_line::{SshConfigFile, split_words as words};
pub(crate) use self::jump::JumpHost;
pub(crate) use self::options::{SettingOrigin, SshOptionValue, SshOptions};
pub(crate) use self::tokens::EnvLookup;
pub(crate) use self::tokens::PercentTokens;
