//! Text: quoting, masking, sanitizing, splitting, host lists. Takes and returns strings; uses no other room.

pub(crate) mod glob;
pub mod host_patterns;
pub mod hostlist;
pub mod mask;
pub mod sanitize;
pub mod shell_quote;
pub(crate) mod shell_split;
pub mod width;
