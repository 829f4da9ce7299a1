//! What only the inside can show: the programs that the job needs, a write into the run directory, the GPUs that are really given.

use std::time::Duration;

use crate::inventory::yaml_pairs;
use crate::model::remote_command::{CommandOutput, RemoteCommand};
use crate::plan::action::{ActionResult, Issue};
use crate::plan::host_context::HostContext;
use crate::plan::launcher::EnvironmentRequirements;
use crate::text::shell_quote::{join_quoted, quote};

/// Looks from where the ranks will run.
#[derive(Debug, Clone)]
pub struct CheckEnvironment {
    pub context: HostContext,
    /// What must be found.
    pub requirements: EnvironmentRequirements,
    /// Whether launch.setup comes first.
    pub has_setup: bool,
    /// How many GPUs must be seen; 0: not asked.
    pub min_gpus: u32,
    /// The working directory of the ranks, if configured.
    pub workdir: Option<String>,
}

impl CheckEnvironment {
    pub(super) fn command(&self) -> RemoteCommand {
        let run_dir = quote(&self.context.run_dir());
        let probe = quote(&format!("{}probe", self.context.run_file_prefix()));
        let mut inner = format!(": >{probe} && rm -f {probe} || echo unwritable\n");
        if let Some(dir) = &self.workdir {
            inner.push_str(&format!("[ -d {0} ] || echo workdir\n[ -d {0} ] && cd {0}\n", quote(dir)));
        }
        for need in &self.requirements.programs {
            inner.push_str(&format!("command -v {0} >/dev/null 2>&1 || echo lacks {0}\n", quote(need)));
        }
        if let Some(entry) = &self.requirements.entry_script {
            inner.push_str(&format!("[ -e {0} ] || echo \"entry $(pwd)\"\n", quote(entry)));
        }
        if let Some(config) = &self.requirements.accelerate_config {
            inner.push_str(&format!(
                "if [ -r {0} ]; then head -c 65536 {0} | sed 's/^/config /'; else echo noconfig; fi\n",
                quote(&config.path)
            ));
        }
        if let Some((flags, help)) = &self.requirements.flags_and_help {
            inner.push_str(&format!("h=$({} 2>&1)\ncase $h in *usage*)\n", join_quoted(help)));
            for flag in flags.iter().map(|flag| flag.split('=').next().unwrap_or_default()) {
                let dashes = format!("--{}", flag.trim_start_matches('-').replace('_', "-"));
                inner.push_str(&format!("case $h in *{}* | *{}*) ;; *) echo flag {} ;; esac\n", quote(flag), quote(&dashes), quote(flag)));
            }
            inner.push_str(";; esac\n");
        }
        if self.min_gpus > 0 {
            inner.push_str(
                "if command -v nvidia-smi >/dev/null 2>&1; then\n\
                 if command -v timeout >/dev/null 2>&1; then l=$(timeout 20 nvidia-smi -L 2>&1); else l=$(nvidia-smi -L 2>&1); fi\n\
                 echo gpus $(printf '%s\\n' \"$l\" | grep -c '^GPU ') $(printf '%s\\n' \"$l\" | grep -v '^GPU ' | head -n 1)\n\
                 else echo gpus unknown; fi\n",
            );
        }
        inner.push_str("echo looked\n");
        // As the ranks will be run: with their environment, through the image's ENTRYPOINT, after launch.setup.
        let setup = if self.has_setup { format!("set -- bash {run_dir}/with-setup \"$@\"\n") } else { String::new() };
        let outer = format!(
            "set -- /bin/sh -c {}\n{setup}if [ -r {run_dir}/entrypoint ]; then . {run_dir}/entrypoint; fi\n. {run_dir}/env\nexec \"$@\"\n",
            quote(&inner)
        );
        let script = format!("{}{}\n", self.context.script_preamble(), self.context.exec_script(&format!("-c {}", quote(&outer))));
        RemoteCommand::from_script("check the ranks' environment", script, Duration::from_secs(120))
    }

    pub(super) fn judge(&self, output: &CommandOutput) -> ActionResult {
        let text = output.stdout_text();
        let place = if self.context.in_container { "in the container" } else { "on the host" };
        if !text.lines().any(|l| l == "looked") {
            return ActionResult::failed(
                format!("could not look {place}: {}", output.error_line()),
                format!("`docker logs {}` on {} may show why it ended", self.context.container_name(), self.context.host),
            );
        }
        let issues = self.find_issues(&text, place);
        let message: Vec<&str> = issues.iter().map(|issue| issue.message.as_str()).collect();
        let mut hints: Vec<&str> = issues.iter().map(|issue| issue.hint.as_str()).collect();
        hints.dedup();
        match issues.as_slice() {
            [] => ActionResult::unchanged(gpu_note(&text)),
            _ => ActionResult::failed(message.join("; "), hints.join("; ")),
        }
    }

    fn find_issues(&self, text: &str, place: &str) -> Vec<Issue> {
        let mut issues = Vec::new();
        if text.lines().any(|l| l == "unwritable") {
            issues.push(Issue::new(
                format!("cannot write to the directory {} {place}", self.context.output_dir()),
                "set container.user to a user who may write there, or run_dir to a directory without root_squash",
            ));
        }
        // Without the working directory, what was found says nothing of the ranks.
        if text.lines().any(|l| l == "workdir") {
            let dir = self.workdir.clone().unwrap_or_default();
            issues.push(Issue::new(format!("no directory {dir} {place}"), "correct `workdir`, or mount the directory"));
            return issues;
        }
        issues.extend(self.missing_programs(text));
        issues.extend(self.missing_entry_script(text));
        issues.extend(self.accelerate_config_issue(text, place));
        let unknown: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("flag ")).collect();
        if !unknown.is_empty() {
            issues.push(Issue::new(
                format!("the torch {place} does not support {}", unknown.join(", ")),
                "remove it from launch.args, use rendezvous: static, or use a newer torch",
            ));
        }
        issues.extend(self.missing_gpus(text));
        issues
    }

    fn missing_programs(&self, text: &str) -> Option<Issue> {
        let missing: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("lacks ")).collect();
        let names = missing.join(", ");
        if missing.is_empty() {
            return None;
        }
        if self.context.in_container {
            return Some(Issue::new(format!("{names} not found in the container"), "use an image that contains it, or set PATH in `env`"));
        }
        // These start as `<launch.python> -m MODULE`, where that is set.
        let is_python_launcher = missing.iter().any(|name| ["torchrun", "accelerate", "deepspeed"].contains(name));
        Some(Issue::new(
            format!("{names} not found on the host"),
            match (self.has_setup, is_python_launcher) {
                (true, _) => "install it on the host, or add it to PATH in launch.setup",
                (false, true) => {
                    "install it on the host, set launch.python to the Python that has it, or activate its environment in launch.setup"
                }
                (false, false) => "install it on the host, use its full path, or activate its environment in launch.setup",
            },
        ))
    }

    fn missing_entry_script(&self, text: &str) -> Option<Issue> {
        let dir = text.lines().find_map(|l| l.strip_prefix("entry "))?;
        let entry = self.requirements.entry_script.as_ref()?;
        let hint = if self.context.in_container {
            "correct `command` or `workdir`, or mount its directory; a `sync` task of `prepare` copies files to the hosts"
        } else {
            "correct `command` or `workdir`; a `sync` task of `prepare` copies files to the hosts"
        };
        let message = match (self.context.in_container, entry.starts_with('/')) {
            (true, true) => format!("no file {entry} in the container"),
            (true, false) => format!("no file {entry} under {dir} in the container"),
            (false, true) => format!("no file {entry} on the host"),
            (false, false) => format!("no file {entry} under {dir} on the host"),
        };
        Some(Issue::new(message, hint))
    }

    fn accelerate_config_issue(&self, text: &str, place: &str) -> Option<Issue> {
        let config = self.requirements.accelerate_config.as_ref()?;
        if text.lines().any(|l| l == "noconfig") {
            let hint = "correct --config_file in launch.args, or mount the file";
            return Some(Issue::new(format!("accelerate's config file {} is missing {place}", config.path), hint));
        }
        let lines: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("config ")).collect();
        let found = config.find_contradictions(&yaml_pairs::read_yaml_pairs(&lines.join("\n")));
        let described: Vec<String> = found.iter().map(|(key, user_flags, ours)| format!("{key}: {user_flags} (here: {ours})")).collect();
        (!described.is_empty()).then(|| {
            Issue::new(
                format!("{} contradicts the inventory: {}", config.path, described.join(", ")),
                "correct the file, or remove these keys from it: the inventory sets them on the command line",
            )
        })
    }

    fn missing_gpus(&self, text: &str) -> Option<Issue> {
        let (count, complaint) = gpu_answer(text)?;
        let seen = count.parse::<u32>().ok().filter(|seen| *seen < self.min_gpus)?;
        let colon = if complaint.is_empty() { "" } else { ": " };
        Some(Issue::new(
            format!("{seen} of {} GPUs are visible inside{colon}{complaint}", self.min_gpus),
            "check `nvidia-smi -L` on the host and nvidia-container-toolkit, or lower launch.nproc_per_node",
        ))
    }
}

fn gpu_note(text: &str) -> String {
    match gpu_answer(text).map(|(count, _)| count.parse::<u32>()) {
        None => String::new(),
        Some(Ok(seen)) => format!("{seen} GPUs"),
        Some(Err(_)) => "no nvidia-smi inside: GPUs not counted".to_owned(),
    }
}

/// How many GPUs were counted, and what nvidia-smi said besides.
fn gpu_answer(text: &str) -> Option<(&str, &str)> {
    let line = text.lines().find_map(|l| l.strip_prefix("gpus "))?;
    Some(line.split_once(' ').unwrap_or((line, "")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_missing_is_reported_at_once() {
        let check = CheckEnvironment {
            context: HostContext::new("n", "gpu01", "/run"),
            requirements: EnvironmentRequirements { entry_script: Some("train.py".to_owned()), ..EnvironmentRequirements::default() },
            has_setup: true,
            min_gpus: 2,
            workdir: Some("/work".to_owned()),
        };
        let judged = |text: &str| match check.judge(&CommandOutput { stdout: text.as_bytes().to_vec(), ..CommandOutput::default() }) {
            ActionResult::Failed(issue) => format!("{}|{}", issue.message, issue.hint),
            result => format!("{result:?}"),
        };
        let all = judged("lacks torchrun\nentry /work\ngpus 1 \nlooked\n");
        let (messages, hints) = all.split_once('|').expect("a failure");
        assert_eq!(messages, "torchrun not found on the host; no file train.py under /work on the host; 1 of 2 GPUs are visible inside");
        assert_eq!(hints.split("; ").filter(|hint| !hint.starts_with("a `sync` task")).count(), 3, "{hints}");
        assert!(judged("workdir\nlacks torchrun\ngpus 1 \nlooked\n").starts_with("no directory /work on the host|"));
        assert!(judged("gpus 2 \nlooked\n").contains("2 GPUs"));
    }
}
