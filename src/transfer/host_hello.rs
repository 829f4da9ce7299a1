//! The first line of a session: what a host says about the directory.

use super::error::TransferError;

/// What a host says about the directory when a session starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostHello {
    pub(crate) state: DirectoryState,
    /// Free bytes, where the host knows them.
    pub(crate) free: Option<u64>,
    /// Big files that an earlier session left unfinished.
    pub(crate) parts: u64,
    pub(crate) marker: SyncMarker,
    /// Its physical path, for people.
    pub(crate) path: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirectoryState {
    Exists,
    Missing,
    /// Something else, or a directory that cannot be entered.
    NoDirectory,
}

/// Whether a sync has made the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyncMarker {
    Missing,
    Present,
    /// It names another path: the directory is another sync's, or was moved, or a link leads to it.
    OtherPath,
}

/// `H <state> <free KiB> <parts> <missing tool or 0> <0, 1 if marked, 2 if for another path> <path>`
pub(super) fn parse_hello(line: &str) -> Result<HostHello, TransferError> {
    let mut fields = line.splitn(7, ' ');
    let mut next = || fields.next().unwrap_or_default();
    let (head, state, free, parts, missing, marked) = (next(), next(), next(), next(), next(), next());
    if missing != "0" && !missing.is_empty() && head == "H" {
        let tool: String = missing.chars().filter(char::is_ascii_alphanumeric).take(20).collect();
        return Err(TransferError::new(
            format!("there is no `{tool}`"),
            format!("install `{tool}` there: coreutils, findutils and tar, or busybox"),
        ));
    }
    let state = match state {
        "0" => DirectoryState::Missing,
        "1" => DirectoryState::Exists,
        _ => DirectoryState::NoDirectory,
    };
    match (head, free.parse::<i64>(), parts.parse(), fields.next()) {
        ("H", Ok(free), Ok(parts), Some(path)) => Ok(HostHello {
            state,
            free: u64::try_from(free).ok().map(|kib| kib.saturating_mul(1024)),
            parts,
            marker: match marked {
                "1" => SyncMarker::Present,
                "2" => SyncMarker::OtherPath,
                _ => SyncMarker::Missing,
            },
            path: path.to_owned(),
        }),
        _ => Err(TransferError::protocol("it does not begin with H")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hello_is_parsed_strictly() {
        let hello = parse_hello("H 1 1024 2 0 1 /data/my dir").expect("a hello");
        assert_eq!((hello.state, hello.free, hello.parts, hello.path.as_str()), (DirectoryState::Exists, Some(1 << 20), 2, "/data/my dir"));
        assert_eq!(parse_hello("H 0 -1 0 0 0 /x").map(|hello| (hello.free, hello.marker)), Ok((None, SyncMarker::Missing)));
        assert_eq!(hello.marker, SyncMarker::Present);
        assert_eq!(parse_hello("H 1 -1 0 0 2 /x").map(|hello| hello.marker), Ok(SyncMarker::OtherPath));
        assert!(parse_hello("H 1 1024 0 tar 0 /x").is_err_and(|e| e.what == "there is no `tar`"));
        for bad in ["", "H", "H 1 x 0 0 0 /x", "X 1 1 0 0 0 /x", "H 1 1 -1 0 0 /x", "H 1 1 0 0 /x"] {
            assert!(parse_hello(bad).is_err(), "{bad}");
        }
    }
}
