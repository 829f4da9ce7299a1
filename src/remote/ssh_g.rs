//! Runs `ssh -G` for settings that only ssh can evaluate.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use crate::remote::{RemoteError, local_process};
use crate::ssh_config::SshOptions;

/// Timeout of one run, its `Match exec` included.
const SSH_G_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum output.
const MAX_OUTPUT_BYTES: u64 = 1 << 20;

/// The ssh program found on `PATH`.
pub(crate) fn find_ssh(path: Option<&OsStr>) -> Option<PathBuf> {
    std::env::split_paths(path?).map(|folder| folder.join("ssh")).find(|file| file.is_file())
}

/// Runs `ssh -G` with these arguments. At most 5 s; its process group is killed afterwards.
pub(crate) async fn run_ssh_g(program: PathBuf, arguments: &[String], alias: &str) -> Result<SshOptions, RemoteError> {
    let hint = "a `Match exec` in ssh_config may hang; try the command by hand";
    let output = local_process::run_process(program, arguments, SSH_G_TIMEOUT, MAX_OUTPUT_BYTES).await;
    let output = output.map_err(|what| RemoteError::invalid_config(format!("`ssh -G {alias}`: {what}"), hint))?;
    if !output.status.success() {
        let output = String::from_utf8_lossy(&output.stderr);
        let output: Vec<&str> = output.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("Pseudo-terminal")).collect();
        let what = format!("ssh rejected ssh_config for {alias}: {}", output.join("; "));
        return Err(RemoteError::invalid_config(what, "correct the line that ssh names, or choose another file with ssh.config or -F"));
    }
    Ok(SshOptions::parse_ssh_g(&String::from_utf8_lossy(&output.stdout)))
}
