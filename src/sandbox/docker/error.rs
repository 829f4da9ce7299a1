//! How a docker command fails: its exit code and its message.

/// How a command failed: its exit code and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DockerError {
    pub(super) code: u8,
    pub(super) message: String,
}

impl DockerError {
    pub(super) fn new(code: u8, text: impl Into<String>) -> Self {
        DockerError { code, message: text.into() }
    }
}

impl From<std::io::Error> for DockerError {
    fn from(error: std::io::Error) -> Self {
        DockerError::new(1, format!("Error response from daemon: {error}"))
    }
}

/// No container of this name, as every command but `inspect` says it.
pub(super) fn no_such_container(word: &str) -> DockerError {
    DockerError::new(1, format!("Error response from daemon: No such container: {word}"))
}
