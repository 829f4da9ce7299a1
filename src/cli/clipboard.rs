#![expect(clippy::disallowed_methods, reason = "writes the files that a person saves from the dashboard, and gives tmux a text to keep")]
//! What the dashboard has done with text on this laptop: a copy in tmux's buffer, a file.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::tui::feed::Clipboard;

/// How long tmux may take: the screen waits for it.
const TMUX_TIMEOUT: Duration = Duration::from_secs(1);

/// The way to tmux and to a folder.
pub(crate) struct LocalClipboard {
    save_dir: PathBuf,
    in_tmux: bool,
}

impl LocalClipboard {
    /// Files lie in `saved` beside the runs.
    pub(crate) fn new(state_dir: &Path) -> LocalClipboard {
        LocalClipboard { save_dir: state_dir.join("saved"), in_tmux: std::env::var_os("TMUX").is_some_and(|value| !value.is_empty()) }
    }
}

impl Clipboard for LocalClipboard {
    /// `load-buffer -w` (tmux 3.2 on) gives the text to the outer terminal's clipboard as well, as `set-clipboard` allows: tmux(1).
    fn copy_to_multiplexer(&self, text: &str) -> Option<io::Result<()>> {
        self.in_tmux.then(|| run_with_stdin(Command::new("tmux").args(["load-buffer", "-w", "-"]), text, TMUX_TIMEOUT))
    }

    fn save_to_file(&self, name: &str, text: &str) -> io::Result<String> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.save_dir)?;
        let stamp = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
        for again in 0..100 {
            let more = if again > 0 { format!("-{again}") } else { String::new() };
            let path = self.save_dir.join(format!("{name}-{stamp}{more}.log"));
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(mut file) => {
                    file.write_all(text.as_bytes())?;
                    return Ok(path.display().to_string());
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

/// Runs a program with a text as its input, for a moment at most.
fn run_with_stdin(command: &mut Command, text: &str, patience: Duration) -> io::Result<()> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    // A pipe holds as much as a copy may have, so that this does not wait for a reader.
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(text.as_bytes()));
    let end = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait()? {
            return if status.success() { written } else { Err(io::Error::other(status.to_string())) };
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_files_are_unique_and_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a folder");
        let keeper = LocalClipboard { save_dir: dir.path().join("saved"), in_tmux: false };
        let paths: Vec<String> = (0..3).map(|n| keeper.save_to_file("rank-3", &n.to_string()).expect("saved")).collect();
        let texts: Vec<String> = paths.iter().map(|path| std::fs::read_to_string(path).expect("there")).collect();
        assert_eq!(texts, ["0", "1", "2"]);
        assert_eq!(std::fs::metadata(&paths[0]).expect("there").permissions().mode() & 0o777, 0o600);
        assert!(keeper.copy_to_multiplexer("x").is_none());
    }

    #[test]
    fn failing_or_missing_program_is_an_error() {
        let patience = Duration::from_secs(10);
        assert!(run_with_stdin(&mut Command::new("cat"), &"x".repeat(64 << 10), patience).is_ok());
        assert!(run_with_stdin(&mut Command::new("false"), "", patience).is_err());
        assert!(run_with_stdin(&mut Command::new("/no/such/program"), "x", patience).is_err());
    }
}
