//! Why a sandbox could not be made, changed or ended.

use std::io;

/// Why a sandbox could not be made, changed or ended.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A file, a socket or a process.
    #[error("could not {what}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The scenario is wrong.
    #[error("scenario: {0}")]
    Scenario(String),
    /// There is no such host.
    #[error("the sandbox has no host `{0}`")]
    NoHost(String),
    /// Processes of the sandbox outlived it.
    #[error("processes of the sandbox are still alive: {0:?}")]
    Left(Vec<i32>),
}
