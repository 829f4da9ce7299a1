//! All that a check may look at: the inventory, the job, and of each host that answered its facts and its answers.
//!
//! Uses `inventory` and facts.

use std::collections::BTreeMap;

use crate::inventory::{Container, ContainerGpus, Gpus, Host, Inventory, Job, JobHost};
use crate::plan::facts::HostFacts;
use crate::plan::words::Level;

use super::Cell;
use super::told::Told;

/// What there is to judge.
pub struct Scene<'a> {
    /// Who the hosts are.
    pub inventory: &'a Inventory,
    /// What they are to do.
    pub job: &'a Job,
    /// Those that answered, in node-rank order.
    pub hosts: Vec<Place<'a>>,
    /// The address that ranks use for each host of the inventory; empty where it cannot be told.
    pub addresses: Vec<String>,
    /// Whether a launch follows, which clears away what is there.
    pub launching: bool,
}

/// One host.
pub struct Place<'a> {
    /// Its place in the inventory.
    pub index: usize,
    /// The inventory's word on it.
    pub host: &'a Host,
    /// Its part of the job.
    pub part: &'a JobHost,
    /// Its facts.
    pub facts: &'a HostFacts,
    /// Its answers.
    pub told: &'a Told,
    /// The address that ranks use; `None`: it cannot be told.
    pub address: Option<&'a str>,
    /// Whether a run of this name is live on it.
    pub live: bool,
}

impl<'a> Place<'a> {
    /// Its name.
    pub fn name(&self) -> &'a str {
        &self.host.name
    }

    /// The container that will be made.
    pub fn container(&self) -> Option<&'a Container> {
        self.part.container.as_ref()
    }

    /// Whether the job is to use GPUs here.
    pub fn wants_gpus(&self) -> bool {
        match self.container() {
            Some(container) => container.gpus != ContainerGpus::None,
            None => self.host.gpus != Gpus::Any || !self.facts.gpus.is_empty(),
        }
    }

    /// The indexes of the GPUs that the inventory allows; `None`: all.
    pub fn allowed(&self) -> Option<&'a [u32]> {
        match (self.container().map(|c| &c.gpus), &self.host.gpus) {
            (Some(ContainerGpus::List(list)), _) | (_, Gpus::List(list)) => Some(list),
            _ => None,
        }
    }
}

impl<'a> Scene<'a> {
    /// A cell for each host.
    pub fn each(&self, judge: impl Fn(&Place<'a>) -> Cell) -> Vec<Cell> {
        self.hosts.iter().map(judge).collect()
    }

    /// A cell for each host that is to use GPUs and could be asked about them.
    pub fn each_gpu_host(&self, judge: impl Fn(&Place<'a>) -> Cell) -> Vec<Cell> {
        self.each(|host| match no_gpus(host) {
            Some(cell) => cell,
            None => judge(host),
        })
    }

    /// The master, if it answered.
    pub fn master(&self) -> Option<&Place<'a>> {
        self.hosts.first().filter(|h| h.index == 0)
    }

    /// Compares one value of all hosts: those who differ from the most common one (from the first host's, where none is more common) get
    /// `level`. A host without a value gets the cell that it has instead.
    pub fn alike(&self, level: Level, hint: &str, value: impl Fn(&Place<'a>) -> Result<String, Cell>) -> Vec<Cell> {
        let values: Vec<Result<String, Cell>> = self.hosts.iter().map(value).collect();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for value in values.iter().flatten() {
            *counts.entry(value).or_default() += 1;
        }
        let most = counts.values().max().copied().unwrap_or(0);
        let common = values.iter().flatten().find(|v| counts.get(v.as_str()) == Some(&most)).cloned().unwrap_or_default();
        let cell = |value: &Result<String, Cell>| match value {
            Err(cell) => cell.clone(),
            Ok(value) if *value == common => Cell::pass(value.clone()),
            Ok(value) => Cell { agree: most, ..Cell::new(level, format!("{value} instead of {common}"), hint) },
        };
        values.iter().map(cell).collect()
    }
}

/// Why the GPUs of a host are not looked at.
pub(super) fn no_gpus(host: &Place<'_>) -> Option<Cell> {
    if !host.wants_gpus() {
        return Some(Cell::skipped("no GPUs are used"));
    }
    if let Some(error) = host.told.one("gpu_error") {
        return Some(Cell::skipped(error.to_owned()));
    }
    host.told.gpus().is_empty().then(|| Cell::skipped("nvidia-smi told of no GPU"))
}

/// The values that one field has on the GPUs of a host, equal ones once: `8 × NVIDIA H100`.
pub(super) fn field(host: &Place<'_>, name: &str) -> Result<String, Cell> {
    let rows = host.told.gpus();
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for value in rows.iter().filter_map(|row| row.get(name).copied()) {
        match counts.iter_mut().find(|(v, _)| *v == value) {
            Some((_, n)) => *n += 1,
            None => counts.push((value, 1)),
        }
    }
    match counts.as_slice() {
        [] => Err(Cell::skipped(format!("this nvidia-smi does not tell {name}"))),
        [(value, _)] => Ok((*value).to_owned()),
        several => Ok(several.iter().map(|(value, n)| format!("{n} × {value}")).collect::<Vec<_>>().join(", ")),
    }
}
