//! The last bytes of every rank's log, asked of a host at once: bounded, and read as `assets/read.sh` reads what a rank wrote.

use std::time::Duration;

use crate::model::log_file::LogFile;
use crate::model::remote_command::RemoteCommand;
use crate::plan::host_context::{HostContext, SAFE_READ_SH};
use crate::text::shell_quote::quote;

/// So much of each log.
const MAX_END_BYTES: u64 = 2 << 10;
/// The most logs of a host.
const MAX_LOGS: usize = 64;
/// Stands for a newline in an answer: a log is one line there.
const NEWLINE_MARK: u8 = 0x1e;

/// Asks for the ends of these logs, whose sizes the facts know.
pub(crate) fn log_ends_command(context: &HostContext, logs: &[(LogFile, u64)]) -> RemoteCommand {
    let mut script = format!(
        "{}F={}\n{SAFE_READ_SH}\ncd -P -- \"${{F%/*}}\" 2>/dev/null || exit 0\nd=$(pwd -P)\n\
         show() {{ printf 'T %s ' \"$1\"; bytes \"${{F##*/}}$1.log\" \"$d\" \"$2\" {MAX_END_BYTES} | LC_ALL=C tr '\\n\\000' '\\036 '; printf '\\n'; }}\n",
        context.script_preamble(),
        quote(&context.run_file_prefix())
    );
    for (file, size) in logs.iter().take(MAX_LOGS) {
        script.push_str(&format!("show {file} {}\n", size.saturating_sub(MAX_END_BYTES) + 1));
    }
    let limit = usize::try_from(MAX_END_BYTES + 64).unwrap_or(usize::MAX).saturating_mul(MAX_LOGS);
    RemoteCommand::from_script("read the ends of the logs", script, Duration::from_secs(30)).with_output_limit(limit)
}

/// The ends by file; what does not keep the form is left out.
pub(crate) fn parse_log_ends(output: &[u8]) -> Vec<(LogFile, Vec<u8>)> {
    let parse = |line: &[u8]| {
        let rest = line.strip_prefix(b"T ")?;
        let at = memchr::memchr(b' ', rest)?;
        let file = LogFile::parse(std::str::from_utf8(&rest[..at]).ok()?)?;
        Some((file, rest[at + 1..].iter().map(|byte| if *byte == NEWLINE_MARK { b'\n' } else { *byte }).collect()))
    };
    output.split(|byte| *byte == b'\n').take(MAX_LOGS).filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_logs_are_bounded_and_no_link_is_followed() {
        let base = tempfile::tempdir().expect("a folder");
        let context = HostContext { run_id: "run1".to_owned(), ..HostContext::new("n", "gpu01", base.path().display().to_string()) };
        let dir = std::path::PathBuf::from(context.output_dir());
        std::fs::create_dir_all(&dir).expect("made");
        let rank = |rank| LogFile::Rank { rank, restart: 0 };
        let long = format!("{}\nstep 7/9\n\u{1b}[2Jlast", "x".repeat(9_000));
        std::fs::write(dir.join("run1.rank-0.0.log"), &long).expect("written");
        std::fs::write(base.path().join("secret"), "root:x\n").expect("written");
        std::os::unix::fs::symlink(base.path().join("secret"), dir.join("run1.rank-1.0.log")).expect("linked");
        let command = log_ends_command(&context, &[(rank(0), long.len() as u64), (rank(1), 7)]);
        let output = std::process::Command::new("/bin/sh").args(["-c", &command.script]).output().expect("a shell");
        let ends = parse_log_ends(&output.stdout);
        assert_eq!(ends.len(), 2, "{ends:?}");
        assert!(ends[0].0 == rank(0) && ends[0].1.len() == 2048 && long.as_bytes().ends_with(&ends[0].1));
        assert_eq!(ends[1], (rank(1), Vec::new()), "a link is no log");
        assert_eq!(parse_log_ends(b"T rank-x evil\nT ../x y\nfree text\n"), []);
    }
}
