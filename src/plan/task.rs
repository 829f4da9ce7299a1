//! A task of `prepare` as one host runs it: its files in the run directory, and the same by hand.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::inventory::{PrepareTask, TaskCommand};
use crate::text::shell_quote::{quote, quote_home};

/// What one host runs for one task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostTask {
    /// Counts from 1 over all tasks of the inventory.
    pub number: u32,
    pub name: String,
    pub command: TaskCommand,
    /// Whether it runs in the container of the ranks; else on the bare host.
    pub in_container: bool,
    /// Whether its scripts run as root, through `sudo -n`.
    pub uses_sudo: bool,
    pub register: Option<String>,
    /// Whether its value is every host's.
    pub shares_value: bool,
    /// A regex: it changed something where its output matches.
    pub changed_pattern: Option<String>,
    pub timeout: Duration,
    pub retries: u32,
    pub delay: Duration,
    /// Variables of the run; the task's own win.
    pub run_env: BTreeMap<String, String>,
}

impl HostTask {
    /// The script of a host; `None`: the host takes no part, or the task is no script.
    pub(crate) fn new(task: &PrepareTask, host: usize, run_env: BTreeMap<String, String>) -> Option<HostTask> {
        let command = task.hosts.get(host).cloned().flatten().filter(|_| task.files.is_none())?;
        Some(HostTask {
            number: task.number,
            name: task.name.clone(),
            command,
            in_container: task.in_container,
            uses_sudo: task.uses_sudo,
            register: task.register.clone(),
            shares_value: task.shares_value,
            changed_pattern: task.changed_pattern.clone(),
            timeout: task.timeout,
            retries: task.retries,
            delay: task.delay,
            run_env,
        })
    }

    /// The base name of its files: `task-3`.
    pub(crate) fn base_name(&self) -> String {
        format!("task-{}", self.number)
    }

    /// How long each try may take.
    pub(crate) fn timeout_secs(&self) -> u64 {
        ceil_seconds(self.timeout)
    }

    /// How long it may take with all its tries.
    pub(crate) fn longest_time(&self) -> Duration {
        // A try that ignores TERM ends ten seconds after its timeout, and what it started ten seconds later; `unless` has a timeout too.
        let one = self.timeout + Duration::from_secs(25);
        let tries = one.saturating_mul(self.retries + 1).saturating_add((self.delay + Duration::from_secs(1)).saturating_mul(self.retries));
        if self.command.unless.is_some() { tries.saturating_add(one) } else { tries }
    }

    /// The files that `assets/task.sh` reads, by name.
    pub(crate) fn files(&self) -> BTreeMap<String, String> {
        let base = self.base_name();
        let TaskCommand { script, chdir, env, creates, unless } = &self.command;
        let mut settings =
            format!("timeout={} tries={} delay={}\n", self.timeout_secs(), self.retries + 1, ceil_seconds(self.delay).max(1));
        if self.uses_sudo {
            settings.push_str("become=sudo\n");
        }
        for (name, value) in [("dir", chdir), ("creates", creates), ("register", &self.register)] {
            if let Some(value) = value {
                settings.push_str(&format!("{name}={}\n", quote(value)));
            }
        }
        let exports = self.run_env.iter().chain(env).map(|(name, value)| format!("export {name}={}\n", quote(value))).collect();
        let run = format!("{}\n", script.trim_end());
        let mut files = BTreeMap::from([(format!("{base}.run"), run), (base.clone(), settings), (format!("{base}.env"), exports)]);
        if let Some(unless) = unless {
            files.insert(format!("{base}.unless"), format!("{}\n", unless.trim_end()));
        }
        files
    }

    /// The same by hand, as lines of sh: skipped where there is nothing to do, with its tries and its timeout.
    /// `on_failure` follows it: ` || exit 1`.
    pub(crate) fn manual_script(&self, on_failure: &str) -> String {
        let TaskCommand { script, chdir, env, creates, unless } = &self.command;
        let name = quote(&format!("task {}: {}", self.number, self.name));
        let mut text = format!("# task {}: {}\n", self.number, self.name);
        let mut body = String::new();
        if let Some(dir) = chdir {
            body.push_str(&format!("  cd -- {}\n", quote_home(dir, quote)));
        }
        for (variable, value) in env {
            body.push_str(&format!("  export {variable}={}\n", quote(value)));
        }
        let skip = |why: &str| format!("then echo {name}, skipped: {why} >&2; exit 0; fi\n");
        let sudo = if self.uses_sudo { "sudo -n -E " } else { "" };
        if let Some(pattern) = creates {
            let mut list = format!("ls -d -- {}", quote_home(pattern, quote_glob));
            if self.uses_sudo {
                list = format!("{sudo}sh -c {}", quote(&list));
            }
            body.push_str(&format!("  if {list} >/dev/null 2>&1; {}", skip("what it creates exists")));
        }
        if let Some(unless) = unless {
            body.push_str(&format!("  if {sudo}bash -c {} >/dev/null 2>&1; {}", quote(unless.trim_end()), skip("unless succeeded")));
        }
        let run = format!("{sudo}timeout -k 10 {} bash -c {}", self.timeout_secs(), quote(script.trim_end()));
        if self.retries == 0 {
            body.push_str(&format!("  {run}\n"));
        } else {
            let delay = ceil_seconds(self.delay).max(1);
            body.push_str(&format!(
                "  tries=1\n  until {run}; do\n    [ \"$tries\" -le {} ] || exit 1\n    tries=$((tries + 1))\n    sleep {delay}\n  done\n",
                self.retries
            ));
        }
        text.push_str(&match &self.register {
            Some(variable) => format!("{variable}=$(\n{body}){on_failure}\nexport {variable}\n"),
            None => format!("(\n{body}){on_failure}\n"),
        });
        text
    }
}

/// Whole seconds, at least as long.
fn ceil_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// A pattern for a shell: only its wildcards stay special.
fn quote_glob(pattern: &str) -> String {
    let mut text = String::new();
    for c in pattern.chars() {
        if c.is_ascii() && !c.is_ascii_alphanumeric() && !"*?[]_@%+=:,./-".contains(c) {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_keep_only_their_wildcards() {
        assert_eq!(quote_home("~/a b/$(x)*.[wW]hl", quote_glob), "\"$HOME\"/a\\ b/\\$\\(x\\)*.[wW]hl");
        assert_eq!(quote_home("~", quote), "\"$HOME\"");
    }
}
