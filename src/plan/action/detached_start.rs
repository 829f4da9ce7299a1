//! Starts a wrapper detached, where the ranks run, exactly once: the launcher's, or a task's.

use crate::plan::action::container::DETACH_SH;
use crate::plan::host_context::{HostContext, write_file_script};
use crate::plan::logind::SystemdScope;
use crate::text::shell_quote::quote;

/// The try that creates the file starts the wrapper: a try whose connection was lost may still be running when the next one comes. A claim
/// whose shell is gone expires after three seconds in which nothing was started.
const CLAIM_SH: &str = "claim() {
  i=0
  until (set -C; echo $$ >claimed) 2>/dev/null; do
    if [ -e \"$1\" ]; then return 1; fi
    i=$((i + 1)); [ $i -le 150 ] || { echo 'another try to start the launcher does not end' >&2; exit 74; }
    c=; { read -r c <claimed; } 2>/dev/null
    [ $i -le 30 ] || kill -0 \"$c\" 2>/dev/null || rm -f claimed
    sleep 0.1
  done
  [ ! -e \"$1\" ]
}
";

/// A wrapper of the current run, and what it is given.
pub(super) struct DetachedStart<'a> {
    pub(super) context: &'a HostContext,
    /// What starts, for messages: `the launcher`.
    pub(super) subject: &'a str,
    /// The wrapper's script and its words, quoted; a file with secrets follows.
    pub(super) wrapper: String,
    /// The base name of the wrapper's files: `node`, `task-3`.
    pub(super) base: String,
    /// Names and values of the secrets: handed over by a file in memory, or by inheritance on a bare host; never in an argument.
    pub(super) secrets: &'a [(String, String)],
    /// Whether the wrapper of a bare host gets the secrets as one variable, which it passes on by itself.
    pub(super) bundles_secrets: bool,
    /// Where processes of a bare host start.
    pub(super) scope: &'a SystemdScope,
    /// Variables that tasks have registered.
    pub(super) registered: &'a [(String, String)],
}

impl DetachedStart<'_> {
    /// The script, which ends when the wrapper is recorded. Doing it twice starts it once.
    pub(super) fn script(&self) -> String {
        let context = self.context;
        let (run_dir, pid) = (quote(&context.run_dir()), quote(&self.pid_file()));
        let claim_file = if self.base == "node" { "claimed".to_owned() } else { format!("claimed.{}", self.base) };
        format!(
            "{guard}cd {run_dir} || exit 72\n\
             {registered}{claim}\
             if [ ! -e {pid} ] && claim {pid}; then\n{start}fi\n\
             i=0; while [ ! -e {pid} ]; do i=$((i + 1)); [ $i -gt 150 ] && {{ echo '{subject} did not start' >&2; exit 74; }}; sleep 0.1; done\n",
            guard = context.lock_check(),
            registered = self.registered_script(),
            claim = CLAIM_SH.replace("claimed", &claim_file).replace("the launcher", self.subject),
            start = self.start_script(&claim_file),
            subject = self.subject,
        )
    }

    pub(super) fn pid_file(&self) -> String {
        format!("{}{}.pid", self.context.run_file_prefix(), self.base)
    }

    /// The variables as a file that the wrappers read: data, in a file that no rank can write.
    fn registered_script(&self) -> String {
        if self.registered.is_empty() {
            return String::new();
        }
        write_file_script(&format!("{}/registered", self.context.run_dir()), &exports(self.registered), "644")
    }

    fn start_script(&self, claim_file: &str) -> String {
        let context = self.context;
        let (wrapper, exports) = (&self.wrapper, exports(self.secrets));
        if !context.in_container {
            // The ranks begin in the home, unless workdir says otherwise.
            let (tried, words, run_dir) = (self.scope.probe_script(), self.scope.command_prefix(), quote(&context.run_dir()));
            let exports =
                if self.bundles_secrets && !exports.is_empty() { format!("export ORCH_SECRETS={}\n", quote(&exports)) } else { exports };
            format!("{DETACH_SH}\n{tried}{exports}cd; detach {words}/bin/sh {wrapper}\ncd {run_dir}\n")
        } else if self.secrets.is_empty() {
            format!("D exec -d {} /bin/sh {wrapper} || {{ rm -f {claim_file}; exit 79; }}\n", quote(&context.container_name()))
        } else {
            let secret = format!("{}.{}", context.secret_file_prefix(), context.run_id);
            format!(
                "over() {{ D exec {container} rm -f {secret} >/dev/null 2>&1; rm -f {claim_file}; exit 79; }}\n\
                 printf %s {} | D exec -i {container} /bin/sh -c {} || over\nD exec -d {container} /bin/sh {wrapper} {secret} || over\n",
                quote(&exports),
                quote(&format!("umask 077; cat >{secret}")),
                container = quote(&context.container_name()),
            )
        }
    }
}

fn exports(variables: &[(String, String)]) -> String {
    variables.iter().map(|(name, value)| format!("export {name}={}\n", quote(value))).collect()
}
