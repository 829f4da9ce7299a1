//! The whole environment of one rank, as far as the plan decides it: what the container, the inventory and the launcher set.

use std::collections::BTreeMap;

use crate::inventory::{Job, PrepareTask};
use crate::plan::Plan;
use crate::plan::launcher::HostLaunchSpec;
use crate::text::hostlist::fold_numbers;
use crate::text::shell_quote::{quote, quote_path};

/// One `NAME=value` per line, sorted, below a line that names the rank. Secrets have no value, and what a task registers is known when it has run.
///
/// # Errors
/// The plan has no such rank, or does not know its ranks.
pub(crate) fn format_rank_environment(plan: &Plan, job: &Job, rank: u32) -> Result<String, String> {
    let Some(info) = plan.ranks.iter().find(|info| info.rank == rank) else {
        return Err(match plan.ranks.as_slice() {
            [] if job.launch.launcher.has_dynamic_ranks() => {
                "with c10d the rendezvous assigns the ranks: -v shows what each host's ranks are given".to_owned()
            }
            [] => "the ranks are known with the number of GPUs: add --facts, or set launch.nproc_per_node".to_owned(),
            ranks => {
                let ranks: Vec<u32> = ranks.iter().map(|info| info.rank).collect();
                format!("no rank {rank}: this run has ranks {}", fold_numbers(&ranks))
            }
        });
    };
    let host = info.host as usize;
    let spec = plan.steps.iter().filter(|step| step.host == host).find_map(|step| step.action.launch_spec());
    let name = plan.hosts.get(host).map_or("", |context| context.host.as_str());
    let mut text = format!("# rank {rank} on {name}, local rank {}\n", info.local_rank);
    for (variable, value) in spec.map(|spec| rank_variables(job, spec, (host, rank))).unwrap_or_default() {
        text.push_str(&format!("{variable}={}\n", value_word(&variable, &value)));
    }
    for secret in &job.secret_names {
        text.push_str(&format!("{secret}=***\n"));
    }
    let has_value = |task: &&PrepareTask| task.shares_value || task.hosts.get(host).is_some_and(Option::is_some);
    for task in job.tasks.iter().filter(has_value) {
        if let Some(name) = &task.register {
            text.push_str(&format!("{name}={}\n", quote(&format!("<output of task {}>", task.number))));
        }
    }
    if job.hosts.get(host).is_some_and(|host| host.container.is_some()) {
        text.push_str("# and what the image and the launcher set\n");
    } else {
        text.push_str("# and what a login to the host and the launcher set\n");
    }
    Ok(text)
}

/// The value as a shell reads it. In a variable of the run, `~/` is the home directory of the host; in one of the inventory it is what it says.
fn value_word(variable: &str, value: &str) -> String {
    if variable.starts_with("ORCH_") { quote_path(value) } else { quote(value) }
}

/// The host's environment wins over the job's, both over the container's; the rank's own variables are the launcher's.
fn rank_variables(job: &Job, spec: &HostLaunchSpec, (host, rank): (usize, u32)) -> BTreeMap<String, String> {
    let container = job.hosts.get(host).and_then(|host| host.container.as_ref());
    let mut env = container.map(|container| container.env.clone()).unwrap_or_default();
    for (name, value) in &spec.env_defaults {
        env.entry(name.clone()).or_insert_with(|| value.clone());
    }
    env.extend(spec.env.clone());
    let own = spec.ranks.iter().find(|own| own.title == format!("rank {rank}"));
    env.extend(own.map(|own| own.env.clone()).unwrap_or_default());
    env
}
