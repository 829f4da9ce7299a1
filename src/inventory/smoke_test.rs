//! The inventory of a smoke: the same hosts in the same containers with the same environment, and another thing to run.

use super::Inventory;
use super::validated::EvaluatedOnce;
use super::yaml_tree::{SourceLocation, YamlEntry, YamlKind, YamlNode};

/// The file name shown for locations in it.
const SOURCE_NAME: &str = "smoke";

/// What a smoke's own launch block says.
#[derive(Debug, Clone, Copy)]
pub struct SmokeTest<'a> {
    /// The command's words; `None` is a placeholder for the job's interpreter.
    pub command: &'a [Option<&'a str>],
    /// The rendezvous port; `None`: a free port of the master.
    pub port: Option<u16>,
    /// Processes a host; `None`: one a GPU.
    pub nproc: Option<u32>,
}

/// The name under which a smoke is on the hosts. No inventory can be called so.
pub(crate) fn smoke_test_name(of: &str) -> String {
    format!("{of}.smoke")
}

impl Inventory {
    /// This inventory's smoke. What is about the job alone is left out; so is every mount that would have to be made.
    #[must_use]
    pub fn smoke_test_inventory(&self, smoke: &SmokeTest<'_>) -> Inventory {
        let mut own = self.clone();
        own.name = smoke_test_name(&self.name);
        own.metrics.clear();
        own.merged.evaluated = EvaluatedOnce::default();
        let launch = launch_entry(self.merged.tree.get("launch"), smoke);
        if let YamlKind::Map(entries) = &mut own.merged.tree.kind {
            const KEPT_KEYS: [&str; 8] = ["name", "vars", "hosts", "master", "ssh", "run_dir", "container", "env"];
            entries.retain(|entry| KEPT_KEYS.contains(&entry.key.as_str()));
            entries.push(launch);
        }
        for member in std::iter::once(&mut own.merged.tree).chain(&mut own.merged.host_nodes) {
            let YamlKind::Map(entries) = &mut member.kind else { continue };
            entries.retain(|entry| entry.key != "workdir");
            entries.iter_mut().filter(|entry| entry.key == "container").for_each(|entry| remove_created_mounts(&mut entry.value));
        }
        own
    }
}

fn launch_entry(job: Option<&YamlNode>, smoke: &SmokeTest<'_>) -> YamlEntry {
    let source = SourceLocation::whole_file(SOURCE_NAME);
    let text = |text: &str| YamlNode::scalar(source.clone(), text, false);
    let number = |number: u32| YamlNode::scalar(source.clone(), number.to_string(), true);
    let of_job = |key: &str| job.and_then(|job| job.get(key)).cloned();
    let python = of_job("python").unwrap_or_else(|| text("python3"));
    let words = smoke.command.iter().map(|word| word.map_or_else(|| python.clone(), &text)).collect();
    let mut keys = vec![
        ("with", text("processes")),
        ("start", text("together")),
        ("gate", text("none")),
        ("stop_grace", text("5s")),
        ("master_port", smoke.port.map_or_else(|| text("auto"), |port| number(port.into()))),
        ("command", YamlNode { location: source.clone(), kind: YamlKind::List(words) }),
    ];
    keys.extend(smoke.nproc.map(|nproc| ("nproc_per_node", number(nproc))));
    // Where torch is on a bare host: a virtual environment, a module.
    keys.extend(of_job("setup").map(|lines| ("setup", lines)));
    let entry = |(key, value): (&str, YamlNode)| YamlEntry::new(key, source.child(key), value);
    entry(("launch", YamlNode::map(source.clone(), keys.into_iter().map(entry).collect())))
}

/// Leaves out the mounts whose source may have to be made.
fn remove_created_mounts(container: &mut YamlNode) {
    let YamlKind::Map(entries) = &mut container.kind else { return };
    for entry in entries.iter_mut().filter(|entry| entry.key == "mounts") {
        if let YamlKind::List(mounts) = &mut entry.value.kind {
            mounts.retain(|mount| mount.get("create").is_none());
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::inventory::{ContainerGpus, Inventory, InventorySource, LaunchCommand, Launcher, RuntimeValues};

    use super::SmokeTest;

    #[test]
    fn smoke_test_replaces_only_the_launch() {
        let text = "name: wan\nhosts: [{ name: a, workdir: /w, env: { NCCL_IB_HCA: mlx5_0 } }, b]\nworkdir: /none\nsecrets: [TOKEN]\n\
                    vars: { tag: v1 }\nconstraints: [world_size == 4]\nmetrics: { x: 'x=([0-9]+)' }\nteardown: never\n\
                    container:\n  image: \"img:{{ tag }}\"\n  gpus: [0, 1]\n  mounts: [/data:/data, { from: /o, to: /o, create: true }]\n\
                    env: { NCCL_DEBUG: INFO }\n\
                    launch: { with: torchrun, rendezvous: c10d, max_restarts: 2, nproc_per_node: 2, python: py, command: [train.py] }\n";
        let whole = Inventory::load(&[InventorySource { name: "i".to_owned(), text: text.to_owned() }], &[]).expect("an inventory");
        let smoke = whole.smoke_test_inventory(&SmokeTest { command: &[Some("sh"), None, Some("x")], port: Some(29501), nproc: Some(1) });
        assert_eq!((smoke.name.as_str(), smoke.hosts.len()), ("wan.smoke", 2));
        let job = smoke.job(&RuntimeValues::default()).expect("a job");
        assert_eq!(job.launch.launcher, Launcher::Processes);
        assert_eq!((job.nproc(0), job.launch.master_port, job.launch.max_restarts), (Some(1), Some(29501), 0));
        assert_eq!(job.hosts[0].command, LaunchCommand::Argv(["sh", "py", "x"].map(str::to_owned).to_vec()));
        assert_eq!((job.secret_names.len(), job.teardown), (0, crate::inventory::Teardown::Always));
        let host = &job.hosts[0];
        let container = host.container.as_ref().expect("a container");
        assert_eq!((container.image.as_str(), &container.gpus), ("img:v1", &ContainerGpus::List(vec![0, 1])));
        assert_eq!(container.mounts.iter().map(|m| m.target.as_str()).collect::<Vec<_>>(), ["/data"]);
        assert_eq!((host.workdir.as_deref(), host.env.len()), (None, 2));
        assert!(smoke.fingerprint_text(0).launch.contains("29501"));
    }
}
