//! What a host knows of a run that failed there: docker's word on the container, the kernel's log, full disks.
//!
//! Uses `shell` and `plan`. The lines are described in `assets/aftermath.sh`.

use std::time::Duration;

use crate::plan::site::{READ, Site};
use crate::shell::{Command, quote};

/// How long a host is waited for.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The most lines of a host.
const LINES: usize = 60;

/// Asks a host.
pub fn command(site: &Site) -> Command {
    let mut script = format!(
        "{}F={}\ncontainer=\ninit=\nboot=\n{{ read -r boot <{}; }} 2>/dev/null\n",
        site.preamble(),
        quote(&site.run_files()),
        quote(&site.boot_file())
    );
    if site.contained {
        script.push_str(&format!("container={}\n{{ read -r init _ <\"$P/container.pid\"; }} 2>/dev/null\n", quote(&site.container())));
    }
    script.push_str(READ);
    script.push_str(include_str!("../../assets/aftermath.sh"));
    Command::sh("ask what the host knows of the failure", script, PATIENCE).keeping(64 << 10)
}

/// The lines of an answer.
pub fn read(text: &str) -> Vec<String> {
    text.lines().filter(|line| !line.trim().is_empty()).take(LINES).map(str::to_owned).collect()
}
