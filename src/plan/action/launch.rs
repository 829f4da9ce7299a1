//! The launcher: started detached, waited for, and ended. Start and stop are in one file.

use std::time::Duration;

use crate::model::remote_command::{CommandOutput, RemoteCommand};
use crate::plan::action::ActionResult;
use crate::plan::action::detached_start::DetachedStart;
use crate::plan::host_context::{HostContext, SAFE_READ_SH};
use crate::plan::logind::{EXIT_NO_SCOPE, SystemdScope};
use crate::text::shell_quote::quote;

/// Starts the node wrapper of the current run. Doing it twice starts it once.
#[derive(Debug, Clone)]
pub struct StartLauncher {
    pub context: HostContext,
    /// Names and values of the secrets: handed over by a file in memory, or by inheritance on a bare host; never in an argument.
    pub secrets: Vec<(String, String)>,
    /// Where the ranks of a bare host start.
    pub scope: SystemdScope,
    /// Variables that tasks of `prepare` have registered; known once they have ended.
    pub registered: Vec<(String, String)>,
}

impl StartLauncher {
    pub(super) fn command(&self) -> RemoteCommand {
        let start = DetachedStart {
            context: &self.context,
            subject: "the launcher",
            wrapper: quote(&format!("{}/node", self.context.run_dir())),
            base: "node".to_owned(),
            secrets: &self.secrets,
            bundles_secrets: false,
            scope: &self.scope,
            registered: &self.registered,
        };
        let script = format!("{}exit 0\n", start.script());
        RemoteCommand::from_script("start the launcher", script, Duration::from_secs(60))
            .with_masked_values(self.secrets.iter().map(|(_, value)| value.clone()))
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
    /// Whether the first rank that fails ends the wait: no launcher ends or restarts the others.
    pub fails_with_a_rank: bool,
}

impl WaitForMaster {
    pub(super) fn command(&self) -> RemoteCommand {
        let prefix = self.context.run_file_prefix();
        let (reading, failed_rank) = match self.fails_with_a_rank {
            true => (
                format!(
                    "{SAFE_READ_SH}\
                     cd -P -- \"$OUT\" && dir=$(pwd -P) || exit 73\n\
                     failed() {{ first_lines \"$dir\" \"$@\" | {{ while read -r f c _; do [ \"$c\" = 0 ] || return 0; done; return 1; }}; }}\n"
                ),
                format!("set -- {}.rank-*.rc; if [ -e \"$1\" ] && failed \"$@\"; then exit 72; fi\n", quote(&self.context.run_id)),
            ),
            false => Default::default(),
        };
        let script = format!(
            "{preamble}{reading}\
             listens() {{ if [ -r /proc/net/tcp ]; then cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -qE '^ *[0-9]+: [0-9A-F]+:{hex} [0-9A-F]+:0000 0A'; else netstat -an 2>/dev/null | grep -qE '[.:]{port} .*LISTEN'; fi; }}\n\
             i=0\n\
             while ! listens; do\n\
             [ ! -e {rc} ] || {{ echo \"the master's launcher has ended\" >&2; exit 71; }}\n\
             {failed_rank}\
             i=$((i + 1)); [ $i -gt {tries} ] && exit 70\n\
             sleep 0.1\n\
             done\n",
            preamble = self.context.script_preamble(),
            rc = quote(&format!("{prefix}node.rc")),
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
                "see the master's log; if it starts slowly, raise launch.master_timeout",
            ),
            71 => ActionResult::failed(
                format!("the master's launcher has ended before port {} listened", self.port),
                "see the master's log; if the ranks open no port, set `launch.gate: started`",
            ),
            72 => ActionResult::failed(format!("a rank has failed before port {} listened", self.port), "see the log of that rank"),
            _ => ActionResult::failed(output.error_line(), "see the master's log"),
        }
    }
}

/// Ends every process of the run on one host, and nothing else. Completes even if the connection is lost;
/// is idempotent, and works where nothing was started. Needs no lock: it touches one run only, and a gang must stop at once.
#[derive(Debug, Clone)]
pub struct StopRanks {
    pub context: HostContext,
    /// From TERM to KILL; `None`: KILL at once.
    pub grace: Option<Duration>,
    /// Whether a command ends a run that would continue, which the host records: false if the run has failed by itself.
    pub by_request: bool,
    /// Whether the run's directory may be gone while its processes live: then the scripts that end them are written first, under the lock.
    pub restore_scripts: bool,
}

impl StopRanks {
    pub fn command(&self) -> RemoteCommand {
        let own = self.stop_script(&self.context);
        // Both at once: each may take the whole grace.
        let script = match self.context.host_task_context() {
            Some(beside) => {
                format!("(\n{}) & beside=$!\n(\n{own})\ncode=$?\nwait \"$beside\" || code=$?\nexit \"$code\"\n", self.stop_script(&beside))
            }
            None => own,
        };
        RemoteCommand::from_script("stop the ranks", script, self.grace.unwrap_or_default() + Duration::from_secs(30))
    }

    fn stop_script(&self, context: &HostContext) -> String {
        let run_dir = context.run_dir();
        let reap = quote(&format!("{run_dir}/reap"));
        let run = quote(&context.run_id);
        let words = match self.grace {
            Some(grace) => format!("{reap} stop {run} {}", grace.as_secs()),
            None => format!("{reap} kill {run}"),
        };
        // The second mark is for wrappers of tasks that are about to start.
        let mut mark = format!("[ ! -d {run} ] || true >{run}/stopped\n", run = quote(&run_dir));
        if self.by_request {
            mark.push_str(&format!("[ ! -d \"$P\" ] || true >{} || exit 73\n", quote(&context.stop_marker())));
        }
        if self.restore_scripts {
            restore_and_stop_script(context, &reap, &words)
        } else if context.in_container {
            format!(
                "{preamble}[ -e {reap} ] || exit 0\n\
                 runs=$(D inspect --type container --format '{{{{.State.Running}}}} {{{{.State.Paused}}}}' {container} 2>&1) || \
                 case $runs in *[Nn]'o such container'* | *[Nn]'o such object'*) exit 0 ;; *) printf '%s\\n' \"$runs\" >&2; exit 78 ;; esac\n\
                 case $runs in *'true true') D unpause {container} >/dev/null || exit 79 ;; *'true false') ;; *) exit 0 ;; esac\n\
                 {mark}{inside}\n",
                preamble = context.script_preamble(),
                container = quote(&context.container_name()),
                inside = context.exec_script(&words),
            )
        } else {
            format!("{}[ -e {reap} ] || exit 0\n{mark}{}\n", context.script_preamble(), context.exec_script(&words))
        }
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

/// With the scripts of a run that has lost its directory; a clean-up removes them.
fn restore_and_stop_script(context: &HostContext, reap: &str, words: &str) -> String {
    let dir = context.run_dir();
    format!(
        "{guard}[ -e {reap} ] || {{ mkdir -p {} && printf %s {} >{} && printf %s {} >{reap}; }} || exit 73\n/bin/sh {words}\n",
        quote(&dir),
        quote(include_str!("../../../assets/lib.sh")),
        quote(&format!("{dir}/lib")),
        quote(include_str!("../../../assets/reap.sh")),
        guard = context.lock_check(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bare host's run whose launcher is slow to report that it runs.
    fn slow_launcher_context(base: &std::path::Path) -> HostContext {
        let context = HostContext { run_id: "run1".to_owned(), ..HostContext::new("n", "gpu01", base.display().to_string()) };
        for dir in [context.private_dir(), context.run_dir(), context.output_dir()] {
            std::fs::create_dir_all(dir).expect("made");
        }
        let node = format!("echo once >>{}/starts; sleep 1; echo 1 >{}node.pid\n", base.display(), context.run_file_prefix());
        std::fs::write(format!("{}/node", context.run_dir()), node).expect("written");
        context
    }

    #[test]
    fn variables_of_any_name_leave_the_launcher_its_status() {
        let dir = tempfile::tempdir().expect("a folder");
        let context = slow_launcher_context(dir.path());
        let names = ["R", "F", "n", "rc", "mask", "secrets"];
        let exports: String = names.map(|name| format!("export {name}='of {name}'\n")).concat();
        let text: String = names.map(|name| format!("${name},")).concat();
        let files = [
            ("lib", include_str!("../../../assets/lib.sh")),
            ("pipe", include_str!("../../../assets/pipe.sh")),
            ("append", include_str!("../../../assets/append.sh")),
            ("node", include_str!("../../../assets/node.sh")),
            ("registered", &exports),
            ("env", "export ORCH_WORKDIR=/\nexport n='of n'\n"),
            ("argv", &format!("set -- sh -c {}\n", quote(&format!("echo \"$PWD {text}$TOKEN\"; exit 3")))),
            ("secret", "export TOKEN='a\nb'\n"),
        ];
        for (name, text) in files {
            std::fs::write(format!("{}/{name}", context.run_dir()), text).expect("written");
        }
        let secret = format!("{}/secret", context.run_dir());
        let node = format!("{}/node", context.run_dir());
        let status = std::process::Command::new("/bin/sh").args([&node, &secret]).status().expect("a shell");
        assert_eq!(status.code(), Some(3));
        let read = |end: &str| std::fs::read_to_string(format!("{}node.{end}", context.run_file_prefix())).unwrap_or_default();
        assert!(read("rc").starts_with("3 "), "{:?}", read("rc"));
        let end = std::time::Instant::now() + Duration::from_secs(20);
        while read("log").lines().count() < 2 && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(read("log"), "/ of R,of F,of n,of rc,of mask,of secrets,a\nb\n");
        assert!(!std::path::Path::new(&secret).exists(), "it is read once");
    }

    fn spawn_start(context: &HostContext) -> std::process::Child {
        let command =
            StartLauncher { context: context.clone(), secrets: Vec::new(), scope: SystemdScope::Inherited, registered: Vec::new() }
                .command();
        std::process::Command::new("/bin/sh").args(["-c", &command.script]).spawn().expect("a shell")
    }

    #[test]
    fn concurrent_starts_launch_once_and_stale_claim_expires() {
        let base = tempfile::tempdir().expect("a folder");
        let context = slow_launcher_context(base.path());
        let starts = || std::fs::read_to_string(base.path().join("starts")).expect("started");
        let tries: Vec<_> = (0..4).map(|_| spawn_start(&context)).collect();
        for mut each in tries {
            assert!(each.wait().expect("it ran").success());
        }
        assert_eq!(starts(), "once\n");

        let base = tempfile::tempdir().expect("a folder");
        let context = slow_launcher_context(base.path());
        // The shell that has claimed it is gone.
        let mut gone = std::process::Command::new("/bin/true").spawn().expect("it runs");
        gone.wait().expect("it ran");
        std::fs::write(format!("{}/claimed", context.run_dir()), format!("{}\n", gone.id())).expect("written");
        assert!(spawn_start(&context).wait().expect("it ran").success());
        assert_eq!(std::fs::read_to_string(base.path().join("starts")).expect("started"), "once\n");
    }
}
