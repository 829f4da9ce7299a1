//! Lints: mistakes that are not errors, but have cost people runs. Each has a name, a severity that the inventory and `--deny` change, a reason and a fix.
//!
//! The table is the only list of names; the lints themselves are in `shell_lints` (scripts), `env_lints` (variables), `slurm_lints` and `settings_lints` (the rest). Where a
//! trap of the guides is impossible here (flags typed twice, ids made on each host, waiting by the clock) there is no lint.

mod context;
mod env_lints;
mod settings_lints;
mod shell_lints;
mod slurm_lints;
mod task_lints;

#[cfg(test)]
mod tests;

use self::context::LintContext;
use super::errors::InventoryErrors;
use super::eval::Evaluator;
use super::schema::suggest;
use super::yaml_tree::{SourceLocation, YamlKind, YamlNode, shorten};
use super::{Inventory, InventoryProblem, Job, RuntimeValues};

/// How much is made of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LintSeverity {
    /// It is not reported.
    Allow,
    Warn,
    /// It is an error.
    Deny,
}

use LintSeverity::{Allow, Deny, Warn};

const SEVERITIES: [(&str, LintSeverity); 3] = [("allow", Allow), ("warn", Warn), ("deny", Deny)];

/// Every lint with the severity that it has by default, sorted by name.
pub(crate) const LINTS: [(&str, LintSeverity); 50] = [
    ("background-command", Warn),
    ("blocking-wait", Warn),
    ("c10d-node-rank", Warn),
    ("container-path", Warn),
    ("count-with-grep", Warn),
    ("cuda-arch-list", Warn),
    ("cuda-visible-devices", Warn),
    ("date-per-host", Warn),
    ("deepspeed-pdsh", Warn),
    ("device-ordinal", Deny),
    ("gloo-ifname-syntax", Deny),
    ("hard-coded-rank", Warn),
    ("host-access", Warn),
    ("hostname-ip", Warn),
    ("idle-command", Warn),
    ("ipc-host", Warn),
    ("jax-devices-by-hand", Warn),
    ("master-loopback", Deny),
    ("master-name", Warn),
    ("max-restarts-static", Warn),
    ("nccl-debug-stdout", Warn),
    ("nccl-diagnosis-left", Warn),
    ("network-not-host", Warn),
    ("no-errexit", Warn),
    ("no-gate", Warn),
    ("pip-without-unless", Warn),
    ("processes-by-hand", Warn),
    ("proxy-without-no-proxy", Warn),
    ("rdzv-id-date", Warn),
    ("redirected-output", Warn),
    ("relative-path", Warn),
    ("renamed-variable", Warn),
    ("sbatch-in-script", Warn),
    ("short-grace", Allow),
    ("slurm-env", Warn),
    ("slurm-export-list", Warn),
    ("slurm-gpus-total", Warn),
    ("slurm-nproc", Warn),
    ("slurm-ntasks", Deny),
    ("small-shm", Warn),
    ("tail-many", Warn),
    ("torch-distributed-launch", Warn),
    ("torchrun-dashes", Warn),
    ("undefined-port", Allow),
    ("unexpanded-word", Warn),
    ("unexported-assignment", Warn),
    ("unpinned-image", Warn),
    ("unquoted-glob", Warn),
    ("world-size-meaning", Warn),
    ("xla-mem-fraction", Warn),
];

/// What a lint found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LintFinding {
    pub lint: &'static str,
    /// What is made of it.
    pub severity: LintSeverity,
    /// Where, why, and the fix.
    pub problem: InventoryProblem,
}

/// Compares the names under `lints` with the table.
pub(super) fn check_keys(tree: &YamlNode, errors: &mut InventoryErrors) {
    let Some(node) = tree.get("lints") else { return };
    if !matches!(node.kind, YamlKind::Map(_)) {
        errors.report(&node.location, format!("expected a mapping, found {}", node.describe()), "for example { rdzv-id-date: deny }");
    }
    for entry in node.entries() {
        if LINTS.iter().all(|(name, _)| *name != entry.key) {
            errors.report(&entry.location, format!("unknown lint `{}`", shorten(&entry.key)), suggest_lint_name(&entry.key));
        }
        errors.read_choice(&entry.value, &SEVERITIES);
    }
}

fn suggest_lint_name(name: &str) -> String {
    suggest(name, LINTS.iter().map(|(name, _)| *name), "a finding says its lint's name in brackets")
}

impl Inventory {
    /// What the lints find, in the order of the files; allowed lints are left out. `deny`: names that are errors, `warnings` for all that
    /// would be reported.
    ///
    /// # Errors
    /// The inventory has no job, or a name in `deny` is no lint's.
    pub fn run_lints(&self, deny: &[String]) -> Result<Vec<LintFinding>, Vec<InventoryProblem>> {
        let unknown = deny.iter().filter(|name| *name != "warnings" && LINTS.iter().all(|(lint, _)| lint != name));
        let unknown: Vec<InventoryProblem> = unknown
            .map(|name| SourceLocation::whole_file("--deny").problem(format!("unknown lint `{}`", shorten(name)), suggest_lint_name(name)))
            .collect();
        if !unknown.is_empty() {
            return Err(unknown);
        }
        let severity = |lint: &str| {
            let table = LINTS.iter().find(|(name, _)| *name == lint).map_or(Warn, |(_, severity)| *severity);
            let own =
                self.merged.tree.get_path(&["lints", lint]).and_then(|node| InventoryErrors::default().read_choice(node, &SEVERITIES));
            let severity = own.unwrap_or(table);
            let denied = deny.iter().any(|name| name == lint) || (severity == Warn && deny.iter().any(|name| name == "warnings"));
            if denied { Deny } else { severity }
        };
        let mut found: Vec<LintFinding> = self
            .run_all_lints()?
            .into_iter()
            .map(|(lint, problem)| LintFinding { lint, severity: severity(lint), problem })
            .filter(|finding| finding.severity > Allow)
            .collect();
        found.sort_by(|a, b| (&a.problem, a.lint).cmp(&(&b.problem, b.lint)));
        found.dedup();
        Ok(found)
    }

    fn run_all_lints(&self) -> Result<Vec<(&'static str, InventoryProblem)>, Vec<InventoryProblem>> {
        if self.hosts.is_empty() && self.slurm.is_some() {
            let view = self.slurm_view();
            let values = view.slurm_values();
            return Ok(view.find_lints(&view.job(&values)?, &values));
        }
        Ok(self.find_lints(self.draft()?, &RuntimeValues::default()))
    }

    fn find_lints(&self, job: &Job, runtime: &RuntimeValues) -> Vec<(&'static str, InventoryProblem)> {
        let scope = Evaluator::new(self.eval_inputs(runtime));
        let mut look = LintContext {
            evaluator: &scope,
            job,
            tree: &self.merged.tree,
            host_nodes: &self.merged.host_nodes,
            run_dir: &self.run_dir,
            host_count: self.hosts.len(),
            slurm_gpus: self.slurm.as_ref().map(|slurm| slurm.gpus_per_node),
            findings: Vec::new(),
        };
        shell_lints::lint_launch_text(&mut look);
        env_lints::lint_env(&mut look);
        settings_lints::lint_settings(&mut look);
        task_lints::lint_tasks(&mut look);
        slurm_lints::lint_slurm(&mut look);
        look.findings
    }
}
