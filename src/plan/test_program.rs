//! Programs that tests write and start.

use std::path::Path;
use std::process::Command;

/// Writes a program by a process of its own: a child of another test's thread could still hold it open for writing when it is started.
pub(crate) fn write_program(path: &Path, text: &str) {
    let script = ["-c", "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\""];
    let status = Command::new("/bin/sh").args(script).arg(path).arg(text).status();
    assert!(status.is_ok_and(|status| status.success()), "{}: not written", path.display());
}
