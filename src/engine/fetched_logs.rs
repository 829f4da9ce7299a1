//! What a fetch of logs brought, in words.

use crate::engine::log_stream::FetchedLogs;

/// What a fetch brought, in words; a log that shrank is not complete.
pub(super) fn describe_fetched_logs(fetched: &FetchedLogs) -> String {
    let names: Vec<String> = fetched.truncated_files.iter().map(ToString::to_string).collect();
    if names.is_empty() {
        return format!("{} bytes", fetched.bytes);
    }
    format!("{} bytes; not complete, since shorter on the host than before: {}", fetched.bytes, names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::LogFile;

    #[test]
    fn truncated_logs_are_not_reported_complete() {
        let whole = FetchedLogs { bytes: 7, ..FetchedLogs::default() };
        assert_eq!(describe_fetched_logs(&whole), "7 bytes");
        let shrunk = FetchedLogs { truncated_files: [LogFile::Launcher, LogFile::Rank { rank: 3, restart: 0 }].into(), ..whole };
        assert_eq!(describe_fetched_logs(&shrunk), "7 bytes; not complete, since shorter on the host than before: node rank-3.0");
    }
}
