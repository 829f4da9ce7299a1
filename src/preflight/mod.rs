//! Preflight: one check a file. A check names the probes it needs and judges the answers of all hosts at once.
//!
//! Pure: nothing here asks a host. A check changes nothing on a host either: what is asked is read-only, but for files that are made and
//! removed at once where it is tried whether something can be written.

mod arch;
mod cgroup;
pub(crate) mod check_report;
pub(crate) mod check_result;
mod clock;
pub(crate) mod connection;
mod container_name;
pub(crate) mod context;
mod cpus;
mod disk;
mod docker;
mod docker_disk;
mod driver;
mod ecc;
mod fabric_manager;
mod gpu_capability;
mod gpu_count;
mod gpu_idle;
mod gpu_model;
mod hostname;
mod image;
mod image_versions;
mod infiniband;
mod inodes;
mod leftovers;
mod limits;
mod logout_kills;
mod master_address;
mod master_port;
mod memory;
mod mig;
mod mount_content;
mod mount_filesystem;
mod mount_write;
mod mounts;
mod mtu;
mod nccl_conf;
mod nic;
mod nvidia_runtime;
mod persistence;
pub(crate) mod probe;
pub(crate) mod probe_output;
mod reach_ephemeral;
mod reach_master;
mod row_remap;
mod run_dir;
mod same_content;
mod same_output;
mod shm;
pub(crate) mod slurm_cluster;
pub(crate) mod smoke;
pub(crate) mod smoke_rank_log;
mod userns_remap;
mod xid;

#[cfg(test)]
mod logout_tests;
#[cfg(test)]
mod problem_tests;
#[cfg(test)]
mod tests;

use crate::inventory::Job;
use crate::inventory::check_settings::{CHECK_NAMES, suggest_check_name};

pub(crate) use crate::preflight::check_report::{CheckArea, CheckReport, CheckResultGroup, PreflightCheck, summarize_host};
pub(crate) use crate::preflight::check_result::CheckResult;
use crate::preflight::context::CheckContext;

/// Every check, in the order of [`CHECK_NAMES`].
pub(crate) const ALL_CHECKS: [PreflightCheck; CHECK_NAMES.len()] = [
    clock::CHECK,
    arch::CHECK,
    cpus::CHECK,
    memory::CHECK,
    disk::CHECK,
    inodes::CHECK,
    limits::CHECK,
    shm::CHECK,
    logout_kills::CHECK,
    leftovers::CHECK,
    run_dir::CHECK,
    docker::CHECK,
    userns_remap::CHECK,
    container_name::CHECK,
    docker_disk::CHECK,
    cgroup::CHECK,
    image::CHECK,
    image_versions::CHECK,
    nvidia_runtime::CHECK,
    gpu_count::CHECK,
    gpu_model::CHECK,
    gpu_capability::CHECK,
    driver::CHECK,
    mig::CHECK,
    ecc::CHECK,
    row_remap::CHECK,
    persistence::CHECK,
    xid::CHECK,
    fabric_manager::CHECK,
    gpu_idle::CHECK,
    mounts::CHECK,
    mount_filesystem::CHECK,
    mount_content::CHECK,
    mount_write::CHECK,
    same_content::CHECK,
    same_output::CHECK,
    master_address::CHECK,
    hostname::CHECK,
    nic::CHECK,
    mtu::CHECK,
    infiniband::CHECK,
    nccl_conf::CHECK,
    master_port::CHECK,
    reach_master::CHECK,
    reach_ephemeral::CHECK,
];

/// The checks of `--only` without those of `--skip` and `checks.skip`; an area's word means all of its checks, no `only` means all.
///
/// # Errors
/// A word that names neither, with what was probably meant.
pub(crate) fn select_checks(only: &[String], skip: &[String], skipped: &[String]) -> Result<Vec<PreflightCheck>, String> {
    let known = |word: &&String| ALL_CHECKS.iter().all(|c| c.name != word.as_str() && c.area.as_str() != word.as_str());
    if let Some(word) = only.iter().chain(skip).find(known) {
        return Err(format!("unknown check `{word}`; {}", suggest_check_name(word)));
    }
    let named = |list: &[String], check: &PreflightCheck| list.iter().any(|word| word == check.name || word == check.area.as_str());
    let wanted = |check: &&PreflightCheck| (only.is_empty() || named(only, check)) && !named(skip, check);
    // A check that is selected by its name runs even if the inventory leaves it out.
    let left_out = |check: &PreflightCheck| skipped.iter().any(|word| word == check.name) && !only.iter().any(|word| word == check.name);
    Ok(ALL_CHECKS.iter().filter(wanted).filter(|check| !left_out(check)).copied().collect())
}

/// The checks that precede every launch: all but those that look inside the image; of these only `same`, if the user listed commands.
pub(crate) fn launch_checks(job: &Job) -> Vec<PreflightCheck> {
    let wanted = |check: &PreflightCheck| !check.is_left_to_full() && (check.name != "same" || !job.checks.same_output_commands.is_empty());
    select_checks(&[], &[], &job.checks.skip).unwrap_or_default().into_iter().filter(wanted).collect()
}

/// Evaluates each of these checks for all hosts of the context.
pub(crate) fn evaluate_checks(context: &CheckContext<'_>, checks: &[PreflightCheck]) -> Vec<CheckReport> {
    checks
        .iter()
        .map(|check| {
            let mut cells = match context.hosts.is_empty() {
                true => Vec::new(),
                false => (check.judge)(context),
            };
            // A check whose probes were not run or not answered is skipped.
            for (host, cell) in context.hosts.iter().zip(&mut cells) {
                if let Some(probe) = check.probes.iter().find(|probe| !host.probe_output.is_complete(**probe)) {
                    *cell = CheckResult::skipped(host.probe_output.missing_reason(*probe));
                }
            }
            CheckReport { check: *check, results: context.hosts.iter().map(|h| h.index).zip(cells).collect() }
        })
        .collect()
}
