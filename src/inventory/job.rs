//! The launch half: the merged files with every template evaluated, for the whole run at once.
//!
//! Uses every part of the room. Knows nothing of what is done with a job.

use super::check::Check;
use super::scope::{Facts, Scope};
use super::tree::{Node, shorten};
use super::{Form, Gpus, Inventory, Job, JobHost, Known, Launcher, Payload, Teardown, constraint, container, hosts, launch};

/// The job, or what is wrong in `check`.
pub(super) fn job(inventory: &Inventory, known: &Known, check: &mut Check) -> Option<Job> {
    let read = &inventory.read;
    let facts = Facts {
        tree: &read.tree,
        members: &read.members,
        names: inventory.hosts.iter().map(|host| host.name.as_str()).collect(),
        fabric: inventory.hosts.iter().map(|host| host.fabric_address.as_deref()).collect(),
        gpus: inventory.hosts.iter().map(|host| &host.gpus).collect(),
        known,
        nproc: None,
    };
    let scope = Scope::new(facts);
    vars(&scope);
    let Some(block) = read.tree.get("launch") else {
        check.wrong(&read.tree.place.inside("launch"), "`launch` is missing", "say what runs: launch: { command: [train.py] }");
        check.problems.extend(scope.problems());
        return None;
    };
    let hosts: Vec<JobHost> = (0..inventory.hosts.len()).map(|host| job_host(&scope, block, host, check)).collect();
    let command = hosts.first().map_or_else(|| Payload::Argv(Vec::new()), |host| host.command.clone());
    let launch = launch::launch(&scope, block, command, check);
    let secrets = read.tree.get("secrets").map(|node| hosts::secrets(&scope.eval(node, None), check)).unwrap_or_default();
    secrets_or_env(&read.tree, &read.members, &secrets, check);
    let nproc_per_node = scope.nproc_per_node();
    enough_gpus(&scope, nproc_per_node, check);
    if launch.with == Launcher::Deepspeed(Form::Hostfile) {
        counted_gpus(&scope, &hosts, check);
    }
    if let Some(node) = read.tree.get("constraints") {
        constraint::check(&scope, node, check);
    }
    let teardown = teardown(&scope, check);
    let checks = super::checks::checks(&scope, check);
    let on_failure = super::on_failure::on_failure(&scope, check);
    let log_max = super::logs::max(&scope, check);
    check.problems.extend(scope.problems());
    Some(Job { nproc_per_node, hosts, secrets, launch, teardown, checks, on_failure, log_max })
}

/// Evaluates every variable, also those that nothing uses.
fn vars(scope: &Scope<'_>) {
    for entry in scope.facts().tree.get("vars").map(Node::entries).unwrap_or_default() {
        if crate::shell::is_variable(&entry.key) && !super::scope::is_given(&entry.key) {
            scope.touch(&entry.key, &entry.place);
        }
    }
}

fn job_host(scope: &Scope<'_>, block: &Node, host: usize, check: &mut Check) -> JobHost {
    let facts = scope.facts();
    let member = facts.members.get(host);
    let mut env = facts.tree.get("env").map(|node| check.env(&scope.eval(node, Some(host)))).unwrap_or_default();
    if let Some(own) = member.and_then(|member| member.get("env")) {
        env.extend(check.env(&scope.eval(own, Some(host))));
    }
    let container = container::container(scope, host, check);
    let own = member.and_then(|member| member.get("workdir")).map(|node| scope.eval(node, Some(host)));
    let workdir = own.or_else(|| facts.tree.get("workdir").map(|node| scope.eval(node, None)));
    let inside = container.is_some();
    let workdir = workdir.and_then(|node| check.text_that(&node, |text| valid_workdir(text, inside)));
    JobHost { env, container, workdir, nproc: scope.nproc_of(host), command: launch::payload(scope, block, host, check) }
}

fn valid_workdir(text: &str, inside: bool) -> Result<(), (String, String)> {
    let home = !inside && (text == "~" || text.starts_with("~/"));
    if text.starts_with('/') || home {
        return Ok(());
    }
    let hint = if inside { "write it from /: it is a directory in the container" } else { "write it from / or from ~/" };
    Err((format!("the directory `{}` is relative", shorten(text)), hint.to_owned()))
}

fn teardown(scope: &Scope<'_>, check: &mut Check) -> Teardown {
    let words = [("always", Teardown::Always), ("on-success", Teardown::OnSuccess), ("never", Teardown::Never)];
    let node = scope.facts().tree.get("teardown").map(|node| scope.eval(node, None));
    node.and_then(|node| check.word(&node, &words)).unwrap_or(Teardown::Always)
}

/// A variable is either secret or not.
fn secrets_or_env(tree: &Node, members: &[Node], secrets: &[String], check: &mut Check) {
    let blocks = std::iter::once(tree).chain(members.iter()).flat_map(|node| [node.get("env"), node.find(&["container", "env"])]).flatten();
    for entry in blocks.flat_map(Node::entries) {
        if secrets.contains(&entry.key) {
            check.wrong(
                &entry.place,
                format!("`{}` is one of the secrets", entry.key),
                "keep it in one place: a value written here is not secret",
            );
        }
    }
}

/// DeepSpeed's own launcher numbers the GPUs of a host from 0 and overrides CUDA_VISIBLE_DEVICES (deepspeed/launcher/launch.py).
fn counted_gpus(scope: &Scope<'_>, hosts: &[JobHost], check: &mut Check) {
    for (index, host) in hosts.iter().enumerate() {
        let listed =
            matches!(scope.facts().gpus.get(index), Some(Gpus::List(list)) if list.iter().enumerate().any(|(i, g)| i as u32 != *g));
        let member = scope.facts().members.get(index);
        if let (true, None, Some(node)) = (listed, &host.container, member.and_then(|member| member.get("gpus"))) {
            let hint = "use launch.rendezvous: static, which keeps to them, or a container";
            check.wrong(&node.place, "DeepSpeed's own launcher would take the first GPUs of the host instead of these", hint);
        }
    }
}

/// No host may be asked for more processes than it gives GPUs.
fn enough_gpus(scope: &Scope<'_>, nproc: Option<u32>, check: &mut Check) {
    let facts = scope.facts();
    let Some((nproc, node)) = nproc.zip(facts.tree.find(&["launch", "nproc_per_node"])) else { return };
    let short: Vec<(usize, u32)> =
        (0..facts.names.len()).filter_map(|host| Some((host, scope.given(host)?))).filter(|(_, gpus)| *gpus > 0 && *gpus < nproc).collect();
    let Some((host, gpus)) = short.iter().min_by_key(|(_, gpus)| *gpus) else { return };
    let name = facts.names.get(*host).copied().unwrap_or_default();
    check.wrong(
        &node.place,
        format!("{nproc} processes a host, but {name} gives {gpus} GPUs"),
        format!("write at most {gpus}, or leave it out"),
    );
}
