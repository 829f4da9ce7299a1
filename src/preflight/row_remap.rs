//! `row-remap`: GPU memory that waits to be replaced.

use super::context::CheckContext;
use super::context::CheckedHost;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};

/// See its `looks`.
pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "row-remap",
    area: CheckArea::Gpu,
    description: "a row of GPU memory waits for a reset to be replaced (a warning), or could not be replaced",
    probes: &[Probe::Gpus],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_gpu_host(|host| {
        let rows = host.probe_output.values("remap");
        let yes = |word: Option<&str>| matches!(word.map(str::trim), Some("1" | "Yes" | "yes"));
        // `uuid, pending, failure`.
        let of = |place: usize| -> Vec<String> {
            rows.iter()
                .filter(|row| yes(row.split(',').nth(place)))
                .filter_map(|row| gpu_index_by_uuid(host, row.split(',').next()?.trim()))
                .collect()
        };
        let (pending, failed) = (of(1), of(2));
        if !failed.is_empty() {
            return CheckResult::fail(
                format!("memory rows of GPU {} could not be replaced", failed.join(",")),
                "have this GPU replaced; leave the host out with --limit",
            );
        }
        if !pending.is_empty() {
            return CheckResult::warn(
                format!("memory rows of GPU {} wait for a reset", pending.join(",")),
                format!("`sudo nvidia-smi -r -i {}` there, with nobody on it", pending.join(",")),
            );
        }
        if rows.is_empty() { CheckResult::skipped("this nvidia-smi does not tell of it") } else { CheckResult::pass("none") }
    })
}

/// The index of a GPU by its UUID; the UUID where it is not known.
pub(crate) fn gpu_index_by_uuid(host: &CheckedHost<'_>, uuid: &str) -> Option<String> {
    let rows = host.probe_output.gpu_rows();
    let row = rows.iter().find(|gpu| gpu.get("uuid") == Some(&uuid));
    Some(row.and_then(|gpu| gpu.get("index")).map_or_else(|| uuid.to_owned(), |i| (*i).to_owned()))
}
