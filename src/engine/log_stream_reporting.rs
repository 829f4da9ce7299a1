//! The messages about a host's log stream: missing bytes, unexpected files, errors with a hint; and how
//! its reports become events.

use crate::engine::host_connection::HostConnection;
use crate::engine::log_stream_event::LogStreamEvent;
use crate::event::EventKind;
use crate::model::log_file::LogFile;
use crate::remote::RemoteError;

/// The message about bytes that a log lacks.
pub(super) fn describe_missing_bytes(file: LogFile, kind: &str, (offset, least, most): (u64, u64, u64)) -> String {
    let count = if least == most { format!("{most} bytes") } else { format!("{least} to {most} bytes") };
    let why = match kind {
        "killed" => "the appender was killed",
        "full" => "the disk took no more",
        "max" => "the log reached logs.max",
        "plain" => "the appender could not go on; from there on nothing is counted",
        _ => "for several reasons",
    };
    format!("{}'s log lacks {count} from byte {offset} on: {why}", file.writer())
}

/// The message about a log whose appender is limited.
pub(super) fn describe_appender_problem(file: LogFile, text: &str) -> String {
    let writer = file.writer();
    match text.split_once(": ") {
        None => format!("{writer}'s log: there is no setsid, so a KILL of the rank's process group can lose its last 128 KiB"),
        Some(("direct", why)) => {
            format!("{writer}'s log is written without an appender ({why}): a rank that reopens its stderr can erase it")
        }
        Some((_, why)) => format!("{writer}'s output is discarded: {why}"),
    }
}

/// The message about an unexpected file in a run's writable directory.
pub(super) fn describe_unexpected_file(word: &str, name: &str) -> String {
    let what = match word {
        "docker" => {
            return "docker does not answer: the logs still come, but whether the run's container goes on there cannot be seen; \
                    help: `docker ps` and `journalctl -u docker` on the host"
                .to_owned();
        }
        "keeper" if name == "again" => return "the run's keeper had ended, and was started again".to_owned(),
        "keeper" => {
            return "the run's keeper has ended: while nobody is attached, a rank that fails there stops no other rank; \
                    help: `orchestrate up --recreate` begins again"
                .to_owned();
        }
        "name" => "is not the name of a log or a status",
        "kind" => "is not a regular file",
        "text" => "does not hold what a wrapper writes",
        "unreadable" => "cannot be read",
        "long" => "is longer than a log may be; the rest is left on the host",
        "cut" => "was cut again and again; the rest is left on the host",
        "rank" => "is of a rank that the run does not have",
        "more" => "is not as expected either, and there may be more that is not named",
        "many" => "and further files are too many",
        _ => "is not as expected",
    };
    format!("{name} in the run's directory {what}: it is ignored")
}

/// An error with what to do.
pub(super) fn error_with_hint(error: &RemoteError) -> String {
    if error.hint().is_empty() { error.to_string() } else { format!("{error}; {}", error.hint()) }
}

/// Emits a report as an event.
pub(super) fn emit_stream_event(connection: &HostConnection, event: &LogStreamEvent) {
    let host = connection.event_host_index();
    let kind = match *event {
        LogStreamEvent::ProcessStarted(_, LogFile::Launcher, _) => EventKind::LauncherStarted { host },
        LogStreamEvent::ProcessStarted(_, LogFile::Rank { rank, restart }, when) => {
            EventKind::RankStarted { host, rank, restart, started_at: when }
        }
        LogStreamEvent::ProcessEnded(_, LogFile::Launcher, exit, when, _) => {
            EventKind::LauncherExited { host, exit, ended_at: when, stopped: None }
        }
        LogStreamEvent::ProcessEnded(_, LogFile::Rank { rank, restart }, exit, when, uncertainty) => {
            EventKind::RankExited { host, rank, restart, exit, ended_at: when, uncertainty, stopped: None }
        }
        // The step of a task reports its end.
        LogStreamEvent::ProcessStarted(_, LogFile::Task { .. }, _) | LogStreamEvent::ProcessEnded(_, LogFile::Task { .. }, ..) => return,
        LogStreamEvent::RunMissing(_) | LogStreamEvent::Log(..) | LogStreamEvent::HostGivenUp(..) => return,
    };
    connection.emitter().send(kind);
}
