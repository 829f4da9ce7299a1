//! The launcher: started detached, waited for, and ended. Start and stop stand side by side.

use std::time::Duration;

use crate::model::remote_command::{CommandOutput, RemoteCommand};
use crate::plan::action::ActionResult;
use crate::plan::action::container::DETACH_SH;
use crate::plan::host_context::HostContext;
use crate::plan::logind::{EXIT_NO_SCOPE, SystemdScope};
use crate::text::shell_quote::quote;

/// Whoever makes the file starts the launcher: a try whose connection was lost may still be under way when the next one comes. A claim whose
/// shell is gone is free after three seconds in which nothing was started.
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

/// Starts the node wrapper of the current run. Doing it twice starts it once.
#[derive(Debug, Clone)]
pub struct StartLauncher {
    pub context: HostContext,
    /// Names and values of the secrets: handed over by a file in memory, or by inheritance on a bare host; never in an argument.
    pub secrets: Vec<(String, String)>,
    /// Where the ranks of a bare host start.
    pub scope: SystemdScope,
}

impl StartLauncher {
    pub(super) fn command(&self) -> RemoteCommand {
        let site = &self.context;
        let (run_dir, pid) = (quote(&site.run_dir()), quote(&format!("{}node.pid", site.run_file_prefix())));
        let exports: String = self.secrets.iter().map(|(name, value)| format!("export {name}={}\n", quote(value))).collect();
        let node = quote(&format!("{}/node", site.run_dir()));
        let start = if !site.in_container {
            // The ranks begin in the home, unless workdir says otherwise.
            let (tried, words) = (self.scope.probe_script(), self.scope.command_prefix());
            format!("{DETACH_SH}\n{tried}{exports}cd; detach {words}/bin/sh {node}\ncd {run_dir}\n")
        } else if self.secrets.is_empty() {
            format!("D exec -d {} /bin/sh {node} || {{ rm -f claimed; exit 79; }}\n", quote(&site.container_name()))
        } else {
            let secret = format!("{}.{}", site.secret_file_prefix(), site.run_id);
            format!(
                "over() {{ D exec {container} rm -f {secret} >/dev/null 2>&1; rm -f claimed; exit 79; }}\n\
                 printf %s {} | D exec -i {container} /bin/sh -c {} || over\nD exec -d {container} /bin/sh {node} {secret} || over\n",
                quote(&exports),
                quote(&format!("umask 077; cat >{secret}")),
                container = quote(&site.container_name()),
            )
        };
        let script = format!(
            "{guard}cd {run_dir} || exit 72\n\
             {CLAIM_SH}\
             if [ ! -e {pid} ] && claim {pid}; then\n{start}fi\n\
             i=0; while [ ! -e {pid} ]; do i=$((i + 1)); [ $i -gt 150 ] && {{ echo 'the launcher did not start' >&2; exit 74; }}; sleep 0.1; done\n\
             exit 0\n",
            guard = site.lock_check(),
        );
        RemoteCommand::from_script("start the launcher", script, Duration::from_secs(60))
            .with_secrets(self.secrets.iter().map(|(_, value)| value.clone()))
    }

    pub(super) fn judge(&self, output: &CommandOutput) -> ActionResult {
        if output.is_success() {
            return ActionResult::changed("");
        }
        ActionResult::failed(
            format!("could not start the launcher: {}", output.error_line()),
            if output.exit_code == EXIT_NO_SCOPE {
                self.scope.hint(&self.context.host)
            } else if self.context.in_container {
                format!("`docker logs {}` on {} may show more", self.context.container_name(), self.context.host)
            } else {
                String::new()
            },
        )
    }
}

/// Waits until the master's port listens; a launcher that ends meanwhile ends the wait.
#[derive(Debug, Clone)]
pub struct WaitForMaster {
    pub context: HostContext,
    pub port: u16,
    pub timeout: Duration,
}

impl WaitForMaster {
    pub(super) fn command(&self) -> RemoteCommand {
        let script = format!(
            "{preamble}\
             listens() {{ if [ -r /proc/net/tcp ]; then cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -qE '^ *[0-9]+: [0-9A-F]+:{hex} [0-9A-F]+:0000 0A'; else netstat -an 2>/dev/null | grep -qE '[.:]{port} .*LISTEN'; fi; }}\n\
             i=0\n\
             while ! listens; do\n\
             [ ! -e {rc} ] || {{ echo \"the master's launcher has ended\" >&2; exit 71; }}\n\
             i=$((i + 1)); [ $i -gt {tries} ] && exit 70\n\
             sleep 0.1\n\
             done\n",
            preamble = self.context.script_preamble(),
            rc = quote(&format!("{}node.rc", self.context.run_file_prefix())),
            hex = format_args!("{:04X}", self.port),
            port = self.port,
            tries = self.timeout.as_millis() / 105,
        );
        RemoteCommand::from_script("wait for the master's port", script, self.timeout + Duration::from_secs(30))
    }

    pub(super) fn judge(&self, output: &CommandOutput) -> ActionResult {
        match output.exit_code {
            0 => ActionResult::unchanged(format!("port {} listens", self.port)),
            70 => ActionResult::failed(
                format!("port {} on {} did not listen within {} s", self.port, self.context.host, self.timeout.as_secs()),
                "see the master's log above; if it starts slowly, raise launch.master_timeout",
            ),
            _ => ActionResult::failed(output.error_line(), "see the master's log above"),
        }
    }
}

/// Ends every process of the run on one host, and nothing else. Completes by itself once it has arrived, whatever becomes of the connection;
/// works twice, and where nothing was started. Needs no lock: it touches one run only, and a gang must stop at once.
#[derive(Debug, Clone)]
pub struct StopRanks {
    pub context: HostContext,
    /// From TERM to KILL; `None`: KILL at once.
    pub grace: Option<Duration>,
    /// Whether an order ends a run that would go on, which the host remembers: not where the run has failed by itself.
    pub by_request: bool,
    /// Whether the run's directory may be gone while its processes live: then the scripts that end them are written first, under the lock.
    pub restore_scripts: bool,
}

impl StopRanks {
    pub(super) fn command(&self) -> RemoteCommand {
        let site = &self.context;
        let run_dir = site.run_dir();
        let reap = quote(&format!("{run_dir}/reap"));
        let run = quote(&site.run_id);
        let words = match self.grace {
            Some(grace) => format!("{reap} stop {run} {}", grace.as_secs()),
            None => format!("{reap} kill {run}"),
        };
        let mark = if self.by_request && !site.legacy_layout {
            format!("[ ! -d \"$P\" ] || true >{} || exit 73\n", quote(&site.stop_marker()))
        } else {
            String::new()
        };
        let script = if self.restore_scripts {
            self.restore_and_stop_script(&reap, &words)
        } else if site.in_container {
            format!(
                "{preamble}[ -e {reap} ] || exit 0\n\
                 runs=$(D inspect --type container --format '{{{{.State.Running}}}} {{{{.State.Paused}}}}' {container} 2>&1) || \
                 case $runs in *[Nn]'o such container'* | *[Nn]'o such object'*) exit 0 ;; *) printf '%s\\n' \"$runs\" >&2; exit 78 ;; esac\n\
                 case $runs in *'true true') D unpause {container} >/dev/null || exit 79 ;; *'true false') ;; *) exit 0 ;; esac\n\
                 {mark}{inside}\n",
                preamble = site.script_preamble(),
                container = quote(&site.container_name()),
                inside = site.exec_script(&words),
            )
        } else {
            format!("{}[ -e {reap} ] || exit 0\n{mark}{}\n", site.script_preamble(), site.exec_script(&words))
        };
        RemoteCommand::from_script("stop the ranks", script, self.grace.unwrap_or_default() + Duration::from_secs(30))
    }

    /// With the scripts of a run that has lost its directory; a clean-up removes them.
    fn restore_and_stop_script(&self, reap: &str, words: &str) -> String {
        let dir = self.context.run_dir();
        format!(
            "{guard}[ -e {reap} ] || {{ mkdir -p {} && printf %s {} >{} && printf %s {} >{reap}; }} || exit 73\n/bin/sh {words}\n",
            quote(&dir),
            quote(include_str!("../../../assets/lib.sh")),
            quote(&format!("{dir}/lib")),
            quote(include_str!("../../../assets/reap.sh")),
            guard = self.context.lock_check(),
        )
    }

    pub(super) fn judge(&self, output: &CommandOutput) -> ActionResult {
        let text = output.stdout_text();
        let left: Vec<&str> = text.lines().filter(|l| l.starts_with("left ")).collect();
        if let Some(first) = left.first() {
            return ActionResult::failed(
                format!("{} of the run's processes did not end: {first}", left.len()),
                "a process in state D waits for the kernel or a file server; check `ps -o pid,stat,wchan,args`",
            );
        }
        match (output.is_success(), text.contains("signalled KILL"), text.contains("signalled TERM")) {
            (true, true, _) => ActionResult::changed("stopped by KILL"),
            (true, false, true) => ActionResult::changed("stopped by TERM"),
            (true, false, false) => ActionResult::unchanged("nothing ran"),
            // The container ended under the exec: nothing of it can run any more, which the removal verifies.
            (false, ..) if output.exit_code == 137 || output.error_line().contains("is not running") => {
                ActionResult::changed("the container ended")
            }
            (false, ..) => ActionResult::failed(format!("could not stop the ranks: {}", output.error_line()), ""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bare host's run whose launcher takes its time to say that it runs.
    #[expect(clippy::disallowed_methods, reason = "the files of a test")]
    fn slow_launcher_context(base: &std::path::Path) -> HostContext {
        let site = HostContext { run_id: "run1".to_owned(), ..HostContext::new("n", "gpu01", base.display().to_string()) };
        for dir in [site.private_dir(), site.run_dir(), site.output_dir()] {
            std::fs::create_dir_all(dir).expect("made");
        }
        let node = format!("echo once >>{}/starts; sleep 1; echo 1 >{}node.pid\n", base.display(), site.run_file_prefix());
        std::fs::write(format!("{}/node", site.run_dir()), node).expect("written");
        site
    }

    #[expect(clippy::disallowed_methods, reason = "the proof is a real shell")]
    fn spawn_start(context: &HostContext) -> std::process::Child {
        let command = StartLauncher { context: context.clone(), secrets: Vec::new(), scope: SystemdScope::Inherited }.command();
        std::process::Command::new("/bin/sh").args(["-c", &command.script]).spawn().expect("a shell")
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the files of a test")]
    fn concurrent_starts_launch_once_and_stale_claim_expires() {
        let base = tempfile::tempdir().expect("a folder");
        let site = slow_launcher_context(base.path());
        let starts = || std::fs::read_to_string(base.path().join("starts")).expect("started");
        let tries: Vec<_> = (0..4).map(|_| spawn_start(&site)).collect();
        for mut each in tries {
            assert!(each.wait().expect("it ran").success());
        }
        assert_eq!(starts(), "once\n");

        let base = tempfile::tempdir().expect("a folder");
        let site = slow_launcher_context(base.path());
        // The shell that has claimed it is gone.
        let mut gone = std::process::Command::new("/bin/true").spawn().expect("it runs");
        gone.wait().expect("it ran");
        std::fs::write(format!("{}/claimed", site.run_dir()), format!("{}\n", gone.id())).expect("written");
        assert!(spawn_start(&site).wait().expect("it ran").success());
        assert_eq!(std::fs::read_to_string(base.path().join("starts")).expect("started"), "once\n");
    }
}
