//! Text: quoting, masking, sanitizing, splitting, host lists. Takes and returns strings; uses no other room.

pub(crate) mod byte_size;
pub(crate) mod duration;
pub(crate) mod error_chain;
pub(crate) mod glob;
#[cfg(test)]
pub(crate) mod golden;
pub(crate) mod host_patterns;
pub(crate) mod hostlist;
pub(crate) mod mask;
pub(crate) mod plural;
pub(crate) mod rank_selection;
pub mod sanitize;
pub(crate) mod shell_quote;
pub(crate) mod shell_split;
pub(crate) mod shell_template;
mod translated_lines;
pub mod translation;
pub(crate) mod width;
