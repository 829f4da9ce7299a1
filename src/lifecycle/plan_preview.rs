//! Builds the plan of a launch without launching it, for `plan` and `render`.

use crate::inventory::{Inventory, Job, RuntimeValues};
use crate::lifecycle::error::WorkflowError;
use crate::plan::Plan;
use crate::plan::build::{self, LaunchInputs, RunIdentity};
use crate::plan::facts::HostFacts;
use crate::plan::rank_layout::usable_gpu_count;

/// Facts with placeholders for what only the host knows.
pub(crate) fn placeholder_facts(inventory: &Inventory, host: &str) -> HostFacts {
    HostFacts {
        run_dir: inventory.run_dir.clone(),
        home: format!("<from {host}: home>"),
        ssh_address: Some(format!("<from {host}: address>")),
        is_writable: true,
        ..HostFacts::default()
    }
}

pub(crate) fn gpu_counts(inventory: &Inventory, facts: &[HostFacts]) -> Vec<Option<u32>> {
    inventory.hosts.iter().zip(facts).map(|(host, facts)| Some(usable_gpu_count(host, facts)).filter(|count| *count > 0)).collect()
}

/// The job and its launch plan. Secrets are shown by name.
pub(crate) fn build_plan(inventory: &Inventory, facts: &[HostFacts], run_id: &str, run_stamp: &str) -> Result<(Job, Plan), WorkflowError> {
    let usage_error = |lines: Vec<String>| WorkflowError::Usage(lines.join("\n"));
    let addresses = build::resolve_addresses(inventory, facts)
        .map_err(|issues| usage_error(issues.into_iter().map(|(_, issue)| issue.message).collect()))?;
    let values = RuntimeValues {
        run_id: run_id.to_owned(),
        run_stamp: run_stamp.to_owned(),
        gpu_counts: gpu_counts(inventory, facts),
        fabric_addresses: addresses.into_iter().map(Some).collect(),
        master_port: facts.first().and_then(|facts| facts.free_port),
    };
    let job = inventory.job(&values)?;
    let config_texts: Vec<(String, String)> =
        (0..inventory.hosts.len()).map(|host| inventory.fingerprint_text(host)).map(|text| (text.container, text.launch)).collect();
    let identity = RunIdentity {
        run_id: run_id.to_owned(),
        lock_token: None,
        owner: "<user@laptop>".to_owned(),
        started_at: String::new(),
        recreate_containers: false,
    };
    let secrets: Vec<(String, String)> = job.secret_names.iter().map(|name| (name.clone(), format!("<secret {name}>"))).collect();
    let inputs = LaunchInputs {
        inventory,
        job: &job,
        facts,
        config_texts: &config_texts,
        identity: &identity,
        secrets: &secrets,
        registry_passwords: &[],
        check_summaries: &[],
    };
    let plan = build::plan_launch(inputs)
        .map_err(|issues| usage_error(issues.into_iter().map(|(_, issue)| format!("{}; help: {}", issue.message, issue.hint)).collect()))?;
    Ok((job, plan))
}
