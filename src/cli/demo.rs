#![expect(clippy::disallowed_methods, reason = "the demo writes its script and inventory into the sandbox's directory")]
//! `demo`: a complete job on an embedded cluster of 4 hosts × 8 GPUs: real SSH, real shells, simulated docker, torchrun and nvidia-smi. On a
//! terminal it opens the dashboard and takes a minute instead of 20 seconds.

use std::path::PathBuf;

use anyhow::Context as _;

use crate::cli::args::{CommonArgs, DashboardArgs, DemoArgs, ProgressMode, UpArgs};
use crate::cli::exit::CliError;
use crate::cli::local_env::{dashboard_settings, print_stderr};
use crate::event::Outcome;
use crate::inventory::{Inventory, InventorySource};
use crate::lifecycle::launch_request::LaunchMode;
use crate::sandbox::{Faults, HostSpec, ImageSpec, Sandbox, Scenario};

pub(crate) async fn run(args: &DemoArgs) -> Result<Outcome, CliError> {
    print_stderr("demo: 4 hosts with 8 GPUs each on this machine; SSH and shells are real, docker, torchrun and nvidia-smi are simulated");
    let progress = match args.progress {
        ProgressMode::Auto if dashboard_settings(&DashboardArgs::default(), args.color, Vec::new()).is_ok() => ProgressMode::Tui,
        other => other,
    };
    let sandbox = Sandbox::start(demo_scenario(progress == ProgressMode::Tui)).await.context("could not start the sandbox")?;
    let script = DemoScript { on_dashboard: progress == ProgressMode::Tui, fails: args.fail };
    let (file, text) = script.write_files(&sandbox).context("could not write the demo's files")?;
    print_stderr(&format!("demo: orchestrate up {}", file.display()));
    let source = InventorySource { name: file.display().to_string(), text };
    let inventory = Inventory::load(&[source], &[])?;
    let common = CommonArgs { inventory: Some(file.clone()), ..CommonArgs::with_output(progress, args.color) };
    let up = UpArgs::for_command(LaunchMode::Demo, common);
    let outcome = super::up::run_with_inventory(&up, inventory, file.parent().map_or_else(PathBuf::new, PathBuf::from)).await;
    let stopped = sandbox.stop().await;
    let outcome = outcome?;
    stopped.context("could not stop the sandbox cleanly")?;
    if outcome == Outcome::Detached {
        print_stderr("demo: the simulated hosts have stopped, and the run with them");
    }
    if matches!(outcome, Outcome::Ok | Outcome::Failed) {
        print_stderr(
            "demo: the simulated hosts and demo.yaml are gone; the commands above that name it are examples. `orchestrate runs` lists this run, `orchestrate replay RUN` shows it again. For your own hosts start from configs/two-hosts.yaml",
        );
    }
    Ok(outcome)
}

/// Hosts that have no image yet and pull it, each at its own pace.
fn demo_scenario(on_dashboard: bool) -> Scenario {
    let image = "demo/train:1".to_owned();
    let mut scenario = Scenario::with_hosts(4);
    let slowness = if on_dashboard { 4.0 } else { 1.0 };
    for (host, delay) in scenario.hosts.iter_mut().zip([1.0, 0.9, 1.2, 1.1]) {
        let faults = Faults { pull_delay: delay * slowness, ..Faults::default() };
        *host = HostSpec { faults: Some(faults), ..host.clone() };
    }
    scenario.image_details.insert(image.clone(), ImageSpec { layers: 12, ..ImageSpec::default() });
    Scenario { images: Vec::new(), registry: vec![image], ..scenario }
}

/// What the simulated job does.
#[derive(Clone, Copy)]
struct DemoScript {
    /// A minute of training instead of 20 seconds.
    on_dashboard: bool,
    /// A rank fails after a third of the steps.
    fails: bool,
}

impl DemoScript {
    /// Writes the inventory and the job's script into the sandbox's directory. Gives the inventory's path and text.
    fn write_files(self, sandbox: &Sandbox) -> std::io::Result<(PathBuf, String)> {
        let dir = sandbox.dir().join("demo");
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join("train.sh"), include_str!("../../assets/demo/train.sh"))?;
        // All hosts of the sandbox share this machine's ports, so the port has to be free here.
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let steps = if self.on_dashboard { 60 } else { 18 };
        let failure = if self.fails { format!(", FAIL_RANK: \"13\", FAIL_STEP: \"{}\"", steps / 3) } else { String::new() };
        let extra = include_str!("../../assets/demo/inventory.yaml")
            .replace("STEPS: \"18\"", &format!("STEPS: \"{steps}\"{failure}"))
            .replace("@DEMO@", &dir.display().to_string())
            .replace("master_port: auto", &format!("master_port: {port}"));
        let text = sandbox.inventory_yaml("demo", &extra);
        let file = dir.join("demo.yaml");
        std::fs::write(&file, &text)?;
        Ok((file, text))
    }
}
