//! Lints: what is no error, but has cost people runs. Each has a name, a severity that the inventory and `--deny` change, a reason and a fix.
//!
//! Uses scopes and jobs. The table is the only list of names; what each looks for stands in `text` (scripts), `env` (variables) and `shape`
//! (the rest). Where a trap of the guides is impossible here (flags typed twice, ids made on each host, waiting by the clock) there is no lint.

mod env;
mod shape;
mod text;

#[cfg(test)]
mod tests;

use super::check::Check;
use super::schema::nearest;
use super::scope::{Facts, Scope};
use super::tree::{Kind, Node, Place, shorten};
use super::{Inventory, Job, Known, Problem};

/// How much is made of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It is not told.
    Allow,
    /// It is told.
    Warn,
    /// It is an error.
    Deny,
}

use Severity::{Allow, Deny, Warn};

/// Every lint with the severity that it has where nobody changed it, in the order of its name.
pub const LINTS: [(&str, Severity); 42] = [
    ("background-command", Warn),
    ("blocking-wait", Warn),
    ("c10d-node-rank", Warn),
    ("count-with-grep", Warn),
    ("cuda-arch-list", Warn),
    ("cuda-visible-devices", Warn),
    ("date-per-host", Warn),
    ("deepspeed-pdsh", Warn),
    ("device-ordinal", Deny),
    ("gloo-ifname-syntax", Deny),
    ("hard-coded-rank", Warn),
    ("host-access", Warn),
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
    ("processes-by-hand", Warn),
    ("proxy-without-no-proxy", Warn),
    ("rdzv-id-date", Warn),
    ("redirected-output", Warn),
    ("renamed-variable", Warn),
    ("sbatch-in-script", Warn),
    ("short-grace", Allow),
    ("slurm-env", Warn),
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
pub struct Finding {
    /// Its name.
    pub lint: &'static str,
    /// What is made of it.
    pub severity: Severity,
    /// Where, why, and the fix.
    pub problem: Problem,
}

/// What the lints look at.
struct Look<'a> {
    scope: &'a Scope<'a>,
    job: &'a Job,
    tree: &'a Node,
    members: &'a [Node],
    with: String,
    hosts: usize,
    found: Vec<(&'static str, Problem)>,
}

impl Look<'_> {
    fn find(&mut self, lint: &'static str, place: &Place, says: impl Into<String>, hint: impl Into<String>) {
        let says = format!("{} [{lint}]", says.into());
        self.found.push((lint, place.problem(says, hint)));
    }

    /// Whether several launchers of torch's kind wait for each other.
    fn meets(&self) -> bool {
        self.hosts > 1 && matches!(self.with.as_str(), "torchrun" | "accelerate" | "deepspeed" | "processes")
    }
}

/// Compares the names under `lints` with the table.
pub(super) fn keys(tree: &Node, check: &mut Check) {
    let Some(node) = tree.get("lints") else { return };
    if !matches!(node.kind, Kind::Map(_)) {
        check.wrong(&node.place, format!("{} where a mapping is expected", node.what()), "write it like { rdzv-id-date: deny }");
    }
    for entry in node.entries() {
        if LINTS.iter().all(|(name, _)| *name != entry.key) {
            check.wrong(&entry.place, format!("there is no lint `{}`", shorten(&entry.key)), meant(&entry.key));
        }
        check.word(&entry.value, &[("allow", Allow), ("warn", Warn), ("deny", Deny)]);
    }
}

fn meant(name: &str) -> String {
    match nearest(name, LINTS.iter().map(|(name, _)| *name)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "a finding says its lint's name in brackets".to_owned(),
    }
}

impl Inventory {
    /// What the lints find, in the order of the files; what is allowed is left out. `deny`: names that are errors, `warnings` for all that
    /// would be told.
    ///
    /// # Errors
    /// The inventory has no job, or a name in `deny` is no lint's.
    pub fn lints(&self, known: &Known, deny: &[String]) -> Result<Vec<Finding>, Vec<Problem>> {
        let unknown = deny.iter().filter(|name| *name != "warnings" && LINTS.iter().all(|(lint, _)| lint != name));
        let unknown: Vec<Problem> =
            unknown.map(|name| Place::whole("--deny").problem(format!("there is no lint `{}`", shorten(name)), meant(name))).collect();
        if !unknown.is_empty() {
            return Err(unknown);
        }
        let severity = |lint: &str| {
            let table = LINTS.iter().find(|(name, _)| *name == lint).map_or(Warn, |(_, severity)| *severity);
            let words = [("allow", Allow), ("warn", Warn), ("deny", Deny)];
            let own = self.read.tree.find(&["lints", lint]).and_then(|node| Check::default().word(node, &words));
            let severity = own.unwrap_or(table);
            let denied = deny.iter().any(|name| name == lint) || (severity == Warn && deny.iter().any(|name| name == "warnings"));
            if denied { Deny } else { severity }
        };
        let mut found: Vec<Finding> = self
            .all_lints(known)?
            .into_iter()
            .map(|(lint, problem)| Finding { lint, severity: severity(lint), problem })
            .filter(|finding| finding.severity > Allow)
            .collect();
        found.sort_by(|a, b| (&a.problem, a.lint).cmp(&(&b.problem, b.lint)));
        found.dedup();
        Ok(found)
    }

    fn all_lints(&self, known: &Known) -> Result<Vec<(&'static str, Problem)>, Vec<Problem>> {
        let job = self.job(known)?;
        let facts = Facts {
            tree: &self.read.tree,
            members: &self.read.members,
            names: self.hosts.iter().map(|host| host.name.as_str()).collect(),
            fabric: self.hosts.iter().map(|host| host.fabric_address.as_deref()).collect(),
            gpus: self.hosts.iter().map(|host| &host.gpus).collect(),
            known,
            nproc: None,
        };
        let scope = Scope::new(facts);
        let mut look = Look {
            scope: &scope,
            job: &job,
            tree: &self.read.tree,
            members: &self.read.members,
            with: scope.with(),
            hosts: self.hosts.len(),
            found: Vec::new(),
        };
        text::look(&mut look);
        env::look(&mut look);
        shape::look(&mut look);
        Ok(look.found)
    }
}
