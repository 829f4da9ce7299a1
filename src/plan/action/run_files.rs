//! The run directory with everything that a launch reads: made by the ssh user before the container starts, so that he can remove it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::remote_command::{CommandOutput, RemoteCommand};
use crate::plan::action::ActionResult;
use crate::plan::host_context::{HostContext, write_file_script};
use crate::plan::launcher::HostLaunchSpec;
use crate::plan::protocol::run_record::RunRecord;
use crate::plan::task::HostTask;
use crate::text::shell_quote::quote;

/// Writes a new run's directory and makes it the current one.
#[derive(Debug, Clone)]
pub struct WriteRunFiles {
    pub context: HostContext,
    /// What the launcher and the workers are given.
    pub launch_spec: HostLaunchSpec,
    /// What the run says of itself.
    pub run_record: RunRecord,
    /// Seconds after which a keeper that saw no launcher ends.
    pub start_timeout_secs: u64,
    /// The image whose ENTRYPOINT the ranks run through.
    pub entrypoint_image: Option<String>,
    /// Whether the container stays when the run has ended.
    pub keep_container: bool,
    /// The tasks of `prepare` that run on this host.
    pub tasks: Vec<HostTask>,
    /// The longest that a log may be, bytes.
    pub max_log_bytes: u64,
}

impl WriteRunFiles {
    /// The names of the files that it writes into the directory of what the run is given; `keeper` and `current` lie above it, the record in the private one.
    pub fn file_names(&self) -> Vec<String> {
        let through = self.entrypoint_image.iter().map(|_| "entrypoint".to_owned());
        self.files().into_iter().map(|(name, _)| name).chain(through).collect()
    }

    fn files(&self) -> Vec<(String, String)> {
        let fixed = [
            ("lib", include_str!("../../../assets/lib.sh").to_owned()),
            ("node", include_str!("../../../assets/node.sh").to_owned()),
            ("worker", include_str!("../../../assets/worker.sh").to_owned()),
            ("reap", include_str!("../../../assets/reap.sh").to_owned()),
            ("append", include_str!("../../../assets/append.sh").to_owned()),
            ("pipe", pipe_text(self.max_log_bytes)),
            ("env", env_file_text(&self.launch_spec)),
            ("argv", argv_file_text(&self.launch_spec.argv)),
            ("worker.argv", argv_file_text(&self.launch_spec.worker_argv)),
        ];
        let record = &self.run_record;
        let settings = settings_text(record.stop_grace_secs, self.start_timeout_secs, !record.tolerates_rank_loss);
        let fixed = fixed.into_iter().map(|(name, text)| (name.to_owned(), text));
        fixed.chain(self.further_files()).chain([("settings".to_owned(), settings)]).collect()
    }

    /// What the launcher reads beside its argv and environment, and what tasks read.
    fn further_files(&self) -> BTreeMap<String, String> {
        let mut files = self.launch_spec.files.clone();
        if !self.tasks.is_empty() {
            files.insert("task".to_owned(), include_str!("../../../assets/task.sh").to_owned());
        }
        let has_other_place = self.context.host_task_context().is_some();
        files.extend(self.tasks.iter().filter(|task| task.in_container || !has_other_place).flat_map(HostTask::files));
        files
    }

    /// The files of the tasks that run on the host beside the container: in the private directory, where it cannot reach them.
    fn host_task_script(&self) -> String {
        let Some(place) = self.context.host_task_context() else { return String::new() };
        let (dir, input, output) = (place.run_dir(), quote(&place.input_dir()), quote(&place.output_dir()));
        let quoted = quote(&dir);
        let mut script = format!("rm -rf {quoted} && mkdir -p {output} {quoted} && chmod 700 {input} {output} {quoted} || exit 73\n");
        let fixed = [
            ("lib", include_str!("../../../assets/lib.sh").to_owned()),
            ("reap", include_str!("../../../assets/reap.sh").to_owned()),
            ("append", include_str!("../../../assets/append.sh").to_owned()),
            ("pipe", pipe_text(self.max_log_bytes)),
            ("task", include_str!("../../../assets/task.sh").to_owned()),
            // A wait looks for it: whether the run is still there.
            ("settings", String::new()),
        ];
        let files = fixed.into_iter().map(|(name, text)| (name.to_owned(), text));
        for (name, text) in files.chain(self.tasks.iter().filter(|task| !task.in_container).flat_map(HostTask::files)) {
            script.push_str(&format!("printf %s {} >{} || exit 73\n", quote(&text), quote(&format!("{dir}/{name}"))));
        }
        script
    }

    pub(super) fn command(&self) -> RemoteCommand {
        let context = &self.context;
        let dir = context.run_dir();
        let mut script = context.lock_check();
        script.push_str(&context.remove_logins_script());
        script.push_str("umask 022\n");
        let quoted = quote(&dir);
        // The record first: a launch that is cut off here is found by it.
        let json = serde_json::to_string_pretty(&self.run_record).unwrap_or_default();
        script.push_str(&write_file_script(&context.run_record_path(), &format!("{json}\n"), "600"));
        script.push_str(&format!(
            "b=; {{ read -r b </proc/sys/kernel/random/boot_id; }} 2>/dev/null; printf '%s\\n' \"$b\" >{} || exit 73\n",
            quote(&context.boot_id_path())
        ));
        script.push_str(&format!(
            "rm -rf {quoted} && mkdir -p \"$P\" \"$OUT\" {quoted} && chmod 700 \"$P\" && chmod 777 \"$OUT\" && chmod 755 \"$IN\" {quoted} || exit 73\n"
        ));
        // Nothing reads these files before `current` names the run: no need to write them aside and rename.
        for (name, text) in self.files() {
            script.push_str(&format!("printf %s {} >{} || exit 73\n", quote(&text), quote(&format!("{dir}/{name}"))));
        }
        script.push_str(&self.host_task_script());
        if let Some(image) = &self.entrypoint_image {
            script.push_str(&entrypoint_script(image, &quoted));
        }
        script.push_str(&write_file_script(&format!("{}/keeper", context.input_dir()), include_str!("../../../assets/keeper.sh"), "644"));
        script.push_str(if self.keep_container {
            ": >\"$IN/keep\" && : >\"$P/keep\" || exit 73\n"
        } else {
            "rm -f \"$IN/keep\" \"$P/keep\"\n"
        });
        // The truth last: what names a run that is not whole could not be torn down.
        for dir in [context.input_dir(), context.private_dir()] {
            script.push_str(&write_file_script(&format!("{dir}/current"), &format!("{}\n", context.run_id), "644"));
        }
        RemoteCommand::from_script("write the run directory", script, Duration::from_secs(30))
    }

    pub(super) fn judge(&self, output: &CommandOutput) -> ActionResult {
        if output.is_success() {
            return ActionResult::unchanged(self.context.run_dir());
        }
        let message = output.error_line();
        if output.exit_code == EXIT_NO_ENTRYPOINT {
            return ActionResult::failed(
                format!("the ranks cannot run through the image's ENTRYPOINT: {message}"),
                "remove container.entrypoint, or use an image whose ENTRYPOINT is in exec form and runs its arguments",
            );
        }
        let hint = if message.contains("No space left") {
            format!("free space under {} on {}", self.context.run_dir_root, self.context.host)
        } else {
            format!("check that {} is writable on {}, or set run_dir", self.context.run_dir_root, self.context.host)
        };
        ActionResult::failed(format!("could not write {}: {message}", self.context.run_dir()), hint)
    }
}

/// The settings of the keeper and the wrappers.
pub(crate) fn settings_text(stop_grace_secs: u64, start_timeout_secs: u64, fails_fast: bool) -> String {
    format!("stop_grace={stop_grace_secs}\nstart_timeout={start_timeout_secs}\nfail_fast={}\nlease=0\n", u8::from(fails_fast))
}

/// The end of a rank's output, with the longest that its log may be.
pub(crate) fn pipe_text(max_log_bytes: u64) -> String {
    format!("log_max={max_log_bytes}\n{}", include_str!("../../../assets/pipe.sh"))
}

/// The exit status where an image's ENTRYPOINT is of no use.
const EXIT_NO_ENTRYPOINT: i32 = 76;

/// Writes a file that puts the words of the image's ENTRYPOINT before the positional parameters of the shell that reads it. One in shell form
/// takes no words: nothing could run through it.
fn entrypoint_script(image: &str, dir: &str) -> String {
    format!(
        "e=$(D image inspect --format '{{{{range .Config.Entrypoint}}}}{{{{println .}}}}{{{{end}}}}' {} | sed '/^$/d') || exit 78\n\
         case $e in '') echo 'it has none' >&2; exit {EXIT_NO_ENTRYPOINT} ;;\n\
         */sh'\n'-c'\n'*) echo 'it is in shell form and takes no arguments' >&2; exit {EXIT_NO_ENTRYPOINT} ;; esac\n\
         {{ printf 'set -- '; printf '%s\\n' \"$e\" | sed \"s/'/'\\\\\\\\''/g; s/.*/'&'/\" | tr '\\n' ' '; printf '\"$@\"\\n'; }} >{dir}/entrypoint || exit 73\n",
        quote(image)
    )
}

/// A file that makes the words the positional parameters of the shell that reads it.
fn argv_file_text(argv: &[String]) -> String {
    let mut text = "set --".to_owned();
    for word in argv {
        text.push(' ');
        text.push_str(&quote(word));
    }
    text.push('\n');
    text
}

/// A file that exports the variables of the shell that reads it; a default only where the variable is not set, by the image for one.
fn env_file_text(launch_spec: &HostLaunchSpec) -> String {
    let fixed = launch_spec.env.iter().map(|(name, value)| format!("export {name}={}\n", quote(value)));
    let defaults =
        launch_spec.env_defaults.iter().map(|(name, value)| format!("[ -n \"${{{name}+set}}\" ] || export {name}={}\n", quote(value)));
    fixed.chain(defaults).collect()
}
