//! Lints of the rest: addresses, the container, how the ranks start and stop.

use std::net::IpAddr;

use super::context::LintContext;
use crate::inventory::log_settings::parse_size;
use crate::inventory::yaml_tree::shorten;
use crate::inventory::{Launcher, StartGate, StartOrder};

pub(super) fn lint_settings(context: &mut LintContext<'_>) {
    lint_addresses(context);
    lint_container(context);
    lint_start(context);
}

fn lint_addresses(context: &mut LintContext<'_>) {
    let Some(node) = context.host_nodes.first().and_then(|member| member.get("fabric_address")).filter(|_| context.host_count > 1) else {
        return;
    };
    let value = context.evaluator.evaluate(node, Some(0));
    let Some(text) = value.as_text() else { return };
    match text.parse::<IpAddr>() {
        Err(_) => {
            let message = format!("`{text}` is a name: each host resolves it, some to 127.0.1.1");
            context.report("master-name", &node.location, message, "write the IP address, or remove it: orchestrate detects it");
        }
        Ok(address) if address.is_loopback() => {
            let own = |host: usize| context.evaluator.inputs().hosts.get(host).and_then(|host| host.fabric_address.as_ref());
            if (1..context.host_count).any(|host| own(host) != own(0)) {
                let message = format!("on the other hosts {text} is the host itself, not the master");
                context.report("master-loopback", &node.location, message, "write the address at which the other hosts reach the master");
            }
        }
        Ok(_) => {}
    }
}

fn lint_container(context: &mut LintContext<'_>) {
    let Some(container) = context.job.hosts.first().and_then(|host| host.container.as_ref()) else { return };
    let tree = context.tree;
    let block = tree.get("container").map_or(&tree.location, |node| &node.location);
    let at = |key: &str| tree.get_path(&["container", key]).map_or(block, |node| &node.location);
    for setting in container.host_exposures(context.run_dir) {
        let message =
            format!("with {} a rank can become root on its host, or forge what the host reports about the run", shorten(&setting));
        context.report("host-access", block, message, "remove it or mount less; otherwise the ranks must be as trusted as the ssh user");
    }
    let nproc = context.job.nproc_per_node.unwrap_or(2);
    if let Some(size) = parse_size(&container.shm_size).filter(|size| *size < 1 << 30 && nproc > 1)
        && container.gpus != crate::inventory::ContainerGpus::None
    {
        let message = format!("{} MiB of /dev/shm for {nproc} processes: NCCL and data loaders can die with bus errors", size >> 20);
        context.report("small-shm", at("shm_size"), message, "remove it: the default of 32g is a limit, memory is taken only when used");
    }
    if container.uses_host_ipc() {
        let message = "with ipc: host shm_size has no effect, and files of a killed rank stay in the host's /dev/shm";
        context.report("ipc-host", at("args"), message, "remove it: the container then has its own /dev/shm of shm_size");
    }
    if container.network != "host" && context.host_count > 1 {
        let message = format!("ranks of other hosts cannot reach a container on the network `{}`", container.network);
        context.report("network-not-host", at("network"), message, "remove it: host is the default");
    }
    let tag = container.image.rsplit('/').next().unwrap_or_default();
    if context.host_count > 1 && !tag.contains('@') && (!tag.contains(':') || tag.ends_with(":latest")) {
        let message = format!("`{}` differs by when each host pulled it", container.image);
        context.report("unpinned-image", at("image"), message, "use a tag or a digest, so that all hosts run the same image");
    }
}

fn lint_start(context: &mut LintContext<'_>) {
    let (tree, launch) = (context.tree, &context.job.launch);
    let block = tree.get("launch").map_or(&tree.location, |node| &node.location);
    let at = |key: &str| tree.get_path(&["launch", key]).map_or(block, |node| &node.location);
    if context.needs_rendezvous() && (launch.start == StartOrder::Together || launch.gate == StartGate::None) {
        let key = if launch.start == StartOrder::Together { "start" } else { "gate" };
        let message = "workers do not wait for the master's port: a worker that starts early gives up after a minute";
        context.report("no-gate", at(key), message, "remove it: workers then start when the master's port listens");
    }
    let seconds = launch.stop_grace.as_secs();
    if seconds < 30 && !matches!(launch.launcher, Launcher::Script | Launcher::Processes) {
        let message = format!("after {seconds} s every rank is killed; torchrun itself gives its workers 30 s to save their work");
        context.report("short-grace", at("stop_grace"), message, "use at least 30s, more if a checkpoint takes longer");
    }
    if context.tree.get_path(&["launch", "master_port"]).is_none() && context.needs_rendezvous() {
        let message = "every run without its own port uses 29500: two on one host collide (preflight reports it)";
        context.report("undefined-port", block, message, "set launch.master_port, or `auto`");
    }
}
