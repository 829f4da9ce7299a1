//! `mount-content`: the same files beneath a mount that is only read.

use super::context::{CheckContext, CheckedHost};
use super::mount_filesystem::compare_mounts;
use super::mounts::probed_file_value;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "mount-content",
    area: CheckArea::Files,
    description: "a read-only mount's source differs in files or file sizes between hosts",
    probes: &[Probe::Files],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    let hint = "compare with `orchestrate exec -- ls -lR PATH`, and copy what is missing";
    compare_mounts(context, (|mount| mount.read_only, "no read-only mounts to compare"), hint, content_summary)
}

/// How many files there are, and a digest of their names and sizes.
pub(crate) fn content_summary(host: &CheckedHost<'_>, at: usize) -> Option<String> {
    let text = probed_file_value(host, at, "content")?;
    let (count, digest) = text.split_once(' ')?;
    (count != "?").then(|| format!("{count} files ({})", digest.rsplit(':').next().unwrap_or_default().chars().take(8).collect::<String>()))
}
