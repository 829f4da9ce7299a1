//! All that a check may look at: the inventory, the job, and of each host that answered its facts and its answers.

use std::collections::BTreeMap;

use crate::inventory::{ContainerGpus, ContainerSettings, GpuSelection, Inventory, InventoryHost, Job, JobHost, Mount};
use crate::model::level::Level;
use crate::plan::fact_rules::uses_gpus;
use crate::plan::facts::HostFacts;

use super::CheckResult;
use super::probe::Probe;
use super::probe_output::ProbeOutput;

/// What there is to judge.
pub(crate) struct CheckContext<'a> {
    /// Holds the hosts.
    pub inventory: &'a Inventory,
    /// What they are to do.
    pub job: &'a Job,
    /// Those that answered, in node-rank order.
    pub hosts: Vec<CheckedHost<'a>>,
    /// The address that ranks use for each host of the inventory; empty if it is unknown.
    pub fabric_addresses: Vec<String>,
    /// Whether a launch follows, which clears away what is there.
    pub before_launch: bool,
}

pub(crate) struct CheckedHost<'a> {
    /// Its place in the inventory.
    pub index: usize,
    /// The inventory's word on it.
    pub host: &'a InventoryHost,
    /// Its part of the job.
    pub job_host: &'a JobHost,
    pub facts: &'a HostFacts,
    pub probe_output: &'a ProbeOutput,
    /// The address that ranks use; `None`: unknown.
    pub fabric_address: Option<&'a str>,
    /// Whether a run of this name is live on it.
    pub has_live_run: bool,
}

impl<'a> CheckedHost<'a> {
    pub(crate) fn name(&self) -> &'a str {
        &self.host.name
    }

    /// The container that will be made.
    pub(crate) fn container(&self) -> Option<&'a ContainerSettings> {
        self.job_host.container.as_ref()
    }

    pub(crate) fn mounts(&self) -> &'a [Mount] {
        self.container().map_or(&[], |container| &container.mounts)
    }

    /// The ranks' variable of this name, as far as the inventory sets it.
    pub(crate) fn variable(&self, name: &str) -> Option<&'a String> {
        self.job_host.env.get(name).or_else(|| self.container()?.env.get(name))
    }

    /// Whether no container of the image started for the questions inside.
    pub(crate) fn has_failed_inside(&self) -> bool {
        self.probe_output.last_value("inside_failed").is_some()
    }

    /// What `docker info` printed, or why nothing.
    pub(crate) fn docker_info(&self) -> Result<&'a str, CheckResult> {
        let output = self.probe_output;
        let silence = match output.known_missing_reason(Probe::Docker) {
            Some(reason) => reason,
            None if output.is_complete(Probe::Docker) => "docker info printed nothing",
            None => "docker was not queried",
        };
        output.last_value("docker_info").ok_or_else(|| CheckResult::skipped(output.last_value("docker_error").unwrap_or(silence)))
    }

    /// Whether the job is to use GPUs here.
    pub(crate) fn wants_gpus(&self) -> bool {
        uses_gpus(self.container(), &self.host.gpus, self.facts)
    }

    /// The indexes of the GPUs that the inventory allows; `None`: all.
    pub(crate) fn allowed_gpus(&self) -> Option<&'a [u32]> {
        match (self.container().map(|c| &c.gpus), &self.host.gpus) {
            (Some(ContainerGpus::List(list)), _) | (_, GpuSelection::List(list)) => Some(list),
            _ => None,
        }
    }

    /// Whether the inventory allows the GPU with this index.
    pub(crate) fn allows_gpu(&self, index: &str) -> bool {
        self.allowed_gpus().is_none_or(|list| index.parse().is_ok_and(|index: u32| list.contains(&index)))
    }
}

impl<'a> CheckContext<'a> {
    /// A cell for each host.
    pub(crate) fn check_each_host(&self, judge: impl Fn(&CheckedHost<'a>) -> CheckResult) -> Vec<CheckResult> {
        self.hosts.iter().map(judge).collect()
    }

    /// A cell for each host that is to use GPUs and could be asked about them.
    pub(crate) fn check_each_gpu_host(&self, judge: impl Fn(&CheckedHost<'a>) -> CheckResult) -> Vec<CheckResult> {
        self.check_each_host(|host| match gpu_skip_result(host) {
            Some(cell) => cell,
            None => judge(host),
        })
    }

    /// Whether only one of several hosts answered: there is nothing to compare it with.
    pub(crate) fn is_alone(&self) -> bool {
        self.hosts.len() == 1 && self.inventory.hosts.len() > 1
    }

    /// Compares one value of all hosts: those that differ from the most common one (from the first host's, where none is more common) get
    /// `level`. A host without a value gets the cell that it has instead.
    pub(crate) fn compare_hosts(
        &self,
        level: Level,
        hint: &str,
        value: impl Fn(&CheckedHost<'a>) -> Result<String, CheckResult>,
    ) -> Vec<CheckResult> {
        if self.is_alone() {
            return self.check_each_host(|host| value(host).map_or_else(|why| why, |_| CheckResult::skipped("no other host answered")));
        }
        let values: Vec<Result<String, CheckResult>> = self.hosts.iter().map(value).collect();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for value in values.iter().flatten() {
            *counts.entry(value).or_default() += 1;
        }
        let most = counts.values().max().copied().unwrap_or(0);
        let common = values.iter().flatten().find(|v| counts.get(v.as_str()) == Some(&most)).cloned().unwrap_or_default();
        let cell = |value: &Result<String, CheckResult>| match value {
            Err(cell) => cell.clone(),
            Ok(value) if *value == common => CheckResult::pass(value.clone()),
            Ok(value) => CheckResult { majority_size: most, ..CheckResult::new(level, format!("{value} instead of {common}"), hint) },
        };
        values.iter().map(cell).collect()
    }
}

/// Why the GPUs of a host are not looked at.
pub(crate) fn gpu_skip_result(host: &CheckedHost<'_>) -> Option<CheckResult> {
    if !host.wants_gpus() {
        return Some(CheckResult::skipped("no GPUs are used"));
    }
    if let Some(error) = host.probe_output.last_value("gpu_error") {
        return Some(CheckResult::skipped(error.to_owned()));
    }
    host.probe_output.gpu_rows().is_empty().then(|| CheckResult::skipped("nvidia-smi lists no GPU"))
}

/// The values that one field has on the GPUs of a host, equal ones once: `8 × NVIDIA H100`; else why they are not looked at.
pub(crate) fn gpu_field(host: &CheckedHost<'_>, name: &str) -> Result<String, CheckResult> {
    if let Some(skipped) = gpu_skip_result(host) {
        return Err(skipped);
    }
    let rows = host.probe_output.gpu_rows();
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for value in rows.iter().filter_map(|row| row.get(name).copied()) {
        match counts.iter_mut().find(|(v, _)| *v == value) {
            Some((_, n)) => *n += 1,
            None => counts.push((value, 1)),
        }
    }
    match counts.as_slice() {
        [] => Err(CheckResult::skipped(format!("this nvidia-smi does not report {name}"))),
        [(value, _)] => Ok((*value).to_owned()),
        several => Ok(several.iter().map(|(value, n)| format!("{n} × {value}")).collect::<Vec<_>>().join(", ")),
    }
}
