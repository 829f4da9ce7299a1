//! The demo's job and the sandbox as a program of its own: the script, the inventory, the text for the person who started it.
//!
//! Uses the sandbox's own door. Knows nothing of how the job is run.
#![expect(clippy::disallowed_methods, reason = "it writes the demo's files")]

use tokio::signal::unix::{SignalKind, signal};

use super::{Sandbox, SandboxError, Scenario, io_error};

const TRAIN: &str = include_str!("../../assets/demo/train.sh");
const INVENTORY: &str = include_str!("../../assets/demo/inventory.yaml");

impl Scenario {
    /// The demo's: 4 hosts with 8 GPUs each and the demo's image.
    pub fn demo() -> Self {
        Scenario::with_hosts(4)
    }
}

impl Sandbox {
    /// Writes the demo's script into the sandbox and returns the inventory that runs it; the text also lies in `demo/inventory.yaml`.
    pub fn demo_inventory(&self) -> Result<String, SandboxError> {
        let folder = self.dir().join("demo");
        let text = self.inventory_yaml("demo", &INVENTORY.replace("@DEMO@", &folder.display().to_string()));
        let write = || {
            std::fs::create_dir_all(&folder)?;
            std::fs::write(folder.join("train.sh"), TRAIN)?;
            std::fs::write(folder.join("inventory.yaml"), &text)
        };
        write().map_err(io_error("write the demo's files"))?;
        Ok(text)
    }

    /// What a person needs to use this sandbox from another terminal.
    pub fn describe(&self) -> String {
        let dir = self.dir().display();
        let first = self.host_name(0).unwrap_or_default();
        let root = self.host_root(0).map(|root| root.display().to_string()).unwrap_or_default();
        let (hosts, them) = if self.len() == 1 { ("1 host", "it") } else { (&*format!("{} hosts", self.len()), "them") };
        format!(
            "{hosts} on 127.0.0.1; to use {them}:\n  orchestrate up {dir}/demo/inventory.yaml\n  orchestrate exec {dir}/inventory.yaml -- hostname\n  \
             ssh -F {dir}/ssh_config {first}\nfaults of a host can be changed in {root}/faults.json\nCtrl-C ends the sandbox and everything in it\n"
        )
    }

    /// Waits for Ctrl-C or TERM, then stops.
    pub async fn until_stopped(self) -> Result<(), SandboxError> {
        let mut stop = signal(SignalKind::terminate()).map_err(io_error("listen for TERM"))?;
        tokio::select! {
            _ = stop.recv() => {}
            told = tokio::signal::ctrl_c() => told.map_err(io_error("listen for Ctrl-C"))?,
        }
        self.stop().await
    }
}
