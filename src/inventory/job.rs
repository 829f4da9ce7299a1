//! The launch half: the merged files with every template evaluated, for the whole run at once.

use super::errors::{InventoryErrors, is_absolute_or_home};
use super::eval::{EvalInputs, Evaluator};
use super::problem::{Verdict, require};
use super::validated::MergedInventory;
use super::yaml_tree::{YamlNode, shorten};
use super::{
    DeepspeedLauncher, GpuSelection, Inventory, Job, JobHost, LaunchCommand, Launcher, RuntimeValues, Teardown, constraint, container,
    hosts, launch,
};

impl Inventory {
    /// What its templates are evaluated with.
    pub(super) fn eval_inputs<'a>(&'a self, runtime: &'a RuntimeValues) -> EvalInputs<'a> {
        EvalInputs { tree: &self.merged.tree, host_nodes: &self.merged.host_nodes, hosts: &self.hosts, runtime, nproc_override: None }
    }
}

/// The job, or what is wrong in `errors`.
pub(super) fn build_job(inventory: &Inventory, runtime: &RuntimeValues, errors: &mut InventoryErrors) -> Option<Job> {
    let read = &inventory.merged;
    let scope = Evaluator::new(inventory.eval_inputs(runtime));
    evaluate_all_vars(&scope);
    let block = read.tree.get("launch");
    let has_tasks = read.tree.get("prepare").is_some_and(|list| !list.items().is_empty());
    if block.is_none() && !has_tasks {
        errors.report(&read.tree.location.child("launch"), "`launch` is missing", "add what to run: launch: { command: [train.py] }");
        errors.problems.extend(scope.take_problems());
        return None;
    }
    let hosts: Vec<JobHost> = (0..inventory.hosts.len()).map(|host| build_job_host(&scope, block, host, errors)).collect();
    let launch = match block {
        Some(block) => launch::parse_launch(&scope, block, errors),
        None => launch::no_launch(&scope, errors),
    };
    let secrets = read.tree.get("secrets").map(|node| hosts::parse_secrets(&scope.evaluate(node, None), errors)).unwrap_or_default();
    check_secrets_not_in_env(read, &secrets, errors);
    let nproc_per_node = scope.nproc_per_node();
    check_gpu_count(&scope, nproc_per_node, errors);
    if launch.launcher == Launcher::Deepspeed(DeepspeedLauncher::Hostfile) {
        check_hostfile_gpus(&scope, &hosts, errors);
    }
    if let Some(node) = read.tree.get("constraints") {
        constraint::check_constraints(&scope, node, errors);
    }
    let teardown = parse_teardown(&scope, errors);
    let checks = super::check_settings::parse_checks(&scope, errors);
    let on_failure = super::on_failure::parse_on_failure(&scope, errors);
    let tasks = super::prepare::parse_prepare(inventory, &scope, &hosts, errors);
    let log_max = super::log_settings::parse_max_log_bytes(&scope, errors);
    errors.problems.extend(scope.take_problems());
    let has_launch = block.is_some();
    Some(Job {
        has_launch,
        nproc_per_node,
        hosts,
        secret_names: secrets,
        tasks,
        launch,
        teardown,
        checks,
        on_failure,
        max_log_bytes: log_max,
    })
}

/// Evaluates every variable, also those that nothing uses.
fn evaluate_all_vars(evaluator: &Evaluator<'_>) {
    for entry in evaluator.inputs().tree.get("vars").map(YamlNode::entries).unwrap_or_default() {
        if crate::text::shell_quote::is_variable_name(&entry.key) && !super::eval::is_builtin_name(&entry.key) {
            drop(evaluator.lookup_variable(&entry.key, &entry.location));
        }
    }
}

fn build_job_host(evaluator: &Evaluator<'_>, block: Option<&YamlNode>, host: usize, errors: &mut InventoryErrors) -> JobHost {
    let facts = evaluator.inputs();
    let member = facts.host_nodes.get(host);
    let mut env = facts.tree.get("env").map(|node| errors.read_env(&evaluator.evaluate(node, Some(host)))).unwrap_or_default();
    if let Some(own) = member.and_then(|member| member.get("env")) {
        env.extend(errors.read_env(&evaluator.evaluate(own, Some(host))));
    }
    let container = container::parse_container(evaluator, host, errors);
    let own = member.and_then(|member| member.get("workdir")).map(|node| evaluator.evaluate(node, Some(host)));
    let workdir = own.or_else(|| facts.tree.get("workdir").map(|node| evaluator.evaluate(node, None)));
    let inside = container.is_some();
    let workdir = workdir.and_then(|node| errors.validated_text(&node, |text| validate_workdir(text, inside)));
    JobHost {
        env,
        container,
        workdir,
        nproc: evaluator.nproc_on_host(host),
        command: block
            .map_or_else(|| LaunchCommand::Argv(Vec::new()), |block| launch::parse_launch_command(evaluator, block, host, errors)),
    }
}

fn validate_workdir(text: &str, inside: bool) -> Verdict {
    let fine = if inside { text.starts_with('/') } else { is_absolute_or_home(text) };
    let hint = if inside {
        "write an absolute path: it is a directory in the container"
    } else {
        "write an absolute path, or one that begins with ~/"
    };
    require(fine, format!("the directory `{}` is relative", shorten(text)), hint)
}

fn parse_teardown(evaluator: &Evaluator<'_>, errors: &mut InventoryErrors) -> Teardown {
    let words = [("always", Teardown::Always), ("on-success", Teardown::OnSuccess), ("never", Teardown::Never)];
    let node = evaluator.inputs().tree.get("teardown").map(|node| evaluator.evaluate(node, None));
    errors.choose(node.as_ref(), &words, Teardown::Always)
}

/// A variable is either secret or not.
fn check_secrets_not_in_env(merged: &MergedInventory, secrets: &[String], errors: &mut InventoryErrors) {
    for entry in merged.env_entries() {
        if secrets.contains(&entry.key) {
            errors.report(
                &entry.location,
                format!("`{}` is also listed in secrets", entry.key),
                "remove one of the two: a value written here is not secret",
            );
        }
    }
}

/// DeepSpeed's own launcher numbers the GPUs of a host from 0 and overrides CUDA_VISIBLE_DEVICES (deepspeed/launcher/launch.py).
fn check_hostfile_gpus(evaluator: &Evaluator<'_>, hosts: &[JobHost], errors: &mut InventoryErrors) {
    for (index, host) in hosts.iter().enumerate() {
        let gpus = evaluator.inputs().hosts.get(index).map(|host| &host.gpus);
        let listed = matches!(gpus, Some(GpuSelection::List(list)) if list.iter().enumerate().any(|(i, g)| i as u32 != *g));
        let member = evaluator.inputs().host_nodes.get(index);
        if let (true, None, Some(node)) = (listed, &host.container, member.and_then(|member| member.get("gpus"))) {
            let hint = "use launch.rendezvous: static, which honors the selection, or a container";
            errors.report(&node.location, "DeepSpeed's own launcher ignores the selection and uses the host's first GPUs", hint);
        }
    }
}

/// No host may be asked for more processes than it gives GPUs.
fn check_gpu_count(evaluator: &Evaluator<'_>, nproc: Option<u32>, errors: &mut InventoryErrors) {
    let facts = evaluator.inputs();
    let Some((nproc, node)) = nproc.zip(facts.tree.get_path(&["launch", "nproc_per_node"])) else { return };
    let short: Vec<(usize, u32)> = (0..facts.hosts.len())
        .filter_map(|host| Some((host, evaluator.gpu_count(host)?)))
        .filter(|(_, gpus)| *gpus > 0 && *gpus < nproc)
        .collect();
    let Some((host, gpus)) = short.iter().min_by_key(|(_, gpus)| *gpus) else { return };
    errors.report(
        &node.location,
        format!("{nproc} processes per host, but {} has {gpus} GPUs", evaluator.host_name(*host)),
        format!("use at most {gpus}, or remove the key"),
    );
}
