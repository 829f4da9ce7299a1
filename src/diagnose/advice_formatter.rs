//! Commands that a person is advised to type: complete, so that they can be pasted. The one place that writes them.
//!
//! Texts elsewhere say `orchestrate VERB …`; here they get what names the inventory, and `ssh HOST` what reaches the host.

use std::collections::BTreeMap;

use crate::text::shell_quote::quote;

/// The commands that take an inventory as their first word.
pub(crate) const POSITIONAL_INVENTORY_COMMANDS: [&str; 18] = [
    "up",
    "prepare",
    "tui",
    "down",
    "ps",
    "logs",
    "attach",
    "check",
    "plan",
    "render",
    "exec",
    "stacks",
    "slurm submit",
    "slurm status",
    "slurm logs",
    "slurm attach",
    "slurm cancel",
    "slurm down",
];
/// Those that take it by `-i` only.
const FLAG_INVENTORY_COMMANDS: [&str; 1] = ["shell"];
/// Those that launch, or show what a launch would do: they need every value of the inventory.
const LAUNCHING_COMMANDS: [&str; 7] = ["up", "prepare", "tui", "check", "plan", "render", "slurm submit"];
/// Those that have flags for tasks: `--tags`.
const TASK_COMMANDS: [&str; 2] = ["up", "prepare"];
/// Overrides of the ranks' environment: without effect on a run that was launched.
const RANK_ENVIRONMENT_PREFIX: &str = "env.";
/// What a command begins with.
const PROGRAM_PREFIX: &str = "orchestrate ";

/// What the commands for a cluster begin with.
const SLURM_PREFIX: &str = "slurm ";

/// What names the inventory of an operation and reaches its hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdviceFormatter {
    /// Inventory files, as words of a shell.
    inventory_files: Vec<String>,
    /// Further words that every command needs: `-F lab.conf`.
    common_flags: String,
    /// `KEY=VALUE` of each `--set`.
    overrides: Vec<String>,
    /// What follows `ssh` for each host.
    ssh_args_by_host: BTreeMap<String, String>,
    /// Whether the run is a job on SLURM: other commands are for it.
    is_slurm_job: bool,
    /// The hosts of `--limit`.
    limit: Option<String>,
    /// What selects the tasks of the operation: `--tags data`.
    task_flags: Vec<String>,
}

impl AdviceFormatter {
    /// Of these inventory files and flags; `hosts`: the words that reach each host by ssh.
    pub fn new(files: &[String], flags: &[String], hosts: BTreeMap<String, String>) -> AdviceFormatter {
        let flags = flags.iter().map(|flag| quote(flag)).collect::<Vec<_>>().join(" ");
        let inventory_files = files.iter().map(|file| quote(file)).collect();
        AdviceFormatter { inventory_files, common_flags: flags, ssh_args_by_host: hosts, ..AdviceFormatter::default() }
    }

    /// With the `KEY=VALUE` of each `--set`; a command gets those that matter to it.
    #[must_use]
    pub fn with_overrides(self, overrides: &[String]) -> AdviceFormatter {
        AdviceFormatter { overrides: overrides.to_vec(), ..self }
    }

    /// Of a command of `slurm`: where others say `down`, this says `slurm down`.
    #[must_use]
    pub(crate) fn for_slurm_job(self) -> AdviceFormatter {
        AdviceFormatter { is_slurm_job: true, ..self }
    }

    fn own_verb<'a>(&self, verb: &'a str) -> &'a str {
        match verb {
            "up" if self.is_slurm_job => "slurm submit",
            "ps" if self.is_slurm_job => "slurm status",
            "logs" if self.is_slurm_job => "slurm logs",
            "attach" if self.is_slurm_job => "slurm attach",
            "down" if self.is_slurm_job => "slurm down",
            _ => verb,
        }
    }

    /// `orchestrate logs train.yaml --rank 3`.
    pub fn format_command(&self, verb: &str, rest: &str) -> String {
        let verb = self.own_verb(verb);
        let inventory = self.inventory_args(verb);
        let words = [PROGRAM_PREFIX.trim_end(), verb, inventory.as_str(), rest];
        words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    }

    /// The words that follow `ssh` to reach a host.
    pub fn ssh_args(&self, host: &str) -> String {
        self.ssh_args_by_host.get(host).cloned().unwrap_or_else(|| quote(host))
    }

    /// For an operation with this `--limit` and these flags for tasks.
    #[must_use]
    pub(crate) fn with_selection(self, limit: Option<String>, task_flags: Vec<String>) -> AdviceFormatter {
        AdviceFormatter { limit, task_flags, ..self }
    }

    /// Whether the operation has a `--limit`.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// The command that does the same again: on the same hosts, with the same tasks.
    pub(crate) fn format_repetition(&self, verb: &str) -> String {
        let tasks = self.task_flags.iter().filter(|_| TASK_COMMANDS.contains(&verb)).map(|flag| quote(flag));
        self.format_run_command(verb, &tasks.collect::<Vec<_>>().join(" "))
    }

    /// A command about the run of the operation, on the hosts of its `--limit`.
    pub(crate) fn format_run_command(&self, verb: &str, rest: &str) -> String {
        let limit = self.limit.iter().map(|pattern| format!("--limit {}", quote(pattern)));
        let rest = (!rest.is_empty()).then(|| rest.to_owned());
        self.format_command(verb, &limit.chain(rest).collect::<Vec<_>>().join(" "))
    }

    /// A text in which every command is complete.
    pub fn complete_commands(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(PROGRAM_PREFIX) {
            let (before, after) = rest.split_at(at + PROGRAM_PREFIX.len());
            out.push_str(before);
            let word_end = |from: usize| after[from..].find(|c: char| !c.is_ascii_lowercase()).map_or(after.len(), |at| from + at);
            let end = if after.starts_with(SLURM_PREFIX) { word_end(SLURM_PREFIX.len()) } else { word_end(0) };
            let (verb, tail) = after.split_at(end);
            if let Some((nodes, command)) = (self.is_slurm_job && verb == "exec").then(|| split_exec(tail)).flatten() {
                out.truncate(out.len() - PROGRAM_PREFIX.len());
                out.push_str(&format!("srun {nodes}"));
                rest = command;
                continue;
            }
            let verb = self.own_verb(verb);
            let inventory = self.inventory_args(verb);
            let word = before[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '-' | '_' | '/' | '.'));
            out.push_str(verb);
            if word && !inventory.is_empty() && !tail.starts_with(&format!(" {inventory}")) {
                out.push(' ');
                out.push_str(&inventory);
            }
            rest = tail;
        }
        out.push_str(rest);
        out
    }

    /// The words after this command that name the inventory; none where it takes none.
    fn inventory_args(&self, verb: &str) -> String {
        let first = POSITIONAL_INVENTORY_COMMANDS.contains(&verb);
        if !first && !FLAG_INVENTORY_COMMANDS.contains(&verb) {
            return String::new();
        }
        let file = |(at, file): (usize, &String)| if at == 0 && first { file.clone() } else { format!("-i {file}") };
        let files = self.inventory_files.iter().enumerate().map(file);
        let matters = |set: &&String| LAUNCHING_COMMANDS.contains(&verb) || !set.starts_with(RANK_ENVIRONMENT_PREFIX);
        let overrides = self.overrides.iter().filter(matters).map(|set| format!("--set {}", quote(set)));
        files.chain((!self.common_flags.is_empty()).then(|| self.common_flags.clone())).chain(overrides).collect::<Vec<_>>().join(" ")
    }
}

/// What follows `orchestrate exec`: the nodes, as srun takes them, and the command.
fn split_exec(tail: &str) -> Option<(String, &str)> {
    let (options, command) = tail.split_once(" -- ")?;
    let nodes = options.rsplit_once("--limit ").map(|(_, nodes)| nodes);
    Some((nodes.map_or_else(String::new, |nodes| format!("-w {nodes} ")), command))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command_advice(files: &[&str], flags: &[&str]) -> AdviceFormatter {
        let text = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let hosts = BTreeMap::from([("lab2".to_owned(), "-p 2222 -i /k ops@10.0.0.2".to_owned())]);
        AdviceFormatter::new(&text(files), &text(flags), hosts)
    }

    #[test]
    fn completed_commands_name_the_inventory() {
        let one = command_advice(&["my runs/a.yaml"], &[]);
        assert_eq!(one.format_command("logs", "--rank 3"), "orchestrate logs 'my runs/a.yaml' --rank 3");
        assert_eq!(one.format_command("runs", ""), "orchestrate runs");
        let text = "`orchestrate exec -- ls`; orchestrate shell r3 -- env; myorchestrate ps; orchestrate runs; orchestrate ps";
        let complete = "`orchestrate exec 'my runs/a.yaml' -- ls`; orchestrate shell -i 'my runs/a.yaml' r3 -- env; myorchestrate ps; \
                        orchestrate runs; orchestrate ps 'my runs/a.yaml'";
        assert_eq!(one.complete_commands(text), complete);
        assert_eq!(one.complete_commands(complete), complete, "a second time changes nothing");
        let two = command_advice(&["a.yaml", "b.yaml"], &["-F", "lab.conf"]);
        assert_eq!(two.format_command("ps", ""), "orchestrate ps a.yaml -i b.yaml -F lab.conf");
        assert_eq!(two.format_command("shell", "0"), "orchestrate shell -i a.yaml -i b.yaml -F lab.conf 0");
        let overridden = one.with_overrides(&["env.STEPS=100".to_owned(), "ssh.user=li".to_owned()]);
        assert_eq!(overridden.format_command("up", ""), "orchestrate up 'my runs/a.yaml' --set env.STEPS=100 --set ssh.user=li");
        assert_eq!(overridden.format_command("down", ""), "orchestrate down 'my runs/a.yaml' --set ssh.user=li");
        let submit = command_advice(&["a.yaml"], &[]).for_slurm_job();
        assert_eq!(submit.format_command("down", ""), "orchestrate slurm down a.yaml");
        assert_eq!(
            submit.complete_commands("`orchestrate down`, `orchestrate slurm status`, orchestrate slurm"),
            "`orchestrate slurm down a.yaml`, `orchestrate slurm status a.yaml`, orchestrate slurm"
        );
        assert_eq!(submit.format_command("logs", "--rank 3"), "orchestrate slurm logs a.yaml --rank 3");
        let remedy = "`orchestrate exec --limit n[0-1] -- free -g`; orchestrate exec -- ls; `orchestrate ps`";
        assert_eq!(submit.complete_commands(remedy), "`srun -w n[0-1] free -g`; srun ls; `orchestrate slurm status a.yaml`");
        let none = AdviceFormatter::default();
        assert_eq!((none.complete_commands(text), none.ssh_args("lab 2")), (text.to_owned(), "'lab 2'".to_owned()));
        assert_eq!(overridden.ssh_args("lab2"), "-p 2222 -i /k ops@10.0.0.2");
    }

    #[test]
    fn repeated_command_has_the_same_hosts_and_tasks() {
        let whole = command_advice(&["a.yaml"], &[]);
        assert_eq!((whole.is_limited(), whole.format_repetition("up")), (false, "orchestrate up a.yaml".to_owned()));
        let tasks = ["--tags", "data", "--start-at", "get the data"].map(str::to_owned).to_vec();
        let part = whole.with_selection(Some("!gpu03".to_owned()), tasks);
        assert!(part.is_limited());
        let flags = "--limit '!gpu03' --tags data --start-at 'get the data'";
        assert_eq!(part.format_repetition("prepare"), format!("orchestrate prepare a.yaml {flags}"));
        assert_eq!(part.format_repetition("down"), "orchestrate down a.yaml --limit '!gpu03'");
        assert_eq!(part.format_run_command("logs", "-f"), "orchestrate logs a.yaml --limit '!gpu03' -f");
        assert_eq!(part.format_command("logs", ""), "orchestrate logs a.yaml", "perhaps of another run");
    }
}
