//! The run directory with everything that a launch reads: made by the ssh user before the container starts, so that he can remove it.

use std::time::Duration;

use crate::plan::action::Verdict;
use crate::plan::launcher::Start;
use crate::plan::run::RunFile;
use crate::plan::site::{Site, file};
use crate::shell::{Command, Output, quote};

/// Writes a new run's directory and makes it the current one.
#[derive(Debug, Clone)]
pub struct Prepare {
    /// Where.
    pub site: Site,
    /// What the launcher and the workers are given.
    pub start: Start,
    /// What the run says of itself.
    pub run: RunFile,
    /// Seconds after which a keeper that saw no launcher ends.
    pub start_timeout: u64,
    /// Whether the container stays when the run has ended.
    pub keep: bool,
}

impl Prepare {
    pub(super) fn command(&self) -> Command {
        let site = &self.site;
        let dir = site.run_dir();
        let mut script = site.guard();
        script.push_str("umask 022\n");
        let quoted = quote(&dir);
        script.push_str(&format!("mkdir -p {quoted} && chmod 777 {quoted} || exit 73\n"));
        let mut add = |name: &str, text: &str| script.push_str(&file(&format!("{dir}/{name}"), text, "644"));
        add("lib", include_str!("../../../assets/lib.sh"));
        add("node", include_str!("../../../assets/node.sh"));
        add("worker", include_str!("../../../assets/worker.sh"));
        add("reap", include_str!("../../../assets/reap.sh"));
        add("env", &environment(&self.start));
        add("argv", &arguments(&self.start.argv));
        add("worker.argv", &arguments(&self.start.worker));
        if let Some(text) = &self.start.script {
            add("script", text);
        }
        let settings = format!("stop_grace={}\nstart_timeout={}\nfail_fast=1\nlease=0\n", self.run.stop_grace, self.start_timeout);
        add("settings", &settings);
        let json = serde_json::to_string_pretty(&self.run).unwrap_or_default();
        add("run.json", &format!("{json}\n"));
        script.push_str(&file(&format!("{}/keeper", site.dir()), include_str!("../../../assets/keeper.sh"), "644"));
        script.push_str(if self.keep { ": >\"$H/keep\"\n" } else { "rm -f \"$H/keep\"\n" });
        script.push_str(&file(&format!("{}/current", site.dir()), &format!("{}\n", site.run), "644"));
        Command::sh("write the run directory", script, Duration::from_secs(30))
    }

    pub(super) fn judge(&self, output: &Output) -> Verdict {
        if output.ok() {
            return Verdict::changed(self.site.run_dir());
        }
        let says = output.complaint();
        let hint = if says.contains("No space left") {
            format!("free space under {} on {}", self.site.base, self.site.host)
        } else {
            format!("check that {} can be written on {}, or set run_dir", self.site.base, self.site.host)
        };
        Verdict::failed(format!("could not write {}: {says}", self.site.run_dir()), hint)
    }
}

/// A file that makes the words the positional parameters of the shell that reads it.
fn arguments(words: &[String]) -> String {
    let mut text = "set --".to_owned();
    for word in words {
        text.push(' ');
        text.push_str(&quote(word));
    }
    text.push('\n');
    text
}

/// A file that exports the variables of the shell that reads it.
fn environment(start: &Start) -> String {
    start.env.iter().map(|(name, value)| format!("export {name}={}\n", quote(value))).collect()
}
