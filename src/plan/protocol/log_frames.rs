//! The log stream of a host: the script that sends every log by byte offset, beside the reader of its frames.
//!
//! The protocol is described in `assets/follow.sh`.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};

use crate::model::exit::Exit;
use crate::model::log_file::LogFile;
use crate::model::remote_command::RemoteCommand;
use crate::plan::action::container::DETACH_SH;
use crate::plan::host_context::{HostContext, SAFE_READ_SH};
use crate::plan::process_status::parse_exit;
use crate::text::shell_quote::quote;

/// The most bytes of one frame.
pub const MAX_FRAME_BYTES: u64 = 4 << 20;

/// The most bytes of a batch of frames, and the most that are unacknowledged when a host begins one, so that all hosts together stay within
/// 64 MiB.
fn batch_limit(hosts: usize) -> u64 {
    ((64 << 20) / hosts.max(1) as u64).min(16 << 20) / 2
}

/// Why the logs are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStreamPurpose {
    /// To follow the run, and to end the gang when a rank fails: the host leaves that to us as long as we are there.
    Supervise,
    /// To read on: the host goes by itself.
    Read,
    /// To have everything that is there; then the stream ends.
    Fetch,
}

/// The stream of the context's run, each file from the given offset on; without `logs` it reports only starts and ends.
pub fn log_stream_command(
    context: &HostContext,
    offsets: &[(LogFile, u64)],
    hosts: usize,
    purpose: LogStreamPurpose,
    logs: bool,
) -> RemoteCommand {
    let window = batch_limit(hosts);
    let flag = |set: bool| if set { "1" } else { "''" };
    let have: String = offsets.iter().map(|(file, offset)| format!("{file}={offset} ")).collect();
    let mut script = format!(
        "{}F={} record={} most={} ranks={} window={window} frame={} once={} guards={} no_logs={} shared={} have={} where= note= mark= who= beside=\n",
        context.script_preamble(),
        quote(&context.run_file_prefix()),
        quote(&context.run_record_path()),
        if context.max_log_bytes == 0 { "''".to_owned() } else { context.max_log_bytes.to_string() },
        context.world_size,
        MAX_FRAME_BYTES.min(window),
        flag(purpose == LogStreamPurpose::Fetch),
        flag(purpose == LogStreamPurpose::Supervise),
        flag(!logs),
        flag(context.cluster_job.is_some()),
        quote(&format!(" {have}")),
    );
    let has_private_dir = context.cluster_job.is_none();
    if let Some(beside) = context.host_task_context() {
        script.push_str(&format!("beside={}\n", quote(&beside.run_dir())));
    }
    if has_private_dir {
        script.push_str(&launcher_liveness_script(context));
        script.push_str(&format!(
            "note={}/attached mark=$P/following.{}.$$ who={}\n",
            quote(&context.run_dir()),
            quote(&context.run_id),
            // Only a stream that guards the gang counts as a follower: a teardown does not affect mere readers.
            quote(if purpose == LogStreamPurpose::Supervise { &context.follower } else { "" })
        ));
    }
    if purpose == LogStreamPurpose::Fetch && has_private_dir {
        // A run that lost its record is fetched all the same.
        script.push_str(&format!("[ -e \"$record\" ] || record={}/settings\n", quote(&context.run_dir())));
    }
    if purpose == LogStreamPurpose::Fetch && context.in_container && has_private_dir {
        script.push_str(&format!(
            "for f in \"$F\"*.log; do if [ -f \"$f\" ] && [ ! -r \"$f\" ]; then {}; break; fi; done\n",
            context.run_as_root_script("for f in \"$0/$1\".*.log; do [ -L \"$f\" ] || chmod a+r \"$f\"; done", &context.run_id)
        ));
    }
    script.push_str(SAFE_READ_SH);
    script.push_str(include_str!("../../../assets/follow.sh"));
    // The unacknowledged bytes, the batch that follows them, and all other output.
    let limit = usize::try_from(2 * window).unwrap_or(usize::MAX).saturating_add(2 << 20);
    RemoteCommand { output_limit: limit, ..RemoteCommand::from_script("follow the logs", script, Duration::from_secs(20)) }
}

/// What the end of a launcher is known by that left no status: the boot in which the run was made, and the container or the keeper.
fn launcher_liveness_script(context: &HostContext) -> String {
    let boot = format!("{{ read -r run_boot <{}; }} 2>/dev/null\n", quote(&context.boot_id_path()));
    if context.in_container {
        return format!(
            "{boot}where=container docker={}\n{{ read -r init id init_start init_boot proven <\"$P/container.pid\"; }} 2>/dev/null\n: \"${{id:={}}}\"\n",
            quote(&context.docker_command()),
            context.container_name(),
        );
    }
    // `start_of` and `boot` are those of follow.sh.
    format!(
        "{boot}where=host\n{{ read -r init init_start init_boot <\"$P/keeper.pid\"; }} 2>/dev/null\n{DETACH_SH}\n\
         start_keeper() {{ detach /bin/sh \"$IN/keeper\"; start_of \"$!\"; \
         printf '%s %s %s\\n' \"$!\" \"$s\" \"$boot\" >\"$P/keeper.pid.new\" && mv -f \"$P/keeper.pid.new\" \"$P/keeper.pid\"; }}\n"
    )
}

/// Notifies a host that we have detached, so that it guards its ranks by itself from now on. Another follower renews its presence within 5 s.
pub fn detach_command(context: &HostContext) -> RemoteCommand {
    let script = format!(
        "{}w={}\n\
         [ -z \"$w\" ] || for f in \"$P/following.\"{}.*; do [ -f \"$f\" ] && [ \"$(head -c 200 \"$f\" | head -n 1)\" = \"$w\" ] && rm -f \"$f\"; done\n\
         cd {} 2>/dev/null || exit 0\numask 022\nprintf '%s gone\\n' \"$(date +%s)\" >attached.new && mv -f attached.new attached\n",
        context.script_preamble(),
        quote(&context.follower),
        quote(&context.run_id),
        quote(&context.run_dir())
    );
    RemoteCommand::from_script("record that no one is attached", script, Duration::from_secs(3))
}

/// Asks a host whether an order from elsewhere has stopped the run, or has removed it already.
pub fn stop_check_command(context: &HostContext) -> RemoteCommand {
    if context.cluster_job.is_some() {
        let script = format!("if [ -e {} ]; then echo stopped; fi\n", quote(&context.stop_marker()));
        return RemoteCommand::from_script("check whether the job was stopped", script, Duration::from_secs(10));
    }
    let script = format!(
        "{}if [ -e {} ] || [ ! -d \"$P\" ]; then echo stopped; exit 0; fi\n\
         c=; {{ read -r c <\"$P/current\"; }} 2>/dev/null\n[ \"$c\" = {} ] || echo stopped\n",
        context.script_preamble(),
        quote(&context.stop_marker()),
        quote(&context.run_id)
    );
    RemoteCommand::from_script("check whether the run was stopped", script, Duration::from_secs(10))
}

/// One message of the stream.
#[derive(Debug, Clone, PartialEq)]
pub enum LogFrame {
    /// Bytes of a file.
    Data {
        file: LogFile,
        /// Place of the first byte.
        offset: u64,
        /// The bytes; a frame may come in several pieces.
        bytes: Bytes,
        /// Only with the frame's last bytes, after which it is acknowledged: how many bytes of the file follow the frame.
        frame_end: Option<u64>,
    },
    /// A wrapper was recorded; the second on the host's clock, 0 if it is not reported.
    Started(LogFile, f64),
    /// A wrapper ended, and its log was sent to the end; the second on the host's clock.
    Ended(LogFile, Exit, f64),
    /// A sign of life: free and total KiB under the run directory. It is acknowledged.
    Heartbeat { free_kib: u64, total_kib: u64 },
    /// The file is shorter than what was sent of it, which may be wrong: it is sent from its beginning.
    Truncated {
        file: LogFile,
        /// Its length when it was seen.
        size: u64,
    },
    /// Bytes of a log are missing from an offset on: why, at least and at most how many. The numbers of an offset may grow.
    LostBytes {
        file: LogFile,
        /// `killed`, `full`, `max` or `more`, as `assets/append.sh` says.
        kind: String,
        /// Where in the log.
        offset: u64,
        min_bytes: u64,
        max_bytes: u64,
    },
    /// A log has no appender of its own, or one that a signal to the group reaches; as `assets/pipe.sh` says.
    AppenderWarning(LogFile, String),
    /// An unexpected file of a rank, which is left unchanged: a word for its kind, and a name of harmless characters.
    SuspiciousFile(String, String),
    /// There is no such run directory.
    NoRunDirectory,
    /// Everything that was there was sent (`once`).
    Complete,
}

/// The stream is not what was agreed on; it must be dropped and resumed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the log stream is out of step at {0:?}")]
pub struct LogFrameError(pub String);

/// What is still to come of a frame.
#[derive(Debug, Clone, Copy)]
struct FrameRest {
    file: LogFile,
    /// Place of its next byte.
    offset: u64,
    /// How many bytes of it are to come.
    length: u64,
    /// How many bytes the file has after it.
    left: u64,
}

/// Cuts a byte stream into messages. Holds at most one head line and what was pushed at once.
#[derive(Debug, Default)]
pub struct LogFrameReader {
    buffer: BytesMut,
    pending_frame: Option<FrameRest>,
}

impl LogFrameReader {
    /// Takes bytes as they arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// How many bytes wait to be cut.
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// The next message, if it is there.
    ///
    /// # Errors
    /// When a head is none of ours.
    pub fn next_frame(&mut self) -> Result<Option<LogFrame>, LogFrameError> {
        if let Some(rest) = &mut self.pending_frame {
            if self.buffer.is_empty() {
                return Ok(None);
            }
            let limit = self.buffer.len().min(crate::model::log_file::MAX_LOG_CHUNK_BYTES);
            let take = usize::try_from(rest.length).unwrap_or(usize::MAX).min(limit);
            let (file, offset) = (rest.file, rest.offset);
            rest.offset += take as u64;
            rest.length -= take as u64;
            let frame_end = (rest.length == 0).then_some(rest.left);
            if frame_end.is_some() {
                self.pending_frame = None;
            }
            return Ok(Some(LogFrame::Data { file, offset, bytes: self.buffer.split_to(take).freeze(), frame_end }));
        }
        let Some(end) = memchr::memchr(b'\n', &self.buffer) else {
            return if self.buffer.len() > 4096 { Err(self.framing_error()) } else { Ok(None) };
        };
        let head = self.buffer.split_to(end);
        self.buffer.advance(1);
        let head = String::from_utf8_lossy(&head).into_owned();
        let refused = || LogFrameError(head.chars().take(80).collect());
        if let Some(rest) = head.strip_prefix("F ") {
            self.pending_frame = Some(parse_frame_head(rest).ok_or_else(refused)?);
            return self.next_frame();
        }
        parse_head(&head).map(Some).ok_or_else(refused)
    }

    fn framing_error(&self) -> LogFrameError {
        LogFrameError(String::from_utf8_lossy(&self.buffer).chars().take(80).collect())
    }
}

/// `FILE OFFSET LENGTH LEFT` of a frame whose bytes follow.
fn parse_frame_head(text: &str) -> Option<FrameRest> {
    let mut words = text.split(' ');
    let (file, offset) = (LogFile::parse(words.next()?)?, words.next()?.parse().ok()?);
    let length = words.next()?.parse().ok().filter(|length| (1..=MAX_FRAME_BYTES).contains(length))?;
    Some(FrameRest { file, offset, length, left: words.next()?.parse().ok()? })
}

fn parse_head(head: &str) -> Option<LogFrame> {
    let mut words = head.split(' ');
    let kind = words.next()?;
    let mut word = || words.next();
    match kind {
        "P" => {
            let file = LogFile::parse(word()?)?;
            Some(LogFrame::Started(file, words.nth(2).and_then(|t| t.parse().ok()).unwrap_or(0.0)))
        }
        "X" => {
            let file = LogFile::parse(word()?)?;
            let (exit, at) = parse_exit(&words.collect::<Vec<_>>().join(" ")).unwrap_or((Exit::Killed, 0.0));
            Some(LogFrame::Ended(file, exit, at))
        }
        "H" => {
            let (_, free, total) = (word()?, word()?.parse().ok()?, word()?.parse().ok()?);
            Some(LogFrame::Heartbeat { free_kib: free, total_kib: total })
        }
        "S" => Some(LogFrame::Truncated { file: LogFile::parse(word()?)?, size: word()?.parse().ok()? }),
        "W" => Some(LogFrame::SuspiciousFile(word()?.chars().take(20).collect(), word()?.chars().take(100).collect())),
        "L" => {
            let (file, kind) = (LogFile::parse(word()?)?, word()?.chars().take(20).collect());
            let (offset, least, most) = (word()?.parse().ok()?, word()?.parse().ok()?, word()?.parse().ok()?);
            Some(LogFrame::LostBytes { file, kind, offset, min_bytes: least, max_bytes: most })
        }
        "D" => Some(LogFrame::AppenderWarning(LogFile::parse(word()?)?, words.collect::<Vec<_>>().join(" ").chars().take(200).collect())),
        "N" => Some(LogFrame::NoRunDirectory),
        "E" => Some(LogFrame::Complete),
        _ => None,
    }
}

#[cfg(test)]
#[path = "log_frames_tests.rs"]
mod tests;
