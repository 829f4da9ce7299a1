#![expect(clippy::disallowed_methods, reason = "writes the files that the user saves from the dashboard, and runs tmux")]
//! Copies text from the dashboard into tmux's buffer, or saves it to a file.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::tui::feed::Clipboard;

/// The dashboard does not redraw while it waits for tmux.
const TMUX_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct LocalClipboard {
    save_dir: PathBuf,
    in_tmux: bool,
}

impl LocalClipboard {
    /// Files are saved in `saved`, next to `runs`.
    pub(crate) fn new(state_dir: &Path) -> LocalClipboard {
        LocalClipboard { save_dir: state_dir.join("saved"), in_tmux: std::env::var_os("TMUX").is_some_and(|value| !value.is_empty()) }
    }
}

impl Clipboard for LocalClipboard {
    /// `load-buffer -w` (tmux 3.2 on) also copies to the outer terminal's clipboard if `set-clipboard` allows it: tmux(1).
    fn copy_to_multiplexer(&self, text: &str) -> Option<io::Result<()>> {
        self.in_tmux.then(|| run_with_stdin(Command::new("tmux").args(["load-buffer", "-w", "-"]), text, TMUX_TIMEOUT))
    }

    fn save_to_file(&self, name: &str, text: &str) -> io::Result<String> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.save_dir)?;
        let stamp = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
        for attempt in 0..100 {
            let suffix = if attempt > 0 { format!("-{attempt}") } else { String::new() };
            let path = self.save_dir.join(format!("{name}-{stamp}{suffix}.log"));
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

/// Runs a program with `text` as its standard input; kills it after `timeout`.
fn run_with_stdin(command: &mut Command, text: &str, timeout: Duration) -> io::Result<()> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    // A pipe buffers as much as one copy may have, so this does not block.
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(text.as_bytes()));
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(status) = child.try_wait()? {
            return if status.success() { written } else { Err(io::Error::other(status.to_string())) };
        }
        if Instant::now() >= deadline {
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
        let dir = tempfile::tempdir().expect("a directory");
        let clipboard = LocalClipboard { save_dir: dir.path().join("saved"), in_tmux: false };
        let paths: Vec<String> = (0..3).map(|n| clipboard.save_to_file("rank-3", &n.to_string()).expect("saved")).collect();
        let texts: Vec<String> = paths.iter().map(|path| std::fs::read_to_string(path).expect("there")).collect();
        assert_eq!(texts, ["0", "1", "2"]);
        assert_eq!(std::fs::metadata(&paths[0]).expect("there").permissions().mode() & 0o777, 0o600);
        assert!(clipboard.copy_to_multiplexer("x").is_none());
    }

    #[test]
    fn failing_or_missing_program_is_an_error() {
        let timeout = Duration::from_secs(10);
        assert!(run_with_stdin(&mut Command::new("cat"), &"x".repeat(64 << 10), timeout).is_ok());
        assert!(run_with_stdin(&mut Command::new("false"), "", timeout).is_err());
        assert!(run_with_stdin(&mut Command::new("/no/such/program"), "x", timeout).is_err());
    }
}
