//! The dashboard with a real torchrun job: ranks, hosts, GPUs (of the nvidia-smi stand-in) and loss; a killed rank is first in the list
//! of problems, with its last lines.

use std::collections::BTreeMap;
use std::path::Path;

use crate::laptop::{Laptop, path_str};
use crate::support::{Cluster, JobSpec};
use crate::terminal::PtyTerminal;

/// Kills rank 3 itself, not its wrapper.
const KILL_RANK_3: &str =
    "for p in $(pgrep python3); do if tr '\\0' '\\n' <\"/proc/$p/environ\" | grep -qx RANK=3; then kill -9 \"$p\"; fi; done";

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn dashboard_lists_killed_rank_first() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let mut job = JobSpec::torch("screen").with_command(&["/mnt/train.py"]);
    job.env.push_str("STEPS: \"100000\"\nPACE: \"0.2\"\n");
    let file = cluster.write_inventory(&laptop, &job);
    let text = |path: &Path| path.display().to_string();
    let variables: BTreeMap<String, String> =
        [("HOME", text(laptop.home())), ("XDG_STATE_HOME", text(&laptop.home().join("state"))), ("USER", "tester".to_owned())]
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
    let program = Path::new(env!("CARGO_BIN_EXE_orchestrate"));
    let mut terminal = PtyTerminal::start(program, &["tui", path_str(&file)], laptop.home(), &variables, (120, 40));
    terminal.wait_for_text("PLAN");
    terminal.press("U");
    terminal.wait_for_text("START screen");
    terminal.press("\r");
    terminal.wait_for_text("RUNNING");
    terminal.wait_for_text("2 hosts  4/4 ranks");
    // Every rank trains and is listed with its host.
    terminal.press("3");
    let ranks = |screen: &str| {
        (0..4).all(|rank| {
            let host = if rank < 2 { "gpu01" } else { "gpu02" };
            screen.lines().any(|line| line.contains(host) && line.contains(&format!("rank {rank} step ")))
        })
    };
    terminal.wait_until("every rank beside its host", ranks);
    terminal.press("1");
    let trains = |screen: &str| {
        let loss = screen.lines().find_map(|line| line.split_once("training").and_then(|(_, rest)| rest.split_once(" loss ")));
        let curve = loss.is_some_and(|(_, rest)| rest.chars().filter(|c| ('\u{2581}'..='\u{2588}').contains(c)).count() >= 3);
        curve && ["gpu01", "gpu02"].iter().all(|host| screen.contains(host))
    };
    terminal.wait_until("both hosts and the curve of the loss", trains);
    terminal.press("5");
    let gpus = |screen: &str| screen.contains("UTIL, %") && ["gpu01 g", "/700W"].iter().all(|words| screen.contains(words));
    terminal.wait_until("the GPUs", gpus);
    cluster.exec_on("gpu02", KILL_RANK_3);
    terminal.press("7");
    // The first problem is the killed rank, followed by its last lines.
    terminal.wait_until("the killed rank first, and its last lines as evidence", |screen| {
        let first = screen.lines().nth(2).unwrap_or("");
        first.contains("rank 3 on gpu02")
            && first.contains("signal 9")
            && ["killed", "rank 3 step "].iter().all(|text| screen.contains(text))
    });
    terminal.wait_for_text("FAILED");
    terminal.press("Q");
    assert_eq!(terminal.wait_for_exit(), 1, "{}", terminal.screen_text());
    terminal.assert_restored();
}
