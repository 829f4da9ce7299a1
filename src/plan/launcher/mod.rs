//! The command line of each launcher, one launcher a file, with its flags, the workers' command, what its environment means, what its exit status
//! means and how it is stopped.
//!
//! A launcher's own flags are built here and typed nowhere else. Every launcher but `processes` starts its workers as `/bin/sh <run
//! dir>/worker`, which gives each its own log, pid and exit status; `processes` does so itself.

mod accelerate;
mod accelerate_config;
mod builder;
mod deepspeed;
mod processes;
mod script;
mod spec;
mod torchrun;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub(crate) use self::builder::LaunchSpecBuilder;
use self::builder::env_map;
pub(crate) use self::spec::{EnvironmentRequirements, HostLaunchSpec, ManualLaunch, RankEnv};
use crate::inventory::{EntrypointMode, InventoryHost, LaunchCommand, Launcher};
use crate::plan::rank_layout::RankLayout;

/// Builds the start of one host of the gang.
pub(crate) fn build_launch_spec(here: &LaunchSpecBuilder<'_>) -> HostLaunchSpec {
    let LaunchSpecBuilder { job, layout: world, hosts, .. } = *here;
    let part = job.hosts.get(here.node_rank);
    let mut start = match job.launch.launcher {
        Launcher::Torchrun(rendezvous) => torchrun::torchrun_spec(here, rendezvous),
        Launcher::Accelerate => accelerate::accelerate_spec(here),
        Launcher::Deepspeed(form) => deepspeed::deepspeed_spec(here, form),
        Launcher::Processes => processes::processes_spec(here),
        Launcher::Script => script::script_spec(here),
    };
    let mut env = common_env(here);
    env.append(&mut start.env);
    if let Some(part) = part {
        env.extend(part.env.clone());
    }
    // In a container `--gpus` decides; on a bare host only this keeps a run on the GPUs that it may use.
    if let Some(gpus) = here.listed_gpus() {
        env.entry("CUDA_VISIBLE_DEVICES".to_owned()).or_insert_with(|| gpus.join(","));
    }
    start.env = env;
    start.env_defaults = interface_env(here);
    start.files.insert("hostfile".to_owned(), hostfile_text(world, hosts));
    if let LaunchCommand::Shell(text) = here.payload() {
        start.files.insert("script".to_owned(), text.clone());
    }
    start.use_entrypoint = part.and_then(|p| p.container.as_ref()).is_some_and(|c| c.entrypoint == EntrypointMode::Image);
    if let Some(lines) = &job.launch.setup {
        start.files.insert("setup".to_owned(), format!("{}\n", lines.trim_end()));
        start.files.insert("with-setup".to_owned(), include_str!("../../../assets/setup.sh").to_owned());
        let wrapped = match job.launch.launcher {
            Launcher::Processes | Launcher::Script => &mut start.worker_argv,
            _ => &mut start.argv,
        };
        wrapped.splice(0..0, ["bash".to_owned(), here.run_dir_path("with-setup")]);
        start.requirements.programs.insert(0, "bash".to_owned());
    }
    start
}

/// The variables with one meaning under every launcher, unlike `WORLD_SIZE`.
fn common_env(builder: &LaunchSpecBuilder<'_>) -> BTreeMap<String, String> {
    let LaunchSpecBuilder { job, layout: world, context: site, node_rank: host, hosts, facts } = *builder;
    env_map([
        ("ORCH_RUN_ID", site.run_id.clone()),
        ("ORCH_NAME", site.name.clone()),
        ("ORCH_RUN_DIR", site.run_dir()),
        ("ORCH_HOST", site.host.clone()),
        ("ORCH_HOSTS", world.node_text("ORCH_HOSTS", hosts.iter().map(|h| h.name.as_str()).collect::<Vec<_>>().join(","))),
        ("ORCH_HOSTFILE", builder.run_dir_path("hostfile")),
        ("ORCH_NNODES", world.fabric_addresses.len().to_string()),
        ("ORCH_NODE_RANK", builder.node_rank_text()),
        ("ORCH_GPUS_PER_NODE", world.nproc_text(host)),
        ("ORCH_WORLD_SIZE", world.process_count_text()),
        ("ORCH_MASTER_ADDR", world.master_address().to_owned()),
        ("ORCH_MASTER_PORT", world.port_text()),
        (
            "ORCH_WORKDIR",
            job.hosts
                .get(host)
                .and_then(|h| h.workdir.as_deref())
                .map_or_else(String::new, |dir| expand_home(dir, facts.map_or("~", |facts| &facts.home))),
        ),
        // Else the log of a Python rank stays empty for minutes (mission.md 5.7).
        ("PYTHONUNBUFFERED", "1".to_owned()),
    ])
}

/// A path of the host with the ssh user's home written out.
pub(crate) fn expand_home(path: &str, home: &str) -> String {
    match path.strip_prefix("~/") {
        Some(rest) => format!("{home}/{rest}"),
        None if path == "~" => home.to_owned(),
        None => path.to_owned(),
    }
}

/// The hosts in DeepSpeed's form: names are labels, the order is the node rank.
fn hostfile_text(layout: &RankLayout, hosts: &[InventoryHost]) -> String {
    hosts.iter().enumerate().map(|(index, h)| format!("{} slots={}\n", h.name, layout.nproc_text(index))).collect()
}

/// The network interface that has the address under which the others know this host. NCCL takes a list of prefixes, and `=` for an exact name;
/// gloo takes a name (mission.md 5.9). Only where the ranks see the host's own interfaces.
fn interface_env(builder: &LaunchSpecBuilder<'_>) -> BTreeMap<String, String> {
    let part = builder.job.hosts.get(builder.node_rank);
    let container = part.and_then(|p| p.container.as_ref());
    let network = container.is_none_or(|c| c.network == "host");
    let address = builder.layout.fabric_addresses.get(builder.node_rank);
    let interface = address.zip(builder.facts).and_then(|(address, facts)| facts.interface_for(address));
    let (true, Some(interface)) = (network && builder.layout.fabric_addresses.len() > 1, interface) else { return BTreeMap::new() };
    let given = |name: &str| part.is_some_and(|p| p.env.contains_key(name)) || container.is_some_and(|c| c.env.contains_key(name));
    let both = [("NCCL_SOCKET_IFNAME", format!("={interface}")), ("GLOO_SOCKET_IFNAME", interface.to_owned())];
    both.into_iter().filter(|(name, _)| !given(name)).map(|(name, value)| (name.to_owned(), value)).collect()
}
