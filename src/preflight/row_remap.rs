//! `row-remap`: GPU memory that waits to be replaced.

use super::context::{CheckContext, CheckedHost};
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "row-remap",
    area: CheckArea::Gpu,
    description: "a row of GPU memory needs a reset to be remapped (a warning), or could not be remapped",
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
                .map(|row| gpu_index_by_uuid(host, row.split(',').next().unwrap_or_default().trim()))
                .collect()
        };
        let (pending, failed) = (of(1), of(2));
        if !failed.is_empty() {
            return CheckResult::fail(
                format!("memory rows of GPU {} could not be remapped", failed.join(",")),
                "have this GPU replaced; exclude the host with --limit",
            );
        }
        if !pending.is_empty() {
            return CheckResult::warn(
                format!("memory rows of GPU {} need a reset to be remapped", pending.join(",")),
                format!("run `sudo nvidia-smi -r -i {}` on that host while the GPU is idle", pending.join(",")),
            );
        }
        if rows.is_empty() { CheckResult::skipped("this nvidia-smi does not report it") } else { CheckResult::pass("none") }
    })
}

/// The index of a GPU by its UUID; the UUID where it is not known.
pub(crate) fn gpu_index_by_uuid(host: &CheckedHost<'_>, uuid: &str) -> String {
    let rows = host.probe_output.gpu_rows();
    let row = rows.iter().find(|gpu| gpu.get("uuid") == Some(&uuid));
    row.and_then(|gpu| gpu.get("index")).map_or_else(|| uuid.to_owned(), |i| (*i).to_owned())
}
