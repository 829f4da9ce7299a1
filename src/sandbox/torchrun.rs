//! nvidia-smi's stand-in.
use std::process::ExitCode;
use super::stand_in::{Answer, Here};
pub(super) fn main(_: &Here, _: &[String]) -> ExitCode { Answer::ok("").say() }
