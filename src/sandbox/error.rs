//! Why a sandbox could not be made, changed or ended.

use std::io;

/// Why a sandbox could not be made, changed or ended.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A file, a socket or a process.
    #[error("could not {action}")]
    Io { action: String, source: io::Error },
    /// The scenario is wrong.
    #[error("scenario: {0}")]
    Scenario(String),
    /// There is no such host.
    #[error("the sandbox has no host `{0}`")]
    UnknownHost(String),
    /// Processes of the sandbox outlived it.
    #[error("processes of the sandbox are still alive: {0:?}")]
    LeftoverProcesses(Vec<i32>),
}
