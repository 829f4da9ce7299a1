//! The way back: the container or the keeper, the logs, the run directory, and the proof that nothing is left.
//!
//! Planned from what is found, by labels and paths that are ours, never by a pattern; every script works twice.

use std::time::Duration;

use crate::model::remote_command::{CommandOutput, RemoteCommand};
use crate::plan::action::ActionResult;
use crate::plan::host_context::{HostContext, SAFE_READ_SH};
use crate::text::shell_quote::{join_quoted, quote};

/// Removes the containers of this name and host, or ends a bare host's keeper.
#[derive(Debug, Clone)]
pub struct RemoveContainer {
    pub context: HostContext,
}

impl RemoveContainer {
    pub(super) fn title(&self) -> &'static str {
        if self.context.in_container { "remove the container" } else { "end the keeper" }
    }

    pub(super) fn command(&self) -> RemoteCommand {
        let keeper = format!(
            "{lib}\nif {{ read -r p s b <\"$P/keeper.pid\"; }} 2>/dev/null && [ -n \"$s\" ] && [ \"${{b:-$(boot)}}\" = \"$(boot)\" ] && [ \"$(born \"$p\")\" = \"$s\" ]; then kill \"$p\" 2>/dev/null\n\
             i=0; while [ \"$(born \"$p\")\" = \"$s\" ]; do i=$((i + 1)); [ $i -gt 100 ] && kill -9 \"$p\" 2>/dev/null; [ $i -gt 120 ] && exit 1; sleep 0.1; done; fi\n",
            lib = include_str!("../../../assets/lib.sh"),
        );
        let containers = format!(
            "found=$({}) || exit 78\n\
             while IFS='|' read -r r i _; do\n\
             case $i in '' | *[!0-9a-f]*) continue ;; esac\n\
             case $r in '' | {}) ;; *) continue ;; esac\n\
             {}D rm -f \"$i\" </dev/null >/dev/null || exit 78; echo removed\ndone <<FOUND\n$found\nFOUND\n",
            self.context.list_containers_script(),
            quote(&self.context.run_dir_root),
            self.context.for_each_secret_script("D exec -u 0 \"$i\" rm -f \"$l\" </dev/null >/dev/null 2>&1"),
        );
        // A keeper without a directory is found by its command line.
        let lost = "[ ! -d /proc/self ] || for e in $(grep -lsF \"$IN/keeper\" /proc/[0-9]*/cmdline 2>/dev/null); do\n\
                    [ -O \"$e\" ] && [ \"$(tr '\\0' ' ' <\"$e\" 2>/dev/null)\" = \"/bin/sh $IN/keeper \" ] || continue\n\
                    p=${e#/proc/}; kill -9 \"${p%/cmdline}\" 2>/dev/null; done\n";
        let script =
            format!("{}{keeper}{}true\n", self.context.lock_check(), if self.context.in_container { containers.as_str() } else { lost });
        RemoteCommand::from_script(self.title(), script, Duration::from_secs(120))
    }

    pub(super) fn judge(&self, output: &CommandOutput) -> ActionResult {
        if output.is_success() {
            ActionResult::changed("removed")
        } else {
            ActionResult::failed(format!("could not {}: {}", self.title(), output.error_line()), "")
        }
    }
}

/// Fetches what the laptop lacks of the current run's logs and exits.
#[derive(Debug, Clone)]
pub struct FetchLogs {
    pub context: HostContext,
}

/// Removes the files of one run, or everything of this name and host but the lock.
///
/// The container is gone, or stays for the next run: then only its keeper lives, which drops a run that is no longer the current one.
/// A follower gets 5 s to report how the run ended.
#[derive(Debug, Clone)]
pub struct RemoveFiles {
    pub context: HostContext,
    pub target: CleanupTarget,
}

/// What a clean-up removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CleanupTarget {
    /// Everything of this name and host.
    Everything,
    /// The files of the context's run; the rest stays for the next one (a kept container).
    Run,
    /// What a login at a registry left in memory.
    Login,
}

/// Waits for the followers of the run with the given id, or of any run.
const WAIT_FOR_FOLLOWERS_SH: &str = "followed() { for f in \"$P/following.\"$1.*; do [ -e \"$f\" ] && [ -d \"/proc/${f##*.}\" ] && return 0; done; return 1; }\n\
                        let_go() { i=0; while [ $i -lt 25 ] && followed \"$1\"; do i=$((i + 1)); sleep 0.2; done; rm -f \"$P/following.\"$1.*; }\n";

/// Removes a directory into which a follower or the lock's heartbeat may just be writing a file.
const REMOVE_DIR_SH: &str =
    "away() { i=0; until rm -rf \"$1\" 2>/dev/null; do i=$((i + 1)); [ $i -gt 20 ] && { rm -rf \"$1\"; return; }; sleep 0.2; done; }\n";

/// Counts what ranks left in the open directory beside logs, pids and statuses: it was not fetched.
const COUNT_UNKNOWN_FILES_SH: &str = "odd() { count=0; for f in \"$OUT\"/$1.*; do b=${f#\"$OUT\"/*.}\n\
                   case $b in times | keeper.log | oom | probe | torchelastic) continue ;; *.log | *.pid | *.rc | *.end | *.lost | *.note | *.pipe | *.value) b=${b%.*} ;; *.rc.new | *.pid.new) b=${b%.*.new} ;; esac\n\
                   [ -e \"$f\" ] || [ -L \"$f\" ] || continue; wrapper \"$b\" || count=$((count + 1)); done\n\
                   [ $count = 0 ] || echo \"unknown $count\"; }\n";

impl RemoveFiles {
    pub(super) fn command(&self) -> RemoteCommand {
        let context = &self.context;
        let mut script = context.lock_check();
        for part in [SAFE_READ_SH, WAIT_FOR_FOLLOWERS_SH, REMOVE_DIR_SH, COUNT_UNKNOWN_FILES_SH] {
            script.push_str(part);
        }
        match &self.target {
            CleanupTarget::Login => script.push_str(&context.remove_logins_script()),
            CleanupTarget::Run => script.push_str(&self.single_run_script(&quote(&context.run_id))),
            CleanupTarget::Everything => script.push_str(&self.full_script()),
        }
        RemoteCommand::from_script("remove the run directory", script, Duration::from_secs(120))
    }

    fn single_run_script(&self, run: &str) -> String {
        // What a rank made as another user, in a directory of its own, can only be removed from where it was made. A directory is never
        // emptied on the host while a container lives that could put a link in its place.
        let directory = if self.context.in_container {
            format!("D exec -u 0 {} rm -rf \"$f\"", quote(&self.context.container_name()))
        } else {
            "rm -rf \"$f\"".to_owned()
        };
        format!(
            "c=; {{ read -r c <\"$P/current\"; }} 2>/dev/null\n\
             [ \"$c\" != {run} ] || rm -f \"$IN/current\" || exit 1\n\
             let_go {run}; odd {run}\n\
             for f in \"$OUT\"/{run}.*; do if [ -d \"$f\" ] && [ ! -L \"$f\" ]; then {directory}; else rm -f \"$f\"; fi || failed=1; done\n\
             [ -z \"$failed\" ] && away \"$IN\"/{run} || exit 1\n\
             [ \"$c\" != {run} ] || rm -f \"$P/current\" || exit 1\n\
             rm -rf \"$P\"/host.in/{run} \"$P\"/host.out/{run}.* || exit 1\n\
             rm -f \"$P\"/{run}.json \"$P\"/{run}.stopped \"$P\"/{run}.boot \"$P\"/{run}.files\n"
        )
    }

    fn full_script(&self) -> String {
        let context = &self.context;
        let aside = if context.in_container {
            format!(
                "if [ -d \"$OUT\" ]; then {}; rm -rf \"$OUT\" || failed=1; fi\n",
                context.run_as_root_script("rm -rf \"$0\"/* \"$0\"/.[!.]* \"$0\"/..?*", "")
            )
        } else {
            "[ ! -d \"$OUT\" ] || failed=1\n".to_owned()
        };
        format!(
            "{}rm -f \"$IN/current\"\nlet_go '*'; odd '*'\n\
             rm -rf \"$OUT\" 2>/dev/null\n{aside}\
             away \"$IN\" || failed=1\n\
             [ -n \"$failed\" ] || for e in \"$P\"/* \"$P\"/.[!.]*; do case $e in */lock | */lock.beat) ;; *) rm -rf \"$e\" || failed=1 ;; esac; done\n\
             [ -z \"$failed\" ]\n",
            context.remove_logins_script() + &context.for_each_secret_script("rm -f \"$l\" 2>/dev/null")
        )
    }

    pub(super) fn judge(&self, output: &CommandOutput) -> ActionResult {
        if output.is_success() {
            let text = output.stdout_text();
            let unknown = text.lines().find_map(|line| line.strip_prefix("unknown ")).and_then(|count| count.parse::<u64>().ok());
            ActionResult::changed(
                unknown.map_or("removed".to_owned(), |count| format!("removed, including {count} files of ranks that are not logs")),
            )
        } else {
            let dir = self.context.dir_prefix();
            ActionResult::failed(
                format!("could not remove {dir}.*: {}", output.error_line()),
                format!("remove them on {}: `sudo rm -rf {dir}.private {dir}.in {dir}.out`", self.context.host),
            )
        }
    }
}

/// Looks whether a container, a process or a file of this name is left.
#[derive(Debug, Clone)]
pub struct VerifyRemoved {
    pub context: HostContext,
    /// The runs whose processes are looked for.
    pub run_ids: Vec<String>,
}

impl VerifyRemoved {
    pub(super) fn command(&self) -> RemoteCommand {
        let context = &self.context;
        let mut script = context.script_preamble();
        if context.in_container {
            script.push_str(&format!(
                "found=$({}) || echo 'left container: docker does not respond'\n\
                 while IFS='|' read -r r i n; do\n[ -n \"$i\" ] || continue\ncase $r in '' | {}) echo \"left container $n\" ;; esac\ndone <<FOUND\n$found\nFOUND\n",
                context.list_containers_script(),
                quote(&context.run_dir_root),
            ));
        }
        // By their run, or by their directory where that is not known any more.
        let marks = self.run_ids.iter().map(|run| format!("ORCH_RUN_ID={run}")).chain([format!("ORCH_RUN_DIR={}/", context.input_dir())]);
        let marks: Vec<String> = marks.flat_map(|mark| ["-e".to_owned(), mark]).collect();
        script.push_str(&format!(
            "for e in $(grep -lsF {} /proc/[0-9]*/environ 2>/dev/null); do p=${{e#/proc/}}; p=${{p%/environ}}; grep -qsF ORCH_RUN_ID= \"$e\" || continue; \
             s=$(cut -d ' ' -f 3 \"/proc/$p/stat\" 2>/dev/null); case $s in Z | X | '') ;; *) echo \"left process $p $(tr '\\0' ' ' <\"/proc/$p/cmdline\" 2>/dev/null | cut -c1-100)\" ;; esac; done\n",
            join_quoted(&marks)
        ));
        script.push_str(
            "for e in \"$P\"/* \"$P\"/.[!.]*; do case $e in */lock | */lock.beat | */'*' | */'.[!.]*') ;; *) echo \"left file $e\" ;; esac; done\n\
             for e in \"$IN\" \"$OUT\"; do if [ -e \"$e\" ] || [ -L \"$e\" ]; then echo \"left file $e\"; fi; done\n",
        );
        script.push_str(&format!(
            "for m in {}; do for l in \"$m\"/{}.??????; do [ -O \"$l\" ] && echo \"left login $l\"; done; done\n{}echo looked\n",
            HostContext::MEMORY_DIRS,
            context.login_dir_prefix(),
            context.for_each_secret_script("echo \"left secrets $l\"")
        ));
        RemoteCommand::from_script("verify that nothing is left", script, Duration::from_secs(60))
    }

    pub(super) fn judge(&self, output: &CommandOutput) -> ActionResult {
        let text = output.stdout_text();
        let left: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("left ")).collect();
        if !text.lines().any(|l| l == "looked") {
            return ActionResult::failed(format!("could not verify: {}", output.error_line()), "");
        }
        if left.is_empty() {
            ActionResult::unchanged("nothing is left")
        } else {
            ActionResult::failed(format!("still there: {}", left.join("; ")), "")
        }
    }
}
