//! Text: quoting, masking, sanitizing, splitting, host lists. Takes and returns strings; uses no other room.

pub mod mask;
pub mod shell_quote;
