//! Why a transfer with one host failed.

use crate::remote::RemoteError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TransferError {
    /// What happened, with the path.
    pub(crate) what: String,
    /// What to do next; may be empty.
    pub(crate) hint: String,
    /// The host could not be reached, or was lost.
    pub(crate) unreachable: bool,
    /// It is the error of the host that the files come from, not of the one that gets them.
    pub(crate) of_source: bool,
}

/// The ssh user may not write there.
const NOT_WRITABLE_HINT: &str =
    "choose a directory that the ssh user can write, or change its owner there; a task writes into the container with `in: container`";

impl TransferError {
    pub(crate) fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        TransferError { what: what.into(), hint: hint.into(), unreachable: false, of_source: false }
    }

    /// The host sent something that the protocol does not have.
    pub(crate) fn protocol(what: impl std::fmt::Display) -> Self {
        TransferError::new(format!("the host's answer is invalid: {what}"), "check that its own /bin/sh, find and stat answer there")
    }

    /// What a host's tools complained about.
    pub(crate) fn from_host(text: &str) -> Self {
        let known = [
            ("No space left", "free space there, then run the same command again: what is complete stays"),
            ("no space left", "free space there, then run the same command again: what is complete stays"),
            ("disk is full", "free space there, then run the same command again: what is complete stays"),
            ("Permission denied", NOT_WRITABLE_HINT),
            ("no permission", NOT_WRITABLE_HINT),
            ("Read-only file system", "choose a directory on a writable file system"),
            ("cannot overwrite directory", "remove the directory there, or choose another destination"),
            ("is a directory", "remove the directory there, or choose another destination"),
            ("another file system is mounted", "push to that directory with a command of its own, and leave it out here with --exclude"),
            (
                "Directory not empty",
                "what is left in it was added meanwhile, or belongs to another sync: remove it there, or leave it out with `exclude`",
            ),
            ("a link leads", "remove the link there, or choose another destination"),
        ];
        let hint = known.iter().find(|(part, _)| text.contains(part)).map_or("", |(_, hint)| hint);
        TransferError::new(text, hint)
    }
}

impl TransferError {
    /// An error of a session on a host, or in this container of it.
    pub(crate) fn of_session(error: RemoteError, container: Option<&str>) -> Self {
        match (error, container) {
            // The host was reached: the engine, or what it started in the container, ended.
            (RemoteError::Truncated { what, .. }, Some(container)) => TransferError::new(
                format!("the session in the container {container} ended early: {what}"),
                "see on that host with `docker ps -a` whether the container runs; the same command makes it again where it is gone",
            ),
            (error, _) => error.into(),
        }
    }
}

impl From<RemoteError> for TransferError {
    fn from(error: RemoteError) -> Self {
        let unreachable = !matches!(error, RemoteError::Protocol { .. });
        let hint = match error.hint() {
            "" if unreachable => "run the same command again: what is complete stays, a big file goes on where it was cut",
            hint => hint,
        };
        TransferError { hint: hint.to_owned(), what: error.to_string(), unreachable, of_source: false }
    }
}
