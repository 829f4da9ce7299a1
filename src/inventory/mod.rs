//! The inventory: what the user wrote, validated. A value of these types cannot be wrong in a way the file alone could show.
//!
//! Reading has two halves. [`Inventory`] is what every command needs: the hosts and how to reach them. [`Job`] is what a launch
//! needs, with every template evaluated once, for the whole run, from [`RuntimeValues`] values.

mod ansible_import;
pub(crate) mod check_settings;
pub(crate) mod constraint;
mod container;
mod container_settings;
pub mod diagnosis_rules;
mod errors;
mod eval;
mod file_task;
mod fingerprint;
mod host_entries;
mod host_exposure;
mod host_settings;
mod hosts;
pub(crate) mod import;
mod imported_host;
mod job;
mod job_settings;
mod launch;
mod launcher;
pub(crate) mod lint;
mod load;
pub mod localized_template;
mod log_settings;
mod metric_patterns;
mod mounts;
mod name_syntax;
mod on_failure;
mod prepare;
mod problem;
mod reserved_flags;
mod schema;
mod secrets;
mod slurm;
mod slurm_job;
mod slurm_prepare;
pub(crate) mod smoke_test;
mod ssh_args;
mod task_settings;
mod template;
mod validated;
pub(crate) mod yaml_pairs;
mod yaml_parser;
mod yaml_tree;

pub(crate) use container::DEFAULT_SHM_SIZE;
pub(crate) use container_settings::{ContainerGpus, ContainerSettings, ContainerUser, EntrypointMode, Mount, PullPolicy, RegistrySettings};
pub(crate) use host_settings::{Become, ContainerEngine, RuntimeValues};
pub use host_settings::{GpuSelection, HostKeyChecking, HostSshSettings, InventoryHost};
pub(crate) use imported_host::ImportedHost;
pub(crate) use job_settings::{
    CheckSettings, GpuVisibility, Job, JobHost, LaunchCommand, LaunchSettings, OnFailure, StartGate, StartOrder, Teardown,
};
pub(crate) use launch::DEFAULT_PYTHON;
pub use launcher::Launcher;
pub(crate) use launcher::{DeepspeedLauncher, Rendezvous};
pub(crate) use log_settings::parse_size;
pub(crate) use name_syntax::{
    is_valid_address, is_valid_host_name, is_valid_inventory_name, is_valid_jump_host, is_valid_run_id, is_valid_user,
};
pub(crate) use problem::InventoryProblem;
pub use problem::InventorySource;
pub(crate) use schema::nearest_word;
pub(crate) use slurm::{SlurmContainer, SlurmSettings, parse_time_limit};
pub(crate) use slurm_job::SlurmJob;
pub(crate) use task_settings::{FileSource, FileTask, PrepareTask, TaskCommand, TaskSelection};
pub(crate) use validated::{FingerprintText, Inventory};

#[cfg(test)]
mod tests;
