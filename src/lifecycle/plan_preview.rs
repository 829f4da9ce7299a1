//! Builds the plan of a launch without launching it, for `plan` and `render`.

use crate::inventory::{Inventory, InventoryProblem, Job, RuntimeValues, TaskSelection};
use crate::lifecycle::error::WorkflowError;
use crate::plan::Plan;
use crate::plan::build::{self, LaunchInputs, RunIdentity};
use crate::plan::existing_run::{ExistingRun, classify_existing_run};
use crate::plan::facts::HostFacts;
use crate::plan::overview::{PlanOverview, format_overview};
use crate::plan::rank_layout::usable_gpu_count;
use crate::text::translation::Lang;

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

/// A plan that is only shown.
pub(crate) struct PlanPreview {
    pub(crate) job: Job,
    pub(crate) plan: Plan,
    config_texts: ConfigTexts,
}

impl PlanPreview {
    fn runs_tasks_only(&self) -> bool {
        self.plan.run_record.as_ref().is_some_and(|record| record.tasks_only)
    }

    /// The plan on one screen. `facts`: `None` where the hosts were not asked.
    pub(crate) fn overview(&self, inventory: &Inventory, facts: Option<&[HostFacts]>, lang: Lang, columns: usize) -> String {
        let effect = match facts {
            None if self.runs_tasks_only() => {
                vec![
                    "the hosts were not asked: --facts asks them and shows what would change, `check` tests them, `prepare` runs the tasks"
                        .to_owned(),
                ]
            }
            None => {
                vec![
                    "the hosts were not asked: --facts asks them and shows what would change, `check` tests them, `up` launches".to_owned(),
                ]
            }
            Some(facts) => {
                let names: Vec<String> = inventory.hosts.iter().map(|host| host.name.clone()).collect();
                match classify_existing_run(facts, &names, &self.config_texts) {
                    ExistingRun::NoRun if self.runs_tasks_only() => vec!["no run exists: `prepare` runs the tasks".to_owned()],
                    existing => describe_up(existing),
                }
            }
        };
        let overview = PlanOverview {
            plan: &self.plan,
            job: &self.job,
            hosts: &inventory.hosts,
            facts,
            effect: &effect,
            offers_rank_option: true,
            lang,
        };
        format_overview(&overview, columns)
    }
}

/// What `up` would do, then the differences from a live run.
fn describe_up(existing: ExistingRun) -> Vec<String> {
    match existing {
        ExistingRun::NoRun => vec!["no run exists: `up` launches one".to_owned()],
        ExistingRun::Ended { run_id } => {
            vec![format!("{run_id} has ended: `up` fetches its logs, then launches a new run")]
        }
        ExistingRun::Preparing { run_id } => {
            vec![format!("tasks of {run_id} run: `up` waits for them, then launches a new run")]
        }
        ExistingRun::Partial { reason } => {
            vec![format!("a partial gang ({reason}): `up` stops it, then launches a new run")]
        }
        ExistingRun::Live { run_id, differences } if differences.is_empty() => {
            vec![format!("{run_id} is live and matches: `up` attaches to it")]
        }
        ExistingRun::Live { run_id, differences } => {
            let effect = format!("{run_id} is live and differs: `up` refuses, --recreate replaces it");
            std::iter::once(effect).chain(differences).collect()
        }
    }
}

/// Per host, container and launch: equal texts mean an equal run.
pub(crate) type ConfigTexts = Vec<(String, String)>;

/// The job with the facts of the hosts, and the texts by which runs are compared.
pub(crate) fn evaluate_job(
    inventory: &Inventory,
    facts: &[HostFacts],
    addresses: Vec<String>,
    (run_id, run_stamp): (&str, &str),
) -> Result<(Job, ConfigTexts), Vec<InventoryProblem>> {
    let job = inventory.job(&RuntimeValues {
        run_id: run_id.to_owned(),
        run_stamp: run_stamp.to_owned(),
        gpu_counts: gpu_counts(inventory, facts),
        fabric_addresses: addresses.into_iter().map(Some).collect(),
        master_port: facts.first().and_then(|facts| facts.free_port),
    })?;
    let texts = (0..inventory.hosts.len()).map(|host| inventory.fingerprint_text(host)).map(|text| (text.container, text.launch)).collect();
    Ok((job, texts))
}

/// The job and its launch plan. Secrets are shown by name.
pub(crate) fn build_plan(inventory: &Inventory, facts: &[HostFacts], run_id: &str, run_stamp: &str) -> Result<PlanPreview, WorkflowError> {
    let usage_error = |lines: Vec<String>| WorkflowError::Usage(lines.join("\n"));
    let addresses = build::resolve_addresses(inventory, facts)
        .map_err(|issues| usage_error(issues.into_iter().map(|(_, issue)| issue.message).collect()))?;
    let (job, config_texts) = evaluate_job(inventory, facts, addresses, (run_id, run_stamp))?;
    let identity = RunIdentity {
        run_id: run_id.to_owned(),
        lock_token: None,
        owner: "<user@laptop>".to_owned(),
        started_at: String::new(),
        recreate_containers: false,
        tasks: TaskSelection::default(),
        tasks_only: !job.has_launch,
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
    Ok(PlanPreview { job, plan, config_texts })
}

#[cfg(test)]
#[path = "plan_preview_tests.rs"]
mod tests;
